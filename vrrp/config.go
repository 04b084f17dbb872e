package vrrp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// PriorityOwner is the priority of the router that owns the addresses.
const PriorityOwner = 255

// Config describes one virtual router (RFC 9568, Section 6.1).
type Config struct {
	VRID    uint8 // virtual router identifier, 1 to 255; required
	Version uint8 // 2 (RFC 3768) or 3 (RFC 9568); default 3

	// Priority before tracks are added: 1 to 254, or 255 for the owner of the
	// addresses. Default 100.
	Priority uint8

	// Interval between adverts (Advertisement_Interval). Version 2: whole seconds,
	// 1s to 255s, and equal on all routers; version 3: 10ms to 40.95s in steps of
	// 10ms. Default 1s.
	Interval time.Duration

	Addrs  []netip.Addr // the virtual addresses, 1 to 255, IPv4; required
	Source netip.Addr   // our own address, the tie-break between equals; required

	// Peers are the other routers, for unicast, 64 at most. With peers, only they are
	// listened to. Without, Multicast must be set: an empty list is an error and
	// never turns into something else.
	Peers     []netip.Addr
	Multicast bool

	// MinTTL is the lowest TTL accepted. Default 255, which only neighbours on
	// the same link can send (RFC 9568, Section 5.1.1.3); lower it for unicast
	// peers behind routers.
	MinTTL uint8

	// Password is the simple password of version 2. Only its first 8 bytes go on
	// the wire, in the clear. Empty: no authentication.
	Password string

	// NoPreempt leaves the addresses with a living router of lower priority. The
	// owner preempts all the same (RFC 9568, Section 6.1).
	NoPreempt bool
	// PreemptDelay is how long a router of lower priority is left alone after it
	// was first heard. Default 0.
	PreemptDelay time.Duration

	// RankDelay is added to the down interval for each router that was last heard
	// with our own priority and would win the tie, twice at most. Default a
	// hundredth of Interval, in version 2 10ms; negative: none, as RFC 9568 has it.
	RankDelay time.Duration

	// Checksum is the form sent in version 3; every form is accepted.
	Checksum ChecksumForm

	// Lifetime is how long the addresses outlive their last renewal, in whole
	// seconds: what a killed or frozen holder leaves behind ends by then. Renewals
	// come with the adverts. Default: the larger of 3s and the longest down
	// interval rounded up plus 1s.
	Lifetime time.Duration

	Tracks []Track // what the priority depends on
}

// withDefaults returns a copy that shares nothing with the caller's.
func (c Config) withDefaults() Config {
	if c.Version == 0 {
		c.Version = 3
	}
	if c.Priority == 0 {
		c.Priority = 100
	}
	if c.Interval == 0 {
		c.Interval = time.Second
	}
	if c.MinTTL == 0 {
		c.MinTTL = 255
	}
	if c.Lifetime == 0 {
		c.Lifetime = defaultLifetime(c.Version, c.Interval)
	}
	c.Addrs = slices.Clone(c.Addrs)
	c.Peers = slices.Clone(c.Peers)
	c.Tracks = slices.Clone(c.Tracks)
	return c
}

// ConfigError is a setting that can't be used. [NewMachine], [NewInstance],
// [NewAddresses], [NewAnnouncer] and [NewHolder] return one for each such setting,
// joined.
type ConfigError struct {
	Field string // name of the field in the struct that it was set in
	Err   error  // its value, what is wrong and what to do
}

// Error tells value, fault and remedy.
func (e *ConfigError) Error() string { return "vrrp: " + e.Err.Error() }

// Unwrap returns what is wrong.
func (e *ConfigError) Unwrap() error { return e.Err }

// check returns every fault, each naming its field and the remedy.
func (c Config) check() error {
	var errs []error
	fault := func(field, format string, args ...any) {
		errs = append(errs, &ConfigError{field, fmt.Errorf(format, args...)})
	}
	if c.VRID == 0 {
		fault("VRID", "VRID 0: must be 1 to 255")
	}
	if c.Version != 2 && c.Version != 3 {
		fault("Version", "version %d: must be 2 or 3", c.Version)
	} else if err := checkInterval(c.Version, c.Interval); err != nil {
		fault("Interval", "%w", err)
	}
	if !c.Source.Is4() {
		fault("Source", "source %v: needs an IPv4 address of our own", c.Source)
	}
	if len(c.Addrs) == 0 || len(c.Addrs) > 255 {
		fault("Addrs", "%d virtual addresses: needs 1 to 255", len(c.Addrs))
	}
	for _, a := range c.Addrs {
		if !a.Is4() {
			fault("Addrs", "virtual address %v: must be IPv4; IPv6 is not implemented", a)
		} else if a == c.Source && c.Priority != PriorityOwner {
			fault("Addrs", "virtual address %v: is also the source; only an owner (priority 255) may own it", a)
		}
	}
	switch {
	case len(c.Peers) == 0 && !c.Multicast:
		fault("Peers", "no peers: list the other routers for unicast, or set Multicast")
	case len(c.Peers) > 0 && c.Multicast:
		fault("Peers", "peers and Multicast: choose one")
	case len(c.Peers) > maxPeers:
		fault("Peers", "%d peers: must be at most %d", len(c.Peers), maxPeers)
	}
	for i, p := range c.Peers {
		switch {
		case !p.Is4():
			fault("Peers", "peer %v: must be IPv4; IPv6 is not implemented", p)
		case p == c.Source:
			fault("Peers", "peer %v: is our own source; list only the others", p)
		case slices.Contains(c.Peers[:i], p):
			fault("Peers", "peer %v: listed twice", p)
		}
	}
	if c.Version == 3 && c.Password != "" {
		fault("Password", "password: version 3 has none; use version 2 or leave it out")
	}
	if c.PreemptDelay < 0 {
		fault("PreemptDelay", "preempt delay %v: must not be negative", c.PreemptDelay)
	}
	if c.RankDelay > c.Interval {
		fault("RankDelay", "rank delay %v: must not be above the interval %v", c.RankDelay, c.Interval)
	}
	if c.Lifetime < 2*time.Second || c.Lifetime%time.Second != 0 || c.Lifetime < 2*c.Interval {
		fault("Lifetime", "lifetime %v: must be whole seconds, at least 2s and two intervals", c.Lifetime)
	}
	if c.Checksum > ChecksumLegacy {
		fault("Checksum", "checksum form %d: unknown", c.Checksum)
	}
	if err := checkTracks(c.Tracks); err != nil {
		fault("Tracks", "%w", err)
	}
	return errors.Join(errs...)
}

// Warnings returns what is legal and probably not meant, one line each.
func (c Config) Warnings() []string {
	c = c.withDefaults()
	var out []string
	if len(c.Password) > 8 {
		out = append(out, fmt.Sprintf("password has %d bytes: only the first 8 go on the wire, %q",
			len(c.Password), c.Password[:8]))
	}
	if c.Interval < 100*time.Millisecond {
		out = append(out, fmt.Sprintf("interval %v: below 100ms a busy machine loses the address without being dead", c.Interval))
	}
	weighted := false
	for _, t := range c.Tracks {
		if t.Weight == 0 {
			weighted = false
			break
		}
		weighted = true
	}
	if c.NoPreempt && weighted {
		out = append(out, "no preemption with weighted tracks only: a sick but living holder keeps the address; give one track weight 0")
	}
	return out
}

// auth returns what goes into the authentication fields.
func (c Config) auth() (AuthType, [8]byte) {
	var data [8]byte
	if c.Password == "" {
		return AuthNone, data
	}
	copy(data[:], c.Password)
	return AuthPass, data
}
