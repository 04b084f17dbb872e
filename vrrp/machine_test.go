package vrrp_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/vrrp"
)

func TestPreemptDelay(t *testing.T) {
	r := started(t, func(c *vrrp.Config) { c.PreemptDelay = 10 * time.Second })
	for i := range 30 {
		r.until(time.Duration(i) * time.Second)
		if r.state() == vrrp.Active {
			break
		}
		r.hear(lowAddr, 10)
	}
	require.Equal(t, vrrp.Active, r.state())
	// Followed up to 9 s after it was first heard, ignored from 10 s on.
	require.Equal(t, 9*time.Second+3734375*time.Microsecond, r.Status(r.now).Since.Sub(t0))
}

// The delay counts anew for each time that a router of lower priority turns up.
func TestPreemptDelayStartsAnew(t *testing.T) {
	delay := func(c *vrrp.Config) {
		c.PreemptDelay, c.Tracks = 10*time.Second, []vrrp.Track{{"vital", 0}}
	}
	left := func(t *testing.T, r *rig) {
		t.Helper()
		r.did()
		from := r.now
		for r.now.Sub(from) < 9*time.Second {
			r.hear(lowAddr, 10)
			r.next()
			require.Equal(t, vrrp.Backup, r.state())
		}
	}
	heardLower := func(t *testing.T) *rig { // for 9 s
		r := started(t, delay)
		require.NoError(t, r.Report(r.now, "vital", true, forever))
		left(t, r)
		return r
	}
	t.Run("after a higher one", func(t *testing.T) {
		r := heardLower(t)
		r.hear(highAddr, 100)
		left(t, r)
	})
	t.Run("after Fault", func(t *testing.T) {
		r := heardLower(t)
		require.NoError(t, r.Report(r.now, "vital", false, forever))
		require.NoError(t, r.Report(r.now, "vital", true, forever))
		left(t, r)
	})
	t.Run("after we were active", func(t *testing.T) {
		r := heardLower(t)
		for r.state() == vrrp.Backup {
			r.next()
		}
		r.hear(highAddr, 100)
		left(t, r)
	})
}

// Peers that would win a tie are given the time to do so, if we know of any.
func TestRankDelay(t *testing.T) {
	takeover := func(t *testing.T, heard map[netip.Addr]uint8, edit func(*vrrp.Config)) time.Duration {
		r := started(t, edit)
		for src, prio := range heard {
			r.hear(src, prio) // was active once
		}
		r.after(100 * ms)
		r.hear(lowAddr, 200) // is active now, and is lost
		from := r.now
		for r.state() == vrrp.Backup {
			r.next()
		}
		return r.now.Sub(from)
	}
	down := 3734375 * time.Microsecond
	require.Equal(t, down, takeover(t, nil, nil), "nothing known")
	require.Equal(t, down+10*ms, takeover(t, map[netip.Addr]uint8{highAddr: 68}, nil), "an equal with a higher address")
	require.Equal(t, down, takeover(t, map[netip.Addr]uint8{highAddr: 67}, nil), "not an equal")
	require.Equal(t, down, takeover(t, map[netip.Addr]uint8{lowAddr: 68}, nil), "an equal with a lower address")
	require.Equal(t, down, takeover(t, map[netip.Addr]uint8{highAddr: 68},
		func(c *vrrp.Config) { c.RankDelay = -1 }), "switched off")
	more := func(c *vrrp.Config) {
		c.Peers = append(c.Peers, netip.MustParseAddr("192.0.2.24"), netip.MustParseAddr("192.0.2.25"))
	}
	require.Equal(t, down+20*ms, takeover(t, map[netip.Addr]uint8{
		highAddr: 68, netip.MustParseAddr("192.0.2.24"): 68, netip.MustParseAddr("192.0.2.25"): 68,
	}, more), "never more than two steps")

	t.Run("an equal that has left does not count", func(t *testing.T) {
		require.Equal(t, down+10*ms, takeover(t, map[netip.Addr]uint8{highAddr: 68, netip.MustParseAddr("192.0.2.24"): 0}, more))
		r := started(t, nil)
		r.hear(highAddr, 68) // was active, was preempted, and has left since
		r.hear(lowAddr, 200)
		r.hear(highAddr, 0)
		r.hear(lowAddr, 200)
		for r.state() == vrrp.Backup {
			r.next()
		}
		require.Equal(t, down, r.now.Sub(t0))
	})
	t.Run("it outweighs no difference of 6 in priority", func(t *testing.T) {
		for _, tt := range []struct {
			version  uint8
			interval time.Duration
		}{{2, time.Second}, {2, 255 * time.Second}, {3, 10 * ms}, {3, 40950 * ms}} {
			fit := func(priority uint8) func(c *vrrp.Config) {
				return func(c *vrrp.Config) {
					c.Version, c.Interval, c.Priority = tt.version, tt.interval, priority
					if more(c); tt.version == 3 {
						c.Password = ""
					}
				}
			}
			waits := takeover(t, map[netip.Addr]uint8{highAddr: 68, netip.MustParseAddr("192.0.2.24"): 68}, fit(68))
			require.Less(t, waits, takeover(t, nil, fit(62)), "version %d, %v", tt.version, tt.interval)
		}
	})
	t.Run("of forged sources the last 64 are remembered", func(t *testing.T) {
		group := netip.MustParseAddr("224.0.0.18")
		const weak, equal = 10, 68
		wait := func(t *testing.T, forged int, again bool) time.Duration {
			r := started(t, func(c *vrrp.Config) { c.Peers, c.Multicast = nil, true })
			hear := func(src netip.Addr, priority uint8) {
				r.after(time.Microsecond)
				require.Equal(t, vrrp.Accepted, r.Receive(r.now, wrapIPv4(t, r.Machine.Advert(priority), src, group, 255)))
			}
			hear(highAddr, equal)
			for i := range forged {
				hear(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), weak)
				if again {
					hear(highAddr, equal)
				}
			}
			hear(lowAddr, 200)
			hear(lowAddr, 200) // it takes no room a second time
			from := r.now
			for r.state() == vrrp.Backup {
				r.next()
			}
			return r.now.Sub(from)
		}
		require.Equal(t, down+10*ms, wait(t, 62, false))
		require.Equal(t, down, wait(t, 63, false), "the oldest makes room")
		require.Equal(t, down+10*ms, wait(t, 200, true), "and who was just heard does not")
	})
	t.Run("the lost holder does not count", func(t *testing.T) {
		r := started(t, nil)
		r.hear(highAddr, 68)
		for r.state() == vrrp.Backup {
			r.next()
		}
		require.Equal(t, down, r.now.Sub(t0))
	})
}

