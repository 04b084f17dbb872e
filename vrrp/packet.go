package vrrp

import (
	"encoding/binary"
	"net/netip"
)

// Packet is an advert with what the IPv4 header says about its way.
type Packet struct {
	Src, Dst netip.Addr // of the IPv4 header
	TTL      uint8      // as received, 255 if no router forwarded it
	Advert   Advert
}

// ParsePacket decodes an IPv4 packet that carries an advert. Bytes behind the
// header's total length, such as Ethernet padding, are ignored. Addresses are
// appended to addrs[:0]; faults are reported as a [Discard]. When the IPv4 header
// was readable, Src, Dst and TTL are set even with an error, so that the culprit
// can be named.
func ParsePacket(b []byte, addrs []netip.Addr) (Packet, error) {
	if len(b) < 1 {
		return Packet{}, DiscardTruncated
	}
	if b[0]>>4 != 4 {
		return Packet{}, DiscardNotIPv4
	}
	if len(b) < 20 {
		return Packet{}, DiscardTruncated
	}
	hlen := int(b[0]&0x0f) * 4
	total := int(binary.BigEndian.Uint16(b[2:]))
	p := Packet{
		Src: netip.AddrFrom4([4]byte(b[12:])),
		Dst: netip.AddrFrom4([4]byte(b[16:])),
		TTL: b[8],
	}
	if hlen < 20 || total < hlen || total > len(b) {
		return p, DiscardTruncated
	}
	// More fragments, or an offset: only the unused top bit and DF may be set.
	if binary.BigEndian.Uint16(b[6:])&0x3fff != 0 {
		return p, DiscardFragment
	}
	switch b[9] {
	case protocolVRRP:
	case protocolAH:
		return p, DiscardAH
	default:
		return p, DiscardProtocol
	}
	var err error
	p.Advert, err = ParseAdvert(b[hlen:total], p.Src, p.Dst, addrs)
	return p, err
}
