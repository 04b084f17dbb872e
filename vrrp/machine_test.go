package vrrp_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/vrrp"
)

func TestConfigFaults(t *testing.T) {
	tests := []struct {
		name string
		edit func(*vrrp.Config)
		want string
	}{
		{"VRID 0", func(c *vrrp.Config) { c.VRID = 0 }, "VRID 0: must be 1 to 255"},
		{"version 1", func(c *vrrp.Config) { c.Version = 1 }, "version 1: must be 2 or 3"},
		{"version 2 below a second", func(c *vrrp.Config) { c.Interval = 400 * ms }, "interval 400ms: version 2 carries whole seconds"},
		{"no source", func(c *vrrp.Config) { c.Source = netip.Addr{} }, "source invalid IP: needs an IPv4 address of our own"},
		{"no address", func(c *vrrp.Config) { c.Addrs = nil }, "0 virtual addresses: needs 1 to 255"},
		{"IPv6 address", func(c *vrrp.Config) { c.Addrs = []netip.Addr{netip.MustParseAddr("2001:db8::1")} }, "IPv6 is not implemented"},
		{"own address as virtual", func(c *vrrp.Config) { c.Addrs = []netip.Addr{ownAddr} }, "only an owner (priority 255) may own it"},
		{"no peers", func(c *vrrp.Config) { c.Peers = nil }, "no peers: list the other routers for unicast, or set Multicast"},
		{"peers and multicast", func(c *vrrp.Config) { c.Multicast = true }, "choose one"},
		{"itself as peer", func(c *vrrp.Config) { c.Peers = []netip.Addr{ownAddr} }, "our own source"},
		{"a peer twice", func(c *vrrp.Config) { c.Peers = []netip.Addr{lowAddr, lowAddr} }, "listed twice"},
		{"IPv6 peer", func(c *vrrp.Config) { c.Peers = []netip.Addr{netip.IPv6LinkLocalAllRouters()} }, "must be IPv4"},
		{"password in version 3", func(c *vrrp.Config) { c.Version = 3 }, "version 3 has none"},
		{"negative preempt delay", func(c *vrrp.Config) { c.PreemptDelay = -1 }, "must not be negative"},
		{"rank delay", func(c *vrrp.Config) { c.RankDelay = 2 * time.Second }, "must not be above the interval"},
		{"lifetime of a second", func(c *vrrp.Config) { c.Lifetime = time.Second }, "at least 2s and two intervals"},
		{"lifetime of a fraction", func(c *vrrp.Config) { c.Lifetime = 3500 * ms }, "must be whole seconds"},
		{"checksum", func(c *vrrp.Config) { c.Checksum = 9 }, "checksum form 9: unknown"},
		{"track without name", func(c *vrrp.Config) { c.Tracks = []vrrp.Track{{}} }, "a track needs a name"},
		{"track twice", func(c *vrrp.Config) { c.Tracks = []vrrp.Track{{Name: "a"}, {Name: "a"}} }, "names must be unique"},
		{"weight", func(c *vrrp.Config) { c.Tracks = []vrrp.Track{{Name: "a", Weight: 254}} }, "must be -253 to 253"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := baseConfig()
			tt.edit(&cfg)
			_, err := vrrp.NewMachine(cfg)
			require.ErrorContains(t, err, tt.want)
			for line := range strings.Lines(err.Error()) {
				require.True(t, strings.HasPrefix(line, "vrrp: "), line)
			}
		})
	}
	t.Run("all faults at once", func(t *testing.T) {
		_, err := vrrp.NewMachine(vrrp.Config{})
		for _, want := range []string{"VRID", "source", "virtual addresses", "peers"} {
			require.ErrorContains(t, err, want)
		}
	})
	t.Run("the caller's slices are not kept", func(t *testing.T) {
		cfg := baseConfig()
		m, err := vrrp.NewMachine(cfg)
		require.NoError(t, err)
		cfg.Addrs[0] = lowAddr
		require.Equal(t, testVIP, m.Advert(1).Addrs[0])
	})
}

func TestConfigWarnings(t *testing.T) {
	require.Empty(t, baseConfig().Warnings())
	c := baseConfig()
	c.Password = "hj4h5_api_vip" // https://github.com/kubernetes-retired/contrib/issues/460
	require.Equal(t, []string{`password has 13 bytes: only the first 8 go on the wire, "hj4h5_ap"`}, c.Warnings())
	c = baseConfig()
	c.Version, c.Password, c.Interval = 3, "", 50*ms
	require.Len(t, c.Warnings(), 1)
	c = baseConfig() // https://github.com/acassen/keepalived/issues/942
	c.NoPreempt, c.Tracks = true, []vrrp.Track{{Name: "a", Weight: 5}}
	require.Len(t, c.Warnings(), 1)
	c.Tracks = append(c.Tracks, vrrp.Track{Name: "b"})
	require.Empty(t, c.Warnings())
}

