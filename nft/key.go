package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Keys and values of our maps, as the kernel keeps them: fields one after the
// other, each padded with zeros to a multiple of four bytes, numbers in network
// byte order on every machine.
//
//	key:   address . protocol (1 byte) . port (2 bytes)
//	value: address . port (2 bytes)

// key returns the bytes under which the redirect is looked up.
func (r Redirect) key() string {
	b := append(make([]byte, 0, 24), r.VIP.AsSlice()...)
	b = append(b, r.Proto.number(), 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, r.From)
	return string(append(b, 0, 0))
}

// value returns the bytes to which the key is mapped.
func (r Redirect) value() string {
	b := append(make([]byte, 0, 20), r.VIP.AsSlice()...)
	b = binary.BigEndian.AppendUint16(b, r.To)
	return string(append(b, 0, 0))
}

// keyText returns a key as nft prints it, or its bytes when it is none of ours.
func keyText(k string) string {
	addr, rest, ok := cutAddr(k, 8)
	if !ok {
		return fmt.Sprintf("%x", k)
	}
	proto := fmt.Sprint(rest[0])
	switch rest[0] {
	case TCP.number():
		proto = TCP.String()
	case UDP.number():
		proto = UDP.String()
	}
	return fmt.Sprintf("%s . %s . %d", addr, proto, binary.BigEndian.Uint16(rest[4:]))
}

// valueText returns a value as nft prints it, or its bytes when it is none of ours.
func valueText(v string) string {
	addr, rest, ok := cutAddr(v, 4)
	if !ok {
		return fmt.Sprintf("%x", v)
	}
	return fmt.Sprintf("%s . %d", addr, binary.BigEndian.Uint16(rest))
}

// cutAddr splits an address off the front that leaves rest bytes.
func cutAddr(s string, rest int) (netip.Addr, []byte, bool) {
	if len(s) != 4+rest && len(s) != 16+rest {
		return netip.Addr{}, nil, false
	}
	addr, ok := netip.AddrFromSlice([]byte(s[:len(s)-rest]))
	return addr, []byte(s[len(s)-rest:]), ok
}
