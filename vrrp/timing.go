package vrrp

import (
	"net/netip"
	"time"
)

// skew is how much longer a router of lower priority waits (RFC 9568,
// Section 6.1).
func skew(version, priority uint8, interval time.Duration) time.Duration {
	return time.Duration(256-int(priority)) * skewInterval(version, interval) / 256
}

// skewInterval is what the skew is a part of. In version 2 it does not depend on
// the interval (RFC 3768, Section 6.1).
func skewInterval(version uint8, interval time.Duration) time.Duration {
	if version == 2 {
		return time.Second
	}
	return interval
}

// downInterval is the silence after which a router of this priority takes the
// active one for gone (RFC 9568, Section 6.1).
func downInterval(version, priority uint8, interval time.Duration) time.Duration {
	return 3*interval + skew(version, priority, interval)
}

// defaultLifetime is the larger of 3 s and the longest down interval, rounded up
// to whole seconds, plus one: an address never ends before another router may
// take it.
func defaultLifetime(version uint8, interval time.Duration) time.Duration {
	down := downInterval(version, 1, interval)
	return max(3*time.Second, (down+time.Second-1).Truncate(time.Second)+time.Second)
}

// rankDelay spreads routers of equal priority, so that they do not all claim the
// addresses in the same instant: one step for each router that would win the tie
// against us, as far as we know of any. By default it stays below the difference
// that 6 steps of priority make.
func (m *Machine) rankDelay() time.Duration {
	if m.cfg.RankDelay < 0 {
		return 0
	}
	step := m.cfg.RankDelay
	if step == 0 {
		// As the skew, of which it must stay a small part.
		step = skewInterval(m.cfg.Version, m.cfg.Interval) / 100
	}
	limit := 2 * step
	var delay time.Duration
	for addr, p := range m.peers {
		// The router that we wait for is the one that will not compete.
		if addr != m.downWhy.Peer && p.priority == m.priority && addr.Compare(m.cfg.Source) > 0 {
			delay += step
		}
	}
	return min(delay, limit)
}

// maxPeers bounds what forged sources can make us remember.
const maxPeers = 64

// peer is what we last heard from another router.
type peer struct {
	priority uint8
	heard    time.Time
}

func (m *Machine) remember(now time.Time, src netip.Addr, priority uint8) {
	if _, known := m.peers[src]; !known && len(m.peers) >= maxPeers {
		var oldest netip.Addr
		for addr, p := range m.peers {
			if !oldest.IsValid() || p.heard.Before(m.peers[oldest].heard) {
				oldest = addr
			}
		}
		delete(m.peers, oldest)
	}
	m.peers[src] = peer{priority: priority, heard: now}
}
