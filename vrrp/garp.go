package vrrp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// Fixed values of the frames in this file: RFC 826 for the layout, RFC 5227,
// Section 3 for the announcement.
const (
	garpFrameLen    = 42 // Ethernet header 14, ARP for Ethernet and IPv4 28
	garpEtherType   = 0x0806
	garpHWEthernet  = 1
	garpProtoIPv4   = 0x0800
	garpOpRequest   = 1
	garpOpReply     = 2
	garpHWLen       = 6
	garpProtoLen    = 4
	garpOffEtherTyp = 12
	garpOffARP      = 14
)

// garpBroadcast is the Ethernet broadcast address.
var garpBroadcast = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// ErrNotGratuitousARP is returned for bytes that are no gratuitous ARP frame:
// another protocol, a frame cut short, or an ordinary request or reply.
var ErrNotGratuitousARP = errors.New("vrrp: not a gratuitous ARP frame")

// GratuitousARP is the frame that tells the neighbours which hardware address
// an IPv4 address has now.
//
// There are two forms. The request form (Reply false) has sender = target =
// Addr and ff:ff:ff:ff:ff:ff as target hardware address; Linux updates an
// existing entry by it always. The reply form carries the sender's own
// hardware address as target: Linux ignores a reply with a broadcast or zero
// target while its entry is younger than a second, which is exactly when a
// takeover follows a takeover, so that form cannot be built here. No form
// makes a neighbour create an entry that it does not have.
type GratuitousARP struct {
	MAC   [6]byte    // hardware address that now answers for Addr
	Addr  netip.Addr // the IPv4 address announced
	Reply bool       // reply form (op 2) instead of request form (op 1)
}

// validate tells why the frame cannot be built.
func (g GratuitousARP) validate() error {
	switch {
	case !g.Addr.Is4():
		return fmt.Errorf("vrrp: gratuitous ARP for %v: needs an IPv4 address", g.Addr)
	case g.MAC[0]&1 != 0 || g.MAC == [6]byte{}:
		return fmt.Errorf("vrrp: gratuitous ARP for %v: %v is no station's hardware address", g.Addr, net.HardwareAddr(g.MAC[:]))
	}
	return nil
}

// targetMAC is the target hardware address inside the ARP part.
func (g GratuitousARP) targetMAC() [6]byte {
	if g.Reply {
		return g.MAC
	}
	return garpBroadcast
}

// AppendBinary appends the whole Ethernet frame, 42 bytes without padding and
// checksum. On error dst comes back unchanged: Addr is no IPv4 address, or MAC
// is zero or a group address.
func (g GratuitousARP) AppendBinary(dst []byte) ([]byte, error) {
	if err := g.validate(); err != nil {
		return dst, err
	}
	op := uint16(garpOpRequest)
	if g.Reply {
		op = garpOpReply
	}
	ip, target := g.Addr.As4(), g.targetMAC()

	dst = append(dst, garpBroadcast[:]...)
	dst = append(dst, g.MAC[:]...)
	dst = binary.BigEndian.AppendUint16(dst, garpEtherType)
	dst = binary.BigEndian.AppendUint16(dst, garpHWEthernet)
	dst = binary.BigEndian.AppendUint16(dst, garpProtoIPv4)
	dst = append(dst, garpHWLen, garpProtoLen)
	dst = binary.BigEndian.AppendUint16(dst, op)
	dst = append(dst, g.MAC[:]...)
	dst = append(dst, ip[:]...)
	dst = append(dst, target[:]...)
	return append(dst, ip[:]...), nil
}

// ParseGratuitousARP reads a captured Ethernet frame, padded or not. Any
// gratuitous frame is accepted, also forms that AppendBinary does not build
// (a reply with a broadcast or zero target, a unicast destination): whoever
// sent it, its neighbours may believe it. VLAN tags are not looked through.
// The error matches [ErrNotGratuitousARP].
func ParseGratuitousARP(frame []byte) (GratuitousARP, error) {
	if len(frame) < garpFrameLen {
		return GratuitousARP{}, fmt.Errorf("%w: %d bytes of %d", ErrNotGratuitousARP, len(frame), garpFrameLen)
	}
	if et := binary.BigEndian.Uint16(frame[garpOffEtherTyp:]); et != garpEtherType {
		return GratuitousARP{}, fmt.Errorf("%w: EtherType %#04x", ErrNotGratuitousARP, et)
	}
	a := frame[garpOffARP:garpFrameLen]
	if binary.BigEndian.Uint16(a) != garpHWEthernet || binary.BigEndian.Uint16(a[2:]) != garpProtoIPv4 ||
		a[4] != garpHWLen || a[5] != garpProtoLen {
		return GratuitousARP{}, fmt.Errorf("%w: not for Ethernet and IPv4", ErrNotGratuitousARP)
	}
	op := binary.BigEndian.Uint16(a[6:])
	if op != garpOpRequest && op != garpOpReply {
		return GratuitousARP{}, fmt.Errorf("%w: operation %d", ErrNotGratuitousARP, op)
	}
	sender, target := [4]byte(a[14:18]), [4]byte(a[24:28])
	if sender != target || sender == [4]byte{} {
		return GratuitousARP{}, fmt.Errorf("%w: sender %v, target %v", ErrNotGratuitousARP,
			netip.AddrFrom4(sender), netip.AddrFrom4(target))
	}
	return GratuitousARP{MAC: [6]byte(a[8:14]), Addr: netip.AddrFrom4(sender), Reply: op == garpOpReply}, nil
}
