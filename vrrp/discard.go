package vrrp

import "strconv"

// Discard says why a packet was not accepted. The zero value means that it was.
// It is an error as well, so that a parser's refusal can be compared with
// errors.Is and counted without a translation.
type Discard uint8

// The reasons, in the order in which a packet is checked (RFC 9568, Section 7.1,
// and what keepalived adds to it).
const (
	Accepted           Discard = iota
	DiscardTruncated           // shorter than its own headers say
	DiscardNotIPv4             // not an IPv4 packet; IPv6 is not implemented
	DiscardFragment            // an IPv4 fragment; adverts are never fragmented
	DiscardAH                  // an IPsec Authentication Header (RFC 2338); not implemented
	DiscardProtocol            // another IP protocol than 112
	DiscardTTL                 // TTL below the configured minimum (RFC 9568, Section 5.1.1.3)
	DiscardOwn                 // sent by ourselves
	DiscardDestination         // multicast to a unicast instance, or the reverse
	DiscardPeer                // the source is not a configured unicast peer
	DiscardVersion             // another VRRP version than configured, or an unknown one
	DiscardType                // not an advertisement
	DiscardVRID                // another virtual router
	DiscardNoAddress           // no address listed
	DiscardLength              // the length does not match the address count
	DiscardChecksum            // no known form of the checksum matches
	DiscardAuthType            // another authentication type than configured
	DiscardPassword            // the wrong simple password
	DiscardInterval            // interval of zero, or in version 2 another than configured
	numDiscards
)

var discardText = [numDiscards]string{
	Accepted:           "accepted",
	DiscardTruncated:   "truncated",
	DiscardNotIPv4:     "not IPv4 (IPv6 is not implemented)",
	DiscardFragment:    "IPv4 fragment",
	DiscardAH:          "authentication header (AH is not implemented)",
	DiscardProtocol:    "IP protocol is not 112",
	DiscardTTL:         "TTL below the minimum",
	DiscardOwn:         "our own packet",
	DiscardDestination: "unicast or multicast destination does not fit",
	DiscardPeer:        "source is not a configured peer",
	DiscardVersion:     "wrong VRRP version",
	DiscardType:        "not an advertisement",
	DiscardVRID:        "wrong VRID",
	DiscardNoAddress:   "no address listed",
	DiscardLength:      "length does not match the address count",
	DiscardChecksum:    "wrong checksum",
	DiscardAuthType:    "wrong authentication type",
	DiscardPassword:    "wrong password",
	DiscardInterval:    "wrong advertisement interval",
}

// String returns the reason in words.
func (d Discard) String() string {
	if d < numDiscards {
		return discardText[d]
	}
	return "discard " + strconv.Itoa(int(d))
}

// Error returns the reason as an error text.
func (d Discard) Error() string { return "vrrp: packet discarded: " + d.String() }