// The priorities of an OpenShift API instance as each of its causes fails alone.
func TestTrackWeights(t *testing.T) {
	r := started(t, func(c *vrrp.Config) {
		c.Priority = 40
		c.Tracks = []vrrp.Track{{"lb", 20}, {"both", 5}, {"mcs", 3}, {"disk", -10}}
	})
	report := func(name string, up bool) { require.NoError(t, r.Report(r.now, name, up, forever)) }
	priority := func() uint8 { return r.Status(r.now).Priority }
	require.EqualValues(t, 40, priority(), "nothing is granted or taken before the first report")
	report("lb", true)
	report("both", true)
	report("mcs", true)
	require.EqualValues(t, 68, priority())
	report("disk", true)
	require.EqualValues(t, 68, priority(), "a negative weight grants nothing")
	report("lb", false)
	require.EqualValues(t, 48, priority())
	report("both", false)
	require.EqualValues(t, 43, priority())
	report("lb", true)
	report("both", true)
	report("disk", false)
	require.EqualValues(t, 58, priority())
	require.ErrorIs(t, r.Report(r.now, "no such", true, forever), vrrp.ErrTrack)
	require.ErrorContains(t, r.Report(r.now, "no such", true, forever), `"no such"`)

	t.Run("clamped to 1 to 254", func(t *testing.T) {
		r := started(t, func(c *vrrp.Config) { c.Tracks = []vrrp.Track{{"a", 253}, {"b", -253}} })
		require.NoError(t, r.Report(r.now, "a", true, forever))
		require.EqualValues(t, 254, r.Status(r.now).Priority)
		require.NoError(t, r.Report(r.now, "a", false, forever))
		require.NoError(t, r.Report(r.now, "b", false, forever))
		require.EqualValues(t, 1, r.Status(r.now).Priority)
	})
	t.Run("never for an owner", func(t *testing.T) {
		r := started(t, func(c *vrrp.Config) { c.Priority, c.Tracks = 255, []vrrp.Track{{"b", -253}} })
		require.NoError(t, r.Report(r.now, "b", false, forever))
		require.EqualValues(t, 255, r.Status(r.now).Priority)
	})
}

// A report that nobody renews stops being true, without anybody sweeping.
func TestTrackNotRenewed(t *testing.T) {
	r := active(t, func(c *vrrp.Config) { c.Tracks = []vrrp.Track{{"bonus", 20}} })
	require.NoError(t, r.Report(r.now, "bonus", true, r.now.Add(500*ms)))
	require.EqualValues(t, 88, r.Status(r.now).Priority)
	require.Equal(t, r.now.Add(500*ms), r.Deadline(), "the machine asks to be called when the report ends")
	r.next()
	require.EqualValues(t, 68, r.Status(r.now).Priority)
}

// A packet that had arrived before a report ended, and is handed in after, does
// not bring the report back to life: an owner would take the addresses at once.
func TestTrackStaysExpired(t *testing.T) {
	r := started(t, func(c *vrrp.Config) { c.Priority, c.Tracks = 255, []vrrp.Track{{"vital", 0}} })
	require.NoError(t, r.Report(r.now, "vital", true, t0.Add(time.Second)))
	require.Equal(t, vrrp.Active, r.state())
	r.until(time.Second)
	require.Equal(t, vrrp.Fault, r.state())
	r.did()
	pkt := wrapIPv4(t, r.Machine.Advert(100), highAddr, ownAddr, 255)
	require.Equal(t, vrrp.Accepted, r.Receive(r.now.Add(-ms), pkt))
	require.Empty(t, r.did())
	require.Equal(t, vrrp.Fault, r.state())
}