// https://github.com/acassen/keepalived/issues/829: a rival that cannot hear us
// is answered at most once in an interval.
func TestRivalsDoNotMakeUsFlood(t *testing.T) {
	r := active(t, nil)
	for range 1000 {
		r.after(ms)
		r.hear(lowAddr, 10)
	}
	require.LessOrEqual(t, strings.Count(r.did(), "announce"), 2)
	require.LessOrEqual(t, r.Stats().Reasserted, uint64(2))
}

// Each reaction to a peer puts off the advert that was due. The addresses, which
// end unless they are renewed, must not pay for it.
func TestReactionsRenewTheAddresses(t *testing.T) {
	for name, priority := range map[string]uint8{"goodbyes": 0, "a deaf rival's adverts": 10} {
		t.Run(name, func(t *testing.T) {
			r := active(t, nil)
			until := r.now.Add(5 * time.Second)
			for range 20 {
				r.after(time.Second)
				r.hear(lowAddr, priority)
				r.Advance(r.now)
				for _, a := range r.AppendActions(nil) {
					if a.Kind == vrrp.Hold {
						until = a.Until
					}
				}
				require.Equal(t, r.now.Add(5*time.Second), until)
			}
		})
	}
}

// https://github.com/acassen/keepalived/issues/166: the winner of a duel announces
// again, although the loser had already gone.
func TestWinnerAnnouncesAfterTheLosersLastAdvert(t *testing.T) {
	winner := active(t, nil)
	loser := active(t, func(c *vrrp.Config) { c.Source, c.Peers = lowAddr, []netip.Addr{ownAddr, highAddr} })
	loser.hear(ownAddr, 68)
	require.Equal(t, "let go, advert 68, Active>Backup (192.0.2.22 has the better claim)", loser.did())
	winner.hear(lowAddr, 68)
	require.Equal(t, "advert 68, hold 5s, announce", winner.did())
}

// The goodbye of a router that is not the holder changes nothing.
func TestGoodbyeOfAnother(t *testing.T) {
	r := started(t, nil)
	r.hear(highAddr, 100)
	before := r.Deadline()
	r.hear(lowAddr, 0)
	require.Equal(t, before, r.Deadline())
	require.Equal(t, highAddr, r.Status(r.now).Holder)

	t.Run("also when a weaker one claims the addresses in between", func(t *testing.T) {
		r := started(t, nil)
		r.hear(highAddr, 100)
		r.hear(lowAddr, 10)
		r.hear(lowAddr, 0)
		r.until(3734 * ms)
		require.Equal(t, vrrp.Backup, r.state())
		r.hear(lowAddr, 10)
		r.hear(highAddr, 0)
		require.Equal(t, "192.0.2.23 left with priority 0", func() string {
			for r.state() == vrrp.Backup {
				r.next()
			}
			return r.Status(r.now).Reason.String()
		}())
	})
}

