// Package vrrp decides who holds a virtual address, and holds it: VRRP version 2
// (RFC 3768) and 3 (RFC 9568) for IPv4, addresses that end unless they are
// renewed, and gratuitous ARP.
//
// The smallest use is an [Instance] on each node of a group:
//
//	i, err := vrrp.NewInstance(vrrp.InstanceConfig{
//		Config: vrrp.Config{
//			VRID: 51, Priority: 100,
//			Source: netip.MustParseAddr("192.0.2.11"),
//			Peers:  []netip.Addr{netip.MustParseAddr("192.0.2.12")},
//		},
//		Interface: "eth0",
//		Prefixes:  []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")},
//	})
//	...
//	err = i.Run(ctx) // until ctx ends; then it says goodbye
//
// Its parts are usable alone:
//
//   - [ParsePacket], [ParseAdvert] and [Advert] read and write adverts.
//   - [Machine] is the protocol without clock, socket or goroutine, for a program
//     with a loop of its own, or a simulation.
//   - [Holder] holds addresses while any outside token is valid, such as a lease;
//     it needs no VRRP. [Addresses] and [Announcer] are what it is made of.
//
// # Nothing stays true unless it is renewed
//
// A [Status] carries State, Since, ValidUntil and Reason, and reads Unknown after
// ValidUntil, also when its router has stopped or hangs. A track's report ends
// unless it is repeated ([Machine.Report]). An address has a lifetime in the
// kernel, renewed with each advert: what a killed or frozen router leaves behind
// ends by itself, with the default Lifetime no sooner than another router may
// take over, and no later than Lifetime and about a second after the last advert:
// the kernel looks at lifetimes once a second at most, so that an address which
// ends soon after another one waits for the next look. Until then two kernels
// answer for the address; gratuitous ARP moves the neighbours that have an entry.
//
// A router that did not run for longer than the others wait has lost the
// addresses, whatever it remembers: it lets go before it looks at what arrived
// meanwhile, and listens for an interval before it takes anything. A backup that
// was not running does not believe the silence that it slept through, once; and a
// socket is drained, and packets judged by the kernel's time of arrival, before a
// down timer is believed. Only differences of the monotonic clock count.
//
// # Working beside keepalived
//
// By default the wire is that of keepalived 2.2, with which a router of ours can
// share a group: version 3 checksums with a pseudo header ([ChecksumPseudo]),
// passwords in version 2, unicast peers, preemption, weights of tracks, Fault.
// It differs where keepalived fails:
//
//   - The loser of a duel sends one last advert, so that the winner announces
//     again even if it never saw a rival; and it announces nothing from the moment
//     that it hears the better claim. The winner announces at 0, 50, 200, 500 ms,
//     1 s and 5 s, then each 60 s.
//   - Unicast packets are accepted from listed peers and with TTL 255 only.
//   - An empty list of peers is an error.
//   - A router of equal priority waits a hundredth of an interval (version 2: of a
//     second) longer for each one with a higher address that it has heard at its
//     own priority, twice at most. That can invert priorities that differ by less
//     than 6; RankDelay -1 turns it off.
//   - A goodbye (priority 0) of a router that is not the followed one does not
//     shorten a backup's wait.
//   - A VIP removed by somebody else is added again instead of given up.
//
// # Not implemented
//
// IPv6 adverts and unsolicited neighbour advertisements; virtual MAC addresses;
// accept mode off; AH; the HMAC of keepalived 2.4; sync groups; change of peers,
// priority, addresses and interval at run time (tracks can be changed); a
// profile that follows RFC 9568 to the letter. A machine that is handed such a
// packet says why it refuses it, and counts it ([Discard]); an HMAC shows as a wrong
// length. The socket of an Instance receives IPv4 adverts only.
//
// # Requirements
//
// Codec and machines run everywhere. Instance, Holder, Addresses and Announcer
// need Linux, CAP_NET_RAW and CAP_NET_ADMIN (root, or a user namespace that owns
// the network namespace); elsewhere they fail with errors.ErrUnsupported. Linux
// 5.18 or later reports the ownership tag of addresses.
package vrrp