func TestFault(t *testing.T) {
	vital := func(c *vrrp.Config) { c.Tracks = []vrrp.Track{{"vital", 0}} }
	t.Run("until the first report", func(t *testing.T) {
		r := started(t, vital)
		require.Equal(t, "Initialize>Fault (waiting for the first result of vital)", r.did())
		r.until(time.Minute)
		require.Equal(t, vrrp.Fault, r.state(), "Fault is renewed while the machine is called")
		require.NoError(t, r.Report(r.now, "vital", true, forever))
		require.Equal(t, "Fault>Backup (all required tracks are up)", r.did())
		from := r.now
		for r.state() == vrrp.Backup {
			r.next()
		}
		require.Equal(t, 3734375*time.Microsecond, r.now.Sub(from), "a whole down interval")
	})
	t.Run("a failing holder says goodbye", func(t *testing.T) {
		r := started(t, vital)
		require.NoError(t, r.Report(r.now, "vital", true, forever))
		for r.state() != vrrp.Active {
			r.next()
		}
		r.did()
		require.NoError(t, r.Report(r.now, "vital", false, forever))
		require.Equal(t, "advert 0, let go, Active>Fault (vital is down)", r.did())
		r.hear(highAddr, 0)
		r.until(time.Minute)
		require.Empty(t, r.did(), "in Fault nothing is taken over")
	})
	t.Run("a holder whose check stopped renewing says goodbye", func(t *testing.T) {
		r := started(t, vital)
		require.NoError(t, r.Report(r.now, "vital", true, t0.Add(10*time.Second)))
		r.until(9999 * ms)
		require.Equal(t, vrrp.Active, r.state())
		r.did()
		r.until(10 * time.Second)
		require.Equal(t, "advert 0, let go, Active>Fault (vital was not renewed)", r.did())
	})
	t.Run("a failing backup leaves in silence", func(t *testing.T) {
		r := started(t, vital)
		require.NoError(t, r.Report(r.now, "vital", true, forever))
		r.did()
		require.NoError(t, r.Report(r.now, "vital", false, forever))
		require.Equal(t, "Backup>Fault (vital is down)", r.did())
	})
	t.Run("the reason follows the cause", func(t *testing.T) {
		r := started(t, func(c *vrrp.Config) { c.Tracks = []vrrp.Track{{"a", 0}, {"b", 0}} })
		require.NoError(t, r.Report(r.now, "a", true, forever))
		require.Equal(t, "waiting for the first result of b", r.Status(r.now).Reason.String())
		require.NoError(t, r.Report(r.now, "b", false, forever))
		require.Equal(t, "b is down", r.Status(r.now).Reason.String())
	})
	t.Run("an owner that recovers is active at once", func(t *testing.T) {
		r := started(t, func(c *vrrp.Config) { vital(c); c.Priority = 255 })
		r.did()
		require.NoError(t, r.Report(r.now, "vital", true, forever))
		require.Contains(t, r.did(), "Fault>Active (owns the addresses)")
	})
}

// https://github.com/openshift/machine-config-operator/issues/4057: checks and
// weights change at run time without moving the address.
func TestSetTracks(t *testing.T) {
	r := active(t, func(c *vrrp.Config) { c.Tracks = []vrrp.Track{{"a", 20}} })
	require.NoError(t, r.Report(r.now, "a", true, forever))
	require.NoError(t, r.SetTracks(r.now, []vrrp.Track{{"a", 30}, {"vital", 0}}))
	require.Equal(t, vrrp.Active, r.state(), "a required track that has not reported yet stops nobody who runs")
	require.EqualValues(t, 98, r.Status(r.now).Priority, "a kept track keeps its report")
	require.Empty(t, r.did())
	require.NoError(t, r.Report(r.now, "vital", false, forever))
	require.Equal(t, vrrp.Fault, r.state())

	require.ErrorContains(t, r.SetTracks(r.now, []vrrp.Track{{"a", 1}, {"a", 2}}), `track "a": named twice`)
	require.NoError(t, r.Report(r.now, "vital", true, forever), "nothing changed by the fault")
	require.EqualValues(t, 98, r.Status(r.now).Priority)
}

// A change of priority counts for the election that is under way.
func TestPriorityShiftsTheDownTimer(t *testing.T) {
	r := started(t, func(c *vrrp.Config) { c.Tracks = []vrrp.Track{{"a", 64}} })
	r.until(2 * time.Second)
	require.NoError(t, r.Report(r.now, "a", true, forever))
	for r.state() == vrrp.Backup {
		r.next()
	}
	require.Equal(t, 3734375*time.Microsecond-250*ms, r.now.Sub(t0))
}

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

