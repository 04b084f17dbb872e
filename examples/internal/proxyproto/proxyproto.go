// Package proxyproto writes the header of HAProxy's PROXY protocol, by which a proxy
// tells a server who its client is. It stands at the beginning of the connection,
// before the first byte of the client.
//
// Both versions of https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt are
// implemented for TCP. Section numbers below are of that text. Not implemented:
// reading headers, TLVs, UDP and Unix sockets.
package proxyproto

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
)

// Version is a version of the protocol.
type Version uint8

// The versions. The zero value writes nothing.
const (
	None Version = iota
	V1           // a line of text
	V2           // binary
)

// String returns "", "v1" or "v2".
func (v Version) String() string {
	switch v {
	case None:
		return ""
	case V1:
		return "v1"
	case V2:
		return "v2"
	}
	return fmt.Sprintf("version(%d)", uint8(v))
}

// MarshalText returns what String does. A program that writes a configuration for
// another one to read needs it.
func (v Version) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText is the inverse of MarshalText. Its error names the key that stands for a
// version in files.
func (v *Version) UnmarshalText(text []byte) error {
	switch string(text) {
	case "":
		*v = None
	case "v1":
		*v = V1
	case "v2":
		*v = V2
	default:
		return fmt.Errorf("send_proxy %s: no such version: give v1 or v2", text)
	}
	return nil
}

// signature begins every header of version 2 (section 2.2).
const signature = "\r\n\r\n\x00\r\nQUIT\n"

// What version 2 says of the connection (section 2.2).
const (
	version2   = 0x20
	cmdLocal   = 0x0 // the proxy speaks for itself
	cmdProxy   = 0x1 // it speaks for a client
	famUnspec  = 0x00
	famTCP4    = 0x11
	famTCP6    = 0x21
	lengthTCP4 = 2*4 + 2*2
	lengthTCP6 = 2*16 + 2*2
)

// Append appends the header of a connection that a client at from made to the proxy's
// address to. IPv4 addresses mapped to IPv6 are written as IPv4; zones are dropped,
// as they mean nothing elsewhere. Both addresses must be valid.
func (v Version) Append(dst []byte, from, to netip.AddrPort) []byte {
	source, target := from.Addr().Unmap(), to.Addr().Unmap()
	four := source.Is4() && target.Is4()
	if !four { // one of each can't be, but has a form
		source, target = netip.AddrFrom16(source.As16()), netip.AddrFrom16(target.As16())
	}
	switch v {
	case V1: // section 2.1
		family := "6 "
		if four {
			family = "4 "
		}
		dst = append(dst, "PROXY TCP"+family...)
		dst = append(source.AppendTo(dst), ' ')
		dst = append(target.AppendTo(dst), ' ')
		dst = append(strconv.AppendUint(dst, uint64(from.Port()), 10), ' ')
		dst = strconv.AppendUint(dst, uint64(to.Port()), 10)
		return append(dst, "\r\n"...)
	case V2:
		dst = append(dst, signature...)
		if four {
			dst = append(dst, version2|cmdProxy, famTCP4, 0, lengthTCP4)
		} else {
			dst = append(dst, version2|cmdProxy, famTCP6, 0, lengthTCP6)
		}
		dst = append(dst, source.AsSlice()...)
		dst = append(dst, target.AsSlice()...)
		dst = binary.BigEndian.AppendUint16(dst, from.Port())
		return binary.BigEndian.AppendUint16(dst, to.Port())
	}
	return dst
}

// AppendLocal appends the header of a connection that the proxy makes for itself, such
// as a health check.
func (v Version) AppendLocal(dst []byte) []byte {
	switch v {
	case V1:
		return append(dst, "PROXY UNKNOWN\r\n"...)
	case V2:
		return append(append(dst, signature...), version2|cmdLocal, famUnspec, 0, 0)
	}
	return dst
}
