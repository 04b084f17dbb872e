package capture

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/lastbeat/lastbeat/vrrp"
)

// Kind is what a packet is.
type Kind uint8

// The kinds of packet that [Decode] knows.
const (
	Mark          Kind = iota + 1 // a text from [Capture.Mark]
	Advert                        // a VRRP advert, IPv4
	GratuitousARP                 // an announcement: sender and target are one address
	ARP                           // any other ARP request or reply
	EchoRequest                   // an ICMP ping
	EchoReply                     // its answer
	TCP                           // a segment with SYN, FIN or RST
)

var kindNames = [...]string{Mark: "mark", Advert: "advert", GratuitousARP: "gratuitous arp",
	ARP: "arp", EchoRequest: "echo request", EchoReply: "echo reply", TCP: "tcp"}

func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return "unknown"
}

// MAC is a hardware address.
type MAC [6]byte

var broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// Flags are the flags of a TCP segment.
type Flags uint8

// The flags by which connections begin and end.
const (
	FIN Flags = 0x01
	SYN Flags = 0x02
	RST Flags = 0x04
	ACK Flags = 0x10
)

func (f Flags) String() string {
	var set []string
	for _, b := range []struct {
		flag Flags
		name string
	}{{SYN, "SYN"}, {FIN, "FIN"}, {RST, "RST"}, {ACK, "ACK"}} {
		if f&b.flag != 0 {
			set = append(set, b.name)
		}
	}
	return strings.Join(set, "|")
}

// Packet is what one frame said. Fields that do not belong to its Kind are zero.
type Packet struct {
	At     time.Time // when the kernel received the frame
	Kind   Kind
	SrcMAC MAC // Ethernet source: the node that sent the frame, whatever address it used
	DstMAC MAC

	// Src and Dst are the IPv4 addresses of the header; for ARP the sender's
	// and the target's address.
	Src, Dst netip.Addr

	// Advert.
	Version  uint8
	VRID     uint8
	Priority uint8

	// ARP and GratuitousARP.
	Reply bool // operation 2, not 1
	HW    MAC  // sender hardware address: who answers for Src from now on

	// EchoRequest and EchoReply.
	ID, Seq uint16

	// TCP.
	SrcPort, DstPort uint16
	Flags            Flags // SYN, FIN, RST, ACK; other flags are left out

	// Mark.
	Text string
}

// The EtherTypes and protocols that are looked at.
const (
	etherIPv4 = 0x0800 // RFC 894
	etherARP  = 0x0806 // RFC 826
	etherMark = 0x88b5 // IEEE 802, local experimental EtherType 1

	protoICMP = 1
	protoTCP  = 6
	protoVRRP = 112

	icmpEchoReply   = 0
	icmpEchoRequest = 8

	etherLen = 14
	arpLen   = 28
	tcpLen   = 20
)

// Decode reads an Ethernet frame that was received at the instant at. ok is
// false for a frame of another kind, and for a malformed one. Nothing in the
// packet aliases the frame. The frame may be cut short behind the headers, as
// captures often are.
func Decode(frame []byte, at time.Time) (p Packet, ok bool) {
	if len(frame) < etherLen {
		return Packet{}, false
	}
	p = Packet{At: at, DstMAC: MAC(frame), SrcMAC: MAC(frame[6:])}
	body := frame[etherLen:]
	switch binary.BigEndian.Uint16(frame[12:]) {
	case etherMark:
		ok = p.mark(body)
	case etherARP:
		ok = p.arp(body)
	case etherIPv4:
		ok = p.ipv4(body)
	}
	if !ok {
		return Packet{}, false
	}
	return p, true
}

func (p *Packet) mark(b []byte) bool {
	p.Kind = Mark
	p.Text = string(bytes.TrimRight(b, "\x00")) // short frames are padded
	return p.Text != ""
}

func (p *Packet) arp(b []byte) bool {
	const ethernetIPv4 = "\x00\x01\x08\x00\x06\x04" // RFC 826: ar$hrd, pro, hln, pln
	if len(b) < arpLen || string(b[:6]) != ethernetIPv4 {
		return false
	}
	op := binary.BigEndian.Uint16(b[6:])
	if op != 1 && op != 2 {
		return false
	}
	p.Reply = op == 2
	p.HW = MAC(b[8:])
	p.Src, p.Dst = netip.AddrFrom4([4]byte(b[14:])), netip.AddrFrom4([4]byte(b[24:]))
	p.Kind = ARP
	if p.Src == p.Dst && !p.Src.IsUnspecified() {
		p.Kind = GratuitousARP
	}
	return true
}

func (p *Packet) ipv4(b []byte) bool {
	if len(b) < 20 || b[0]>>4 != 4 {
		return false
	}
	if b[9] == protoVRRP {
		return p.advert(b)
	}
	hlen := int(b[0]&0x0f) * 4
	total := int(binary.BigEndian.Uint16(b[2:]))
	if hlen < 20 || total < hlen {
		return false
	}
	if binary.BigEndian.Uint16(b[6:])&0x1fff != 0 { // not a first fragment: no header in it
		return false
	}
	p.Src, p.Dst = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
	payload := b[min(hlen, len(b)):min(total, len(b))]
	switch b[9] {
	case protoICMP:
		return p.icmp(payload)
	case protoTCP:
		return p.tcp(payload)
	}
	return false
}

func (p *Packet) advert(b []byte) bool {
	var addrs [4]netip.Addr
	v, err := vrrp.ParsePacket(b, addrs[:0])
	if err != nil {
		return false
	}
	p.Kind = Advert
	p.Src, p.Dst = v.Src, v.Dst
	p.Version, p.VRID, p.Priority = v.Advert.Version, v.Advert.VRID, v.Advert.Priority
	return true
}

func (p *Packet) icmp(b []byte) bool {
	if len(b) < 8 {
		return false
	}
	switch b[0] {
	case icmpEchoRequest:
		p.Kind = EchoRequest
	case icmpEchoReply:
		p.Kind = EchoReply
	default:
		return false
	}
	p.ID, p.Seq = binary.BigEndian.Uint16(b[4:]), binary.BigEndian.Uint16(b[6:])
	return true
}

func (p *Packet) tcp(b []byte) bool {
	if len(b) < tcpLen {
		return false
	}
	p.Flags = Flags(b[13]) & (SYN | FIN | RST | ACK)
	if p.Flags&(SYN|FIN|RST) == 0 {
		return false
	}
	p.Kind = TCP
	p.SrcPort, p.DstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	return true
}
