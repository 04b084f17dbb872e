package vrrp_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/vrrp"
)

const ms = time.Millisecond

// One subtest for each clause of RFC 9568, in its order. The tests use version 2
// timing (RFC 3768) unless the clause is about version 3.
func TestRFC9568(t *testing.T) {
	v3 := func(c *vrrp.Config) { c.Version, c.Password = 3, "" }

	t.Run("5.1.1.3 TTL other than 255 is discarded", func(t *testing.T) {
		r := started(t, nil)
		pkt := wrapIPv4(t, r.Machine.Advert(100), highAddr, ownAddr, 254)
		require.Equal(t, vrrp.DiscardTTL, r.Receive(r.now, pkt))
		require.EqualValues(t, 1, r.Stats().Discarded(vrrp.DiscardTTL))
	})

	t.Run("6.1 Skew_Time and Active_Down_Interval", func(t *testing.T) {
		tests := []struct {
			name     string
			version  uint8
			priority uint8
			interval time.Duration
			want     time.Duration
		}{
			{"v2, 68, 1 s", 2, 68, time.Second, 3734375 * time.Microsecond},
			{"v2, 68, 2 s: skew does not grow", 2, 68, 2 * time.Second, 6734375 * time.Microsecond},
			{"v3, 90, 100 ms", 3, 90, 100 * ms, 364843750},
			{"v3, 90, 10 ms", 3, 90, 10 * ms, 36484375},
			{"v3, 254, 1 s", 3, 254, time.Second, 3007812500},
			{"v3, 1, 40.95 s: nothing overflows", 3, 1, 40950 * ms, 3*40950*ms + 255*40950*ms/256},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				r := started(t, func(c *vrrp.Config) {
					c.Version, c.Priority, c.Interval = tt.version, tt.priority, tt.interval
					if tt.version == 3 {
						c.Password = ""
					}
				})
				for r.state() == vrrp.Backup {
					r.next()
				}
				require.Equal(t, tt.want, r.now.Sub(t0))
			})
		}
	})

	t.Run("6.4.1 Initialize", func(t *testing.T) {
		t.Run("an owner becomes active at once", func(t *testing.T) {
			r := started(t, func(c *vrrp.Config) { c.Priority = 255 })
			require.Equal(t, "advert 255, Initialize>Active (owns the addresses), hold 5s, announce", r.did())
		})
		t.Run("any other waits as backup", func(t *testing.T) {
			r := started(t, nil)
			require.Equal(t, "Initialize>Backup (started)", r.did())
		})
		t.Run("not started, nothing is heard", func(t *testing.T) {
			r := newRig(t, nil)
			require.Equal(t, vrrp.Accepted, r.hear(highAddr, 100))
			r.Advance(r.now)
			require.Empty(t, r.did())
			require.True(t, r.Deadline().IsZero())
		})
		t.Run("started twice is started once", func(t *testing.T) {
			r := started(t, nil)
			r.did()
			r.Start(r.now)
			require.Empty(t, r.did())
		})
	})

	t.Run("6.4.2 Backup", func(t *testing.T) {
		t.Run("shutdown goes to Initialize in silence", func(t *testing.T) {
			r := started(t, nil)
			r.did()
			r.Shutdown(r.now)
			require.Equal(t, "Backup>Initialize (shut down)", r.did())
			r.Shutdown(r.now)
			require.Empty(t, r.did())
		})
		t.Run("the timer fires: advert, then addresses, then announcements", func(t *testing.T) {
			r := started(t, nil)
			r.did()
			r.until(3734 * ms)
			require.Equal(t, vrrp.Backup, r.state())
			r.next()
			require.Equal(t, "advert 68, Backup>Active (no advert heard for the down interval), hold 5s, announce", r.did())
		})
		t.Run("priority 0 shortens the wait to the skew", func(t *testing.T) {
			r := started(t, nil)
			r.until(time.Second)
			r.hear(highAddr, 100)
			r.after(500 * ms)
			r.did()
			r.hear(highAddr, 0)
			left := r.now
			for r.state() == vrrp.Backup {
				r.next()
			}
			require.Equal(t, 734375*time.Microsecond, r.now.Sub(left))
			require.Equal(t, "192.0.2.23 left with priority 0", r.Status(r.now).Reason.String())
		})
		for name, priority := range map[string]uint8{"a higher": 100, "an equal": 68} {
			t.Run("advert of "+name+" priority resets the timer", func(t *testing.T) {
				r := started(t, nil)
				r.until(3 * time.Second)
				require.Equal(t, vrrp.Accepted, r.hear(lowAddr, priority))
				r.until(3*time.Second + 3734*ms)
				require.Equal(t, vrrp.Backup, r.state())
				require.Equal(t, lowAddr, r.Status(r.now).Holder)
				r.next()
				require.Equal(t, vrrp.Active, r.state())
				require.Equal(t, "nothing heard of 192.0.2.21 for the down interval", r.Status(r.now).Reason.String())
			})
		}
		t.Run("advert of a lower priority is ignored with preemption", func(t *testing.T) {
			r := started(t, nil)
			for i := range 4 {
				r.until(time.Duration(i) * time.Second)
				r.hear(highAddr, 67)
			}
			r.next()
			require.Equal(t, 3734375*time.Microsecond, r.now.Sub(t0))
			require.Equal(t, vrrp.Active, r.state())
		})
		t.Run("advert of a lower priority is followed without preemption", func(t *testing.T) {
			r := started(t, func(c *vrrp.Config) { c.NoPreempt = true })
			for i := range 60 {
				r.until(time.Duration(i) * time.Second)
				r.hear(highAddr, 1)
			}
			require.Equal(t, vrrp.Backup, r.state())
		})
		t.Run("and dropped when nobody is followed any more", func(t *testing.T) {
			r := started(t, func(c *vrrp.Config) { v3(c); c.Tracks = []vrrp.Track{{"vital", 0}} })
			require.NoError(t, r.Report(r.now, "vital", true, forever))
			r.hear(highAddr, 100, func(a *vrrp.Advert) { a.Interval = 2 * time.Second })
			require.NoError(t, r.Report(r.now, "vital", false, forever))
			require.NoError(t, r.Report(r.now, "vital", true, forever))
			for r.state() == vrrp.Backup {
				r.next()
			}
			require.Equal(t, 3734375*time.Microsecond, r.now.Sub(t0))
		})
		t.Run("an owner preempts always", func(t *testing.T) {
			r := started(t, func(c *vrrp.Config) { c.Priority, c.NoPreempt = 255, true })
			r.hear(highAddr, 255) // another owner: a mistake, but not for ever
			require.Equal(t, vrrp.Backup, r.state())
			for i := range 4 {
				r.until(time.Duration(i) * time.Second)
				r.hear(lowAddr, 254)
			}
			r.next()
			require.Equal(t, vrrp.Active, r.state())
		})
		t.Run("the active router's interval is adopted", func(t *testing.T) {
			r := started(t, v3)
			r.hear(highAddr, 100, func(a *vrrp.Advert) { a.Interval = 2 * time.Second })
			for r.state() == vrrp.Backup {
				r.next()
			}
			require.Equal(t, 6*time.Second+188*2*time.Second/256, r.now.Sub(t0))
			require.EqualValues(t, 1, r.Stats().IntervalMismatch)
			r.did()
			r.next()
			require.Equal(t, time.Second, r.now.Sub(r.Status(r.now).Since), "active, it uses its own")
			r.after(time.Hour)
			r.Advance(r.now)
			require.Equal(t, r.now.Add(time.Second), r.Deadline())
			woken := r.now
			for r.state() == vrrp.Backup {
				r.next()
			}
			require.Equal(t, time.Second+734375*time.Microsecond, r.now.Sub(woken), "and after that too")
		})
	})

	t.Run("6.4.3 Active", func(t *testing.T) {
		t.Run("shutdown says goodbye with priority 0", func(t *testing.T) {
			r := active(t, nil)
			r.Shutdown(r.now)
			require.Equal(t, "advert 0, let go, Active>Initialize (shut down)", r.did())
		})
		t.Run("adverts go out each interval, and renew the addresses", func(t *testing.T) {
			r := active(t, nil)
			since := r.now
			for i := range 5 {
				r.next()
				require.Equal(t, time.Duration(i+1)*time.Second, r.now.Sub(since))
				require.Equal(t, "advert 68, hold 5s", r.did())
			}
		})
		t.Run("priority 0 is answered at once", func(t *testing.T) {
			r := active(t, nil)
			r.after(300 * ms)
			r.hear(lowAddr, 0)
			require.Equal(t, "advert 68, hold 5s", r.did())
			require.Equal(t, r.now.Add(time.Second), r.Deadline())
		})
		for name, rival := range map[string]struct {
			src      netip.Addr
			priority uint8
		}{
			"a higher priority":                      {lowAddr, 69},
			"an equal priority and a higher address": {highAddr, 68},
		} {
			t.Run(name+" makes it yield", func(t *testing.T) {
				r := active(t, nil)
				r.hear(rival.src, rival.priority)
				require.Equal(t, "let go, advert 68, Active>Backup ("+rival.src.String()+" has the better claim)", r.did())
				require.Equal(t, rival.src, r.Status(r.now).Holder)
			})
		}
		for name, rival := range map[string]struct {
			src      netip.Addr
			priority uint8
		}{
			"a lower priority":                      {highAddr, 67},
			"an equal priority and a lower address": {lowAddr, 68},
		} {
			t.Run(name+" is told at once", func(t *testing.T) {
				r := active(t, nil)
				r.after(100 * ms)
				r.hear(rival.src, rival.priority)
				require.Equal(t, "advert 68, hold 5s, announce", r.did())
				require.Equal(t, vrrp.Active, r.state())
			})
		}
	})

	t.Run("7.1 Receiving", func(t *testing.T) {
		tests := []struct {
			name string
			pkt  func(r *rig) []byte
			want vrrp.Discard
		}{
			{"wrong version", func(r *rig) []byte {
				a := r.Machine.Advert(100)
				a.Version, a.AuthType, a.Auth = 3, 0, [8]byte{}
				return wrapIPv4(t, a, highAddr, ownAddr, 255)
			}, vrrp.DiscardVersion},
			{"wrong checksum", func(r *rig) []byte {
				b := wrapIPv4(t, r.Machine.Advert(100), highAddr, ownAddr, 255)
				b[26] ^= 0x40
				return b
			}, vrrp.DiscardChecksum},
			{"wrong VRID", func(r *rig) []byte {
				a := r.Machine.Advert(100)
				a.VRID = 45
				return wrapIPv4(t, a, highAddr, ownAddr, 255)
			}, vrrp.DiscardVRID},
			{"our own packet", func(r *rig) []byte {
				return wrapIPv4(t, r.Machine.Advert(100), ownAddr, ownAddr, 255)
			}, vrrp.DiscardOwn},
			{"multicast to a unicast instance", func(r *rig) []byte {
				return wrapIPv4(t, r.Machine.Advert(100), highAddr, netip.MustParseAddr("224.0.0.18"), 255)
			}, vrrp.DiscardDestination},
			{"a source that is not a peer", func(r *rig) []byte {
				return wrapIPv4(t, r.Machine.Advert(255), netip.MustParseAddr("192.0.2.66"), ownAddr, 255)
			}, vrrp.DiscardPeer},
			{"no password", func(r *rig) []byte {
				a := r.Machine.Advert(100)
				a.AuthType, a.Auth = vrrp.AuthNone, [8]byte{}
				return wrapIPv4(t, a, highAddr, ownAddr, 255)
			}, vrrp.DiscardAuthType},
			{"the wrong password", func(r *rig) []byte {
				a := r.Machine.Advert(100)
				a.Auth[0] ^= 1
				return wrapIPv4(t, a, highAddr, ownAddr, 255)
			}, vrrp.DiscardPassword},
			{"version 2 with another interval", func(r *rig) []byte {
				a := r.Machine.Advert(100)
				a.Interval = 2 * time.Second
				return wrapIPv4(t, a, highAddr, ownAddr, 255)
			}, vrrp.DiscardInterval},
			{"nothing", func(*rig) []byte { return nil }, vrrp.DiscardTruncated},
		}
		for _, tt := range tests {
			t.Run(tt.name+" is discarded and counted", func(t *testing.T) {
				r := active(t, nil)
				require.Equal(t, tt.want, r.Receive(r.now, tt.pkt(r)))
				require.Empty(t, r.did(), "and changes nothing")
				require.EqualValues(t, 1, r.Stats().Discarded(tt.want))
				require.EqualValues(t, 1, r.Stats().DiscardedTotal())
				require.Zero(t, r.Stats().Received)
			})
		}
		t.Run("another address list is accepted and counted", func(t *testing.T) {
			r := started(t, nil)
			d := r.hear(highAddr, 100, func(a *vrrp.Advert) { a.Addrs = []netip.Addr{lowAddr, highAddr} })
			require.Equal(t, vrrp.Accepted, d)
			require.EqualValues(t, 1, r.Stats().AddrMismatches)
		})
		t.Run("the same addresses in another order are the same", func(t *testing.T) {
			r := started(t, func(c *vrrp.Config) { c.Addrs = []netip.Addr{testVIP, testVIP.Next()} })
			r.hear(highAddr, 100, func(a *vrrp.Advert) { a.Addrs = []netip.Addr{testVIP.Next(), testVIP} })
			require.Zero(t, r.Stats().AddrMismatches)
			r.hear(highAddr, 100, func(a *vrrp.Advert) { a.Addrs = []netip.Addr{testVIP, lowAddr} })
			require.EqualValues(t, 1, r.Stats().AddrMismatches)
		})
		t.Run("a multicast instance takes any source but no unicast", func(t *testing.T) {
			r := started(t, func(c *vrrp.Config) { c.Peers, c.Multicast = nil, true })
			group := netip.MustParseAddr("224.0.0.18")
			require.Equal(t, vrrp.Accepted, r.Receive(r.now, wrapIPv4(t, r.Machine.Advert(9), highAddr, group, 255)))
			require.Equal(t, vrrp.DiscardDestination, r.hear(highAddr, 9))
		})
		t.Run("a lower TTL is accepted when configured", func(t *testing.T) {
			r := started(t, func(c *vrrp.Config) { c.MinTTL = 250 })
			require.Equal(t, vrrp.Accepted, r.Receive(r.now, wrapIPv4(t, r.Machine.Advert(9), highAddr, ownAddr, 250)))
			require.Equal(t, vrrp.DiscardTTL, r.Receive(r.now, wrapIPv4(t, r.Machine.Advert(9), highAddr, ownAddr, 249)))
		})
	})
}
