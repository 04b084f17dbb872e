package vrrp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"
)

// Sizes and constants of the wire format.
const (
	protocolVRRP = 112 // RFC 9568, Section 5.1.1.4
	protocolAH   = 51
	typeAdvert   = 1
	headerLen    = 8
	authLen      = 8 // version 2 ends with 8 authentication bytes, used or not

	maxIntervalV2 = 255 * time.Second
	maxIntervalV3 = 4095 * 10 * time.Millisecond // 12 bits of centiseconds
)

// AuthType is the authentication type of a version 2 advert. RFC 3768 withdrew
// authentication; keepalived and its users still send simple passwords.
type AuthType uint8

// The authentication types of RFC 2338.
const (
	AuthNone AuthType = 0
	AuthPass AuthType = 1 // simple text password, 8 bytes in the clear
	authAH   AuthType = 2
)

// Advert is one VRRP advertisement for IPv4, version 2 (RFC 3768) or 3 (RFC 9568).
type Advert struct {
	Version  uint8         // 2 or 3
	VRID     uint8         // virtual router, 1 to 255
	Priority uint8         // 255 owner, 1 to 254 backup, 0 "I am leaving"
	Interval time.Duration // version 2: 1 to 255 whole seconds; version 3: 10 ms to 40.95 s in steps of 10 ms
	AuthType AuthType      // version 2 only
	Auth     [8]byte       // version 2 only: the password, padded with zeros
	Checksum ChecksumForm  // which form the packet carried, or is to carry
	Addrs    []netip.Addr  // the virtual addresses, 1 to 255, IPv4
}

// ParseAdvert decodes the VRRP message b that travelled from src to dst; the
// addresses are part of some checksums. The result's Addrs are appended to
// addrs[:0], which may be nil; nothing aliases b. It reports the first fault as
// a [Discard], and checks structure only: whether the advert is meant for us is
// for [Machine.Receive] to say.
func ParseAdvert(b []byte, src, dst netip.Addr, addrs []netip.Addr) (Advert, error) {
	if len(b) < headerLen {
		return Advert{}, DiscardTruncated
	}
	a := Advert{Version: b[0] >> 4, VRID: b[1], Priority: b[2]}
	count := int(b[3])
	want := headerLen + 4*count
	switch a.Version {
	case 2:
		want += authLen
	case 3:
	default:
		return Advert{}, DiscardVersion
	}
	if b[0]&0x0f != typeAdvert {
		return Advert{}, DiscardType
	}
	if a.VRID == 0 {
		return Advert{}, DiscardVRID
	}
	if count == 0 {
		return Advert{}, DiscardNoAddress // RFC 9568, Section 5.2.5: at least one
	}
	if len(b) < want {
		return Advert{}, DiscardTruncated
	}
	if len(b) > want {
		return Advert{}, DiscardLength
	}
	form, ok := matchChecksum(b, a.Version, src, dst)
	if !ok {
		return Advert{}, DiscardChecksum
	}
	a.Checksum = form
	if a.Version == 2 {
		a.AuthType = AuthType(b[4])
		a.Interval = time.Duration(b[5]) * time.Second
		copy(a.Auth[:], b[want-authLen:])
		if a.AuthType == authAH {
			return Advert{}, DiscardAH
		}
		if a.AuthType > authAH {
			return Advert{}, DiscardAuthType
		}
	} else {
		// The upper four bits are reserved: ignored on receipt (RFC 9568, Section 5.2.6).
		a.Interval = time.Duration(binary.BigEndian.Uint16(b[4:])&0x0fff) * 10 * time.Millisecond
	}
	if a.Interval == 0 {
		return Advert{}, DiscardInterval
	}
	a.Addrs = addrs[:0]
	for i := range count {
		a.Addrs = append(a.Addrs, netip.AddrFrom4([4]byte(b[headerLen+4*i:])))
	}
	return a, nil
}

// AppendBinary appends the encoded advert to dst, with its checksum for a packet
// from src to to. On error dst comes back unchanged.
func (a Advert) AppendBinary(dst []byte, src, to netip.Addr) ([]byte, error) {
	if err := a.check(); err != nil {
		return dst, err
	}
	if a.Version == 3 && a.Checksum != ChecksumPlain && (!src.Is4() || !to.Is4()) {
		return dst, fmt.Errorf("vrrp: encode advert: checksum needs IPv4 source and destination, got %v and %v", src, to)
	}
	start := len(dst)
	dst = append(dst, a.Version<<4|typeAdvert, a.VRID, a.Priority, byte(len(a.Addrs)))
	if a.Version == 2 {
		dst = append(dst, byte(a.AuthType), byte(a.Interval/time.Second), 0, 0)
	} else {
		dst = binary.BigEndian.AppendUint16(dst, uint16(a.Interval/(10*time.Millisecond)))
		dst = append(dst, 0, 0)
	}
	for _, addr := range a.Addrs {
		v4 := addr.As4()
		dst = append(dst, v4[:]...)
	}
	if a.Version == 2 {
		dst = append(dst, a.Auth[:]...)
	}
	msg := dst[start:]
	binary.BigEndian.PutUint16(msg[6:], checksum(msg, a.Version, a.Checksum, src, to))
	return dst, nil
}

func (a Advert) check() error {
	fault := func(field string, value any, remedy string) error {
		return fmt.Errorf("vrrp: encode advert: %s %v: %s", field, value, remedy)
	}
	switch {
	case a.Version != 2 && a.Version != 3:
		return fault("version", a.Version, "must be 2 or 3")
	case a.VRID == 0:
		return fault("VRID", a.VRID, "must be 1 to 255")
	case len(a.Addrs) == 0 || len(a.Addrs) > 255:
		return fault("address count", len(a.Addrs), "must be 1 to 255")
	case a.AuthType > AuthPass:
		return fault("authentication type", a.AuthType, "must be none or password")
	case a.Version == 3 && (a.AuthType != AuthNone || a.Auth != [8]byte{}):
		return fault("authentication type", a.AuthType, "version 3 has no authentication")
	}
	if err := checkInterval(a.Version, a.Interval); err != nil {
		return fmt.Errorf("vrrp: encode advert: %w", err)
	}
	for _, addr := range a.Addrs {
		if !addr.Is4() {
			return fault("address", addr, "must be IPv4; IPv6 is not implemented")
		}
	}
	return nil
}

// checkInterval tells whether the wire format can carry an interval exactly. An
// interval that would be rounded is refused: 400 ms rounded to 0 has flooded
// networks (https://github.com/acassen/keepalived/issues/1615).
func checkInterval(version uint8, d time.Duration) error {
	if version == 2 {
		if d < time.Second || d > maxIntervalV2 || d%time.Second != 0 {
			return fmt.Errorf("interval %v: version 2 carries whole seconds, 1s to 255s; use version 3 below 1s", d)
		}
		return nil
	}
	if d < 10*time.Millisecond || d > maxIntervalV3 || d%(10*time.Millisecond) != 0 {
		return fmt.Errorf("interval %v: version 3 carries 10ms to 40.95s in steps of 10ms", d)
	}
	return nil
}