// https://github.com/acassen/keepalived/issues/2066: a machine that was not
// running does not believe the silence that it slept through.
func TestStarvedBackupDoubtsItself(t *testing.T) {
	r := started(t, nil)
	r.hear(highAddr, 100)
	r.did()
	r.after(30 * time.Second)
	r.Advance(r.now)
	require.Empty(t, r.did())
	require.Equal(t, vrrp.Backup, r.state())
	require.EqualValues(t, 1, r.Stats().Starved)

	t.Run("also when it wakes just after its down timer", func(t *testing.T) {
		r := started(t, nil)
		r.hear(highAddr, 100)
		r.after(3735 * ms) // a suspended machine receives nothing: the holder may be there
		r.Advance(r.now)
		require.Equal(t, vrrp.Backup, r.state())
		require.EqualValues(t, 1, r.Stats().Starved)
	})
	t.Run("also when it wakes just before", func(t *testing.T) {
		r := started(t, nil)
		r.hear(highAddr, 100)
		r.after(3700 * ms)
		r.Advance(r.now)
		r.next()
		require.Equal(t, vrrp.Backup, r.state())
		require.EqualValues(t, 1, r.Stats().Starved)
	})
	t.Run("but not for being a little late", func(t *testing.T) {
		r := started(t, nil)
		for r.state() == vrrp.Backup {
			r.now = r.Deadline().Add(900 * ms)
			r.Advance(r.now)
		}
		require.Zero(t, r.Stats().Starved)
	})
	t.Run("and hears the holder within an interval", func(t *testing.T) {
		r.after(900 * ms)
		r.hear(highAddr, 100)
		r.until(34 * time.Second)
		require.Equal(t, vrrp.Backup, r.state())
	})
	t.Run("or takes over after one more interval and its skew", func(t *testing.T) {
		r := started(t, nil)
		r.hear(highAddr, 100)
		r.after(30 * time.Second)
		woken := r.now
		r.Advance(r.now)
		for r.state() == vrrp.Backup {
			r.next()
		}
		require.Equal(t, 1734375*time.Microsecond, r.now.Sub(woken))
	})
	t.Run("and not for ever", func(t *testing.T) {
		r := started(t, nil)
		for range 2 { // late every time
			r.after(30 * time.Second)
			r.Advance(r.now)
		}
		require.Equal(t, vrrp.Active, r.state())
	})
}

// A router that is later every time than its interval is long is still a router:
// it takes addresses that nobody else holds, keeps them, and leaves others alone.
func TestAlwaysLate(t *testing.T) {
	fast := func(c *vrrp.Config) { c.Version, c.Password, c.Interval = 3, "", 10*ms }
	late := func(r *rig, until time.Duration, each func()) {
		for r.now.Before(t0.Add(until)) {
			each()
			r.now = r.Deadline().Add(12 * ms)
			r.Advance(r.now)
		}
	}
	r := started(t, fast)
	late(r, 10*time.Second, func() {})
	require.Equal(t, vrrp.Active, r.state())
	require.EqualValues(t, 1, r.Stats().BecameActive)

	r = started(t, fast)
	heard := t0
	late(r, 10*time.Second, func() {
		for ; !heard.After(r.now); heard = heard.Add(10 * ms) {
			r.Receive(heard, wrapIPv4(t, r.Machine.Advert(100), highAddr, ownAddr, 255))
		}
	})
	require.Zero(t, r.Stats().BecameActive)
}

// https://github.com/acassen/keepalived/issues/2235: a holder that did not run
// for longer than the others wait has lost the addresses, whatever it remembers.
func TestStarvedHolderLetsGo(t *testing.T) {
	t.Run("before it looks at what arrived meanwhile", func(t *testing.T) {
		r := active(t, nil)
		r.after(3800 * ms)
		r.hear(lowAddr, 68) // the successor, which we would beat in a duel
		require.Equal(t, "let go, Active>Backup (did not run for longer than the others wait)", r.did())
		require.Equal(t, lowAddr, r.Status(r.now).Holder)
		r.after(time.Second)
		r.Advance(r.now)
		require.Empty(t, r.did(), "the successor keeps the addresses")
	})
	t.Run("and takes them again when nobody is heard", func(t *testing.T) {
		r := active(t, nil)
		r.after(time.Hour)
		r.Advance(r.now)
		require.Equal(t, "let go, Active>Backup (did not run for longer than the others wait)", r.did())
		woken := r.now
		for r.state() == vrrp.Backup {
			r.next()
		}
		require.Equal(t, 1734375*time.Microsecond, r.now.Sub(woken))
		require.Contains(t, r.did(), "announce")
	})
	t.Run("and listens, whatever arrived while it slept", func(t *testing.T) {
		r := active(t, nil)
		slept := r.now
		r.after(10 * time.Second)
		for at := 3800 * ms; at < 10*time.Second; at += time.Second {
			pkt := wrapIPv4(t, r.Machine.Advert(10), lowAddr, ownAddr, 255) // a weaker successor
			require.Equal(t, vrrp.Accepted, r.Receive(slept.Add(at), pkt))
		}
		r.Advance(r.now)
		woken := r.now
		require.Equal(t, vrrp.Backup, r.state())
		for r.state() == vrrp.Backup {
			r.next()
		}
		require.Equal(t, 1734375*time.Microsecond, r.now.Sub(woken))
	})
	t.Run("but not after a short sleep", func(t *testing.T) {
		r := active(t, nil)
		r.after(3700 * ms)
		r.Advance(r.now)
		require.Equal(t, "advert 68, hold 5s", r.did())
	})
}

