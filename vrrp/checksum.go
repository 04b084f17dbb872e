package vrrp

import (
	"encoding/binary"
	"net/netip"

	"github.com/lastbeat/lastbeat/internal/cksum"
)

// ChecksumForm is a way in which implementations compute the checksum of a
// version 3 advert over IPv4. Version 2 has only [ChecksumPlain].
//
// RFC 5798 could be read both ways; keepalived and FRR include a pseudo header,
// RFC 9568, Section 5.2.8, and most routers do not. Every form is accepted on
// receipt.
type ChecksumForm uint8

const (
	// ChecksumPseudo includes a pseudo header with the packet's addresses, as
	// keepalived and FRR send it. It is the default.
	ChecksumPseudo ChecksumForm = iota
	// ChecksumPlain covers the VRRP message alone: version 2, and version 3 as
	// RFC 9568 has it.
	ChecksumPlain
	// ChecksumLegacy includes a pseudo header with the multicast destination
	// even in a unicast packet, as keepalived up to 1.3.6 sends it.
	ChecksumLegacy
)

// multicastIPv4 is the group that adverts are sent to (RFC 9568, Section 5.1.1.2).
var multicastIPv4 = netip.AddrFrom4([4]byte{224, 0, 0, 18})

func checksum(msg []byte, version uint8, form ChecksumForm, src, dst netip.Addr) uint16 {
	if version == 2 {
		form = ChecksumPlain
	}
	// The checksum field itself counts as zero.
	sum := cksum.Sum(pseudoSum(len(msg), form, src, dst), msg[:6])
	return cksum.Finish(cksum.Sum(sum, msg[8:]))
}

func pseudoSum(length int, form ChecksumForm, src, dst netip.Addr) uint32 {
	switch form {
	case ChecksumPlain:
		return 0
	case ChecksumLegacy:
		dst = multicastIPv4
	}
	var ph [12]byte
	s, d := src.As4(), dst.As4()
	copy(ph[:], s[:])
	copy(ph[4:], d[:])
	ph[9] = protocolVRRP
	binary.BigEndian.PutUint16(ph[10:], uint16(length))
	return cksum.Sum(0, ph[:])
}

// matchChecksum finds the form that the received message carries.
func matchChecksum(msg []byte, version uint8, src, dst netip.Addr) (ChecksumForm, bool) {
	got := binary.BigEndian.Uint16(msg[6:])
	if checksum(msg, version, ChecksumPlain, src, dst) == got {
		return ChecksumPlain, true
	}
	if version == 2 || !src.Is4() || !dst.Is4() {
		return 0, false
	}
	for _, form := range [...]ChecksumForm{ChecksumPseudo, ChecksumLegacy} {
		if checksum(msg, version, form, src, dst) == got {
			return form, true
		}
	}
	return 0, false
}
