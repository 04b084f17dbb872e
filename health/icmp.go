package health

import (
	"bytes"
	"encoding/binary"

	"github.com/lastbeat/lastbeat/internal/cksum"
)

// echo is an ICMP echo message: RFC 792 for IPv4, RFC 4443, Section 4, for IPv6.
type echo struct {
	id, seq uint16
	payload []byte
}

const (
	echoHeader = 8
	echoAsk4   = 8 // echo request, ICMP
	echoReply4 = 0
	echoAsk6   = 128 // echo request, ICMPv6
	echoReply6 = 129
)

// appendRequest appends the request. The checksum of ICMPv6 covers addresses that
// only the kernel knows, so it is left to the kernel.
func (e echo) appendRequest(dst []byte, v6 bool) []byte {
	start := len(dst)
	kind := byte(echoAsk4)
	if v6 {
		kind = echoAsk6
	}
	dst = append(dst, kind, 0, 0, 0)
	dst = binary.BigEndian.AppendUint16(dst, e.id)
	dst = binary.BigEndian.AppendUint16(dst, e.seq)
	dst = append(dst, e.payload...)
	if !v6 {
		binary.BigEndian.PutUint16(dst[start+2:], cksum.Finish(cksum.Sum(0, dst[start:])))
	}
	return dst
}

// answeredBy tells whether the message b, without IP header, is the reply to e. The
// kernel has verified its checksum. anyID leaves the identifier to the kernel.
func (e echo) answeredBy(b []byte, v6, anyID bool) bool {
	kind := byte(echoReply4)
	if v6 {
		kind = echoReply6
	}
	return len(b) >= echoHeader && b[0] == kind && b[1] == 0 &&
		(anyID || binary.BigEndian.Uint16(b[4:]) == e.id) &&
		binary.BigEndian.Uint16(b[6:]) == e.seq &&
		bytes.Equal(b[echoHeader:], e.payload)
}

// skipIPv4 returns what follows the IPv4 header at the start of b, nil if there is
// none.
func skipIPv4(b []byte) []byte {
	const least = 20
	if len(b) < least || b[0]>>4 != 4 {
		return nil
	}
	n := int(b[0]&15) * 4
	if n < least || n > len(b) {
		return nil
	}
	return b[n:]
}