// A holder whose checks stood still with it lets go in silence: a goodbye would
// make the others drop the router that has replaced it.
func TestStarvedHolderDoesNotSayGoodbye(t *testing.T) {
	r := started(t, func(c *vrrp.Config) { c.Tracks = []vrrp.Track{{"vital", 0}} })
	require.NoError(t, r.Report(r.now, "vital", true, r.now.Add(10*time.Second)))
	r.until(5 * time.Second)
	r.did()
	r.after(20 * time.Second)
	r.Advance(r.now)
	require.Equal(t, "let go, Active>Backup (did not run for longer than the others wait), "+
		"Backup>Fault (vital was not renewed)", r.did())
}

// The same when it is stopped as the first thing after its sleep.
func TestStarvedHolderShutsDownInSilence(t *testing.T) {
	r := active(t, nil)
	r.after(20 * time.Second)
	r.Shutdown(r.now)
	require.Equal(t, "let go, Active>Backup (did not run for longer than the others wait), "+
		"Backup>Initialize (shut down)", r.did())
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

// A status that nobody renews reads Unknown, whatever the machine last was.
func TestStatusExpires(t *testing.T) {
	vital := func(c *vrrp.Config) { c.Tracks = []vrrp.Track{{"vital", 0}} }
	for name, r := range map[string]*rig{
		"Active": active(t, nil), "Backup": started(t, nil), "Fault": started(t, vital),
	} {
		s := r.Status(r.now)
		require.Equal(t, name, s.State.String())
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
	garbage := append([]byte(nil), pkt...)
	garbage[30]++
	require.Zero(t, testing.AllocsPerRun(100, func() { r.Receive(r.now, garbage) }))
}

// The bytes are a script: each three choose an input and its arguments. Whatever
// comes, the addresses are held exactly while the machine is active, and nothing
// is announced otherwise.
func FuzzMachine(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 200, 0, 2, 10, 68, 1, 50, 0, 3, 1, 0})
	f.Add([]byte{1, 255, 255, 2, 1, 0, 1, 10, 0, 2, 0, 255})
	f.Fuzz(func(t *testing.T, script []byte) {
		cfg := baseConfig()
		cfg.Tracks = []vrrp.Track{{"vital", 0}, {"bonus", 20}}
		m, err := vrrp.NewMachine(cfg)
		require.NoError(t, err)
		now := t0
		state, held := vrrp.Initialize, false
		for ; len(script) >= 3; script = script[3:] {
			a, b := script[1], script[2]
			switch script[0] % 7 {
			case 0:
				m.Start(now)
			case 1:
				now = now.Add(time.Duration(a)*10*ms + time.Duration(b)*time.Second/8)
				m.Advance(now)
				if at := m.Deadline(); state != vrrp.Initialize {
					require.True(t, at.After(now), "what is due is done: a loop would spin")
				}
			case 2:
				src := []netip.Addr{lowAddr, highAddr, ownAddr}[a%3]
				arrival := now.Add(-time.Duration(a) * 10 * ms)
				m.Receive(arrival, wrapIPv4(t, m.Advert(b), src, ownAddr, 255))
			case 3:
				name := []string{"vital", "bonus", "none"}[a%3]
				_ = m.Report(now, name, b%2 == 0, now.Add(time.Duration(b)*100*ms))
			case 4:
				if a == 1 {
					m.Shutdown(now)
				}
			case 5:
				m.Receive(now, script)
			case 6:
				if at := m.Deadline(); !at.IsZero() && at.After(now) {
					now = at
					m.Advance(now)
				}
			}
			for _, act := range m.AppendActions(nil) {
				switch act.Kind {
				case vrrp.Changed:
					require.Equal(t, state, act.From)
					state = act.To
				case vrrp.Hold:
					require.Equal(t, vrrp.Active, state)
					require.True(t, act.Until.After(now))
					held = true
				case vrrp.LetGo:
					held = false
				case vrrp.Announce:
					require.True(t, held)
				}
			}
			require.Equal(t, state == vrrp.Active, held)
			if at := m.Deadline(); state != vrrp.Initialize {
				require.False(t, at.IsZero())
			}
		}
	})
}
