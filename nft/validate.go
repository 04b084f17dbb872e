package nft

import (
	"errors"
	"fmt"
	"regexp"
	"time"
)

var tableName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)

func (o Options) validate() error {
	var faults []error
	if !tableName.MatchString(o.Table) {
		faults = append(faults, fmt.Errorf("nft: Options.Table %q: use a letter, then at most 63 letters, digits, '_' or '-'", o.Table))
	}
	if o.Priority < -199 || o.Priority > 199 {
		faults = append(faults, fmt.Errorf("nft: Options.Priority %d: use -199 to 199, after connection tracking at -200", o.Priority))
	}
	switch {
	case o.Timeout < 500*time.Millisecond || o.Timeout > 24*time.Hour:
		faults = append(faults, fmt.Errorf("nft: Options.Timeout %v: use 500ms to 24h", o.Timeout))
	case o.Timeout%time.Millisecond != 0:
		faults = append(faults, fmt.Errorf("nft: Options.Timeout %v: use whole milliseconds, the kernel's unit", o.Timeout))
	}
	return errors.Join(faults...)
}

// Validate returns all faults of the configuration, joined, or nil. Each one
// matches [ErrConfig] and names the redirect by its index, the value and the
// remedy.
func (c Config) Validate() error {
	var faults []error
	type key struct {
		addr  string
		proto Proto
		from  uint16
	}
	seen := make(map[key]int, len(c.Redirects))
	for i, r := range c.Redirects {
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Errorf("%w: Redirects[%d] %s", ErrConfig, i, fmt.Sprintf(format, args...)))
		}
		switch {
		case !r.VIP.IsValid():
			fault("has no VIP: set an IPv4 or IPv6 address")
			continue
		case r.VIP.Is4In6():
			fault("VIP %v: use the plain IPv4 form %v", r.VIP, r.VIP.Unmap())
		case r.VIP.Zone() != "":
			fault("VIP %v: leave out the zone", r.VIP)
		case r.VIP.IsUnspecified(), r.VIP.IsMulticast(), r.VIP.IsLoopback(), r.VIP.Is4() && r.VIP.As4() == [4]byte{255, 255, 255, 255}:
			fault("VIP %v: use a unicast address that other hosts can reach", r.VIP)
		}
		if r.Proto > UDP {
			fault("(%v) protocol: use TCP or UDP", r)
		}
		switch {
		case r.From == 0:
			fault("(%v) From: use a port from 1 to 65535", r)
		case r.To == 0:
			fault("(%v) To: use a port from 1 to 65535", r)
		case r.From == r.To:
			fault("(%v) redirects a port to itself: change To or leave it out", r)
		}
		k := key{r.VIP.Unmap().String(), r.Proto, r.From}
		if first, ok := seen[k]; ok {
			fault("(%v) repeats VIP, protocol and From of Redirects[%d]: keep one", r, first)
			continue
		}
		seen[k] = i
	}
	return errors.Join(faults...)
}