// What a status says of the active router, in each state.
func TestStatusHolder(t *testing.T) {
	r := started(t, func(c *vrrp.Config) { c.Tracks = []vrrp.Track{{"vital", 0}} })
	holder := func() netip.Addr { return r.Status(r.now).Holder }
	require.NoError(t, r.Report(r.now, "vital", true, forever))
	r.hear(lowAddr, 10)
	require.Equal(t, lowAddr, holder(), "Backup, waiting to preempt it")
	r.hear(highAddr, 100)
	require.Equal(t, highAddr, holder(), "Backup")
	r.hear(highAddr, 0)
	require.False(t, holder().IsValid(), "it has left")
	r.hear(highAddr, 100)
	require.NoError(t, r.Report(r.now, "vital", false, forever))
	require.False(t, holder().IsValid(), "Fault")
	require.NoError(t, r.Report(r.now, "vital", true, forever))
	require.False(t, holder().IsValid(), "Backup again, nobody heard yet")
	r.hear(highAddr, 100)
	for r.state() == vrrp.Backup {
		r.next()
	}
	require.Equal(t, ownAddr, holder(), "Active")
	r.after(time.Hour)
	r.Advance(r.now)
	require.Equal(t, vrrp.Backup, r.state())
	require.False(t, holder().IsValid(), "starved")
	r.hear(highAddr, 100)
	r.Shutdown(r.now)
	require.False(t, holder().IsValid(), "Initialize")
}

// A machine that was shut down can be started again, and knows nothing of before.
func TestRestart(t *testing.T) {
	r := active(t, nil)
	r.hear(highAddr, 100)
	r.Shutdown(r.now)
	r.did()
	r.after(time.Hour)
	r.Start(r.now)
	require.Equal(t, "Initialize>Backup (started)", r.did())
	from := r.now
	for r.state() == vrrp.Backup {
		r.next()
	}
	require.Equal(t, 3734375*time.Microsecond, r.now.Sub(from))
	require.Equal(t, "no advert heard for the down interval", r.Status(r.now).Reason.String())
}

// A status that nobody renews reads Unknown, whatever the machine last was.
func TestStatusExpires(t *testing.T) {
	vital := func(c *vrrp.Config) { c.Tracks = []vrrp.Track{{"vital", 0}} }
	stopped := started(t, nil)
	stopped.Shutdown(stopped.now)
	for name, r := range map[string]*rig{
		"Active": active(t, nil), "Backup": started(t, nil), "Fault": started(t, vital), "Initialize": stopped,
	} {
		s := r.Status(r.now)
		require.Equal(t, name, s.State.String())
		if name == "Fault" || name == "Initialize" {
			require.Equal(t, r.now.Add(3*time.Second), s.ValidUntil)
		}
		require.Equal(t, s, r.Status(s.ValidUntil.Add(-1)))
		late := r.Status(s.ValidUntil)
		require.Equal(t, vrrp.Unknown, late.State, name)
		require.Equal(t, s.ValidUntil, late.Since)
		require.Equal(t, "status not renewed", late.Reason.String())
		require.False(t, late.Holder.IsValid())
	}
}

// Calls that come early, late, twice or with yesterday's time do no harm.
func TestAdvanceIsTotal(t *testing.T) {
	r := active(t, nil)
	for range 3 {
		r.Advance(r.now)
		r.Advance(t0.Add(-24 * time.Hour))
	}
	require.Empty(t, r.did())
	require.Equal(t, vrrp.Active, r.state())
}

// https://github.com/acassen/keepalived/issues/1529: only differences of the
// caller's clock count, so that its origin does not matter.
func TestClockOriginDoesNotMatter(t *testing.T) {
	run := func(origin time.Time) string {
		r := newRig(t, nil)
		r.now = origin
		r.Start(r.now)
		for range 8 {
			r.next()
		}
		return r.did()
	}
	require.Equal(t, run(t0), run(time.Unix(0, 0)))
}

func TestReceiveDoesNotAllocate(t *testing.T) {
	r := started(t, nil)
	pkt := wrapIPv4(t, r.Machine.Advert(100), highAddr, ownAddr, 255)
	require.Zero(t, testing.AllocsPerRun(100, func() { r.Receive(r.now, pkt) }))
	long := r.Machine.Advert(100)
	long.Addrs = []netip.Addr{testVIP, lowAddr, highAddr, ownAddr}
	pkt = wrapIPv4(t, long, highAddr, ownAddr, 255)
	require.Zero(t, testing.AllocsPerRun(100, func() { r.Receive(r.now, pkt) }), "more addresses than ours")
	garbage := append([]byte(nil), pkt...)
	garbage[30]++
	require.Zero(t, testing.AllocsPerRun(100, func() { r.Receive(r.now, garbage) }))
}
