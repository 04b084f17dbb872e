package vrrp

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var holdPrefixes = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}

// holdBench drives a holdMachine by hand: at says when, now counts from zero.
type holdBench struct {
	t   *testing.T
	m   *holdMachine
	now time.Time
}

// newHoldBench has lifetime 6 s (a beat of 2 s) and margin 250 ms, and is
// started without a token.
func newHoldBench(t *testing.T) *holdBench {
	ann, err := NewAnnounceSchedule(AnnounceConfig{})
	require.NoError(t, err)
	m := &holdMachine{prefixes: holdPrefixes, announces: true, lifetime: 6 * time.Second, margin: 250 * time.Millisecond, ann: ann}
	b := &holdBench{t: t, m: m, now: announceT0}
	m.start(b.now)
	b.expect(holdFindLeft)
	m.checked(b.now, holdAction{epoch: m.epoch}, nil, nil)
	b.expect(holdNothing)
	return b
}

// expect advances and requires the kind of action.
func (b *holdBench) expect(kind holdActionKind) holdAction {
	b.t.Helper()
	a := b.m.advance(b.now)
	require.Equal(b.t, kind, a.kind, "at %v in state %v (%s)", b.now.Sub(announceT0), b.m.state, b.m.reason)
	return a
}

// settle does all that is due, every step of it without a fault, and returns
// the kinds of actions.
func (b *holdBench) settle() (done []holdActionKind) {
	b.t.Helper()
	for range 100 {
		a := b.m.advance(b.now)
		switch a.kind {
		case holdNothing:
			return done
		case holdAdd, holdRenew:
			b.m.installed(b.now, b.now, a, nil)
		case holdRemove:
			b.m.removed(b.now, a, nil)
		case holdFindMissing, holdFindLeft:
			b.m.checked(b.now, a, nil, nil)
		case holdAnnounce:
			b.m.announced(b.now, a, 1, nil)
		}
		done = append(done, a.kind)
	}
	b.t.Fatal("the machine never rests")
	return nil
}

// run goes from deadline to deadline for d, settling each.
func (b *holdBench) run(d time.Duration) (done []holdActionKind) {
	b.t.Helper()
	end := b.now.Add(d)
	for {
		due, ok := b.m.deadline()
		if !ok || due.After(end) {
			b.now = end
			return done
		}
		if due.After(b.now) {
			b.now = due
		}
		done = append(done, b.settle()...)
	}
}

func (b *holdBench) sleep(d time.Duration) { b.now = b.now.Add(d) }

func (b *holdBench) hold(d time.Duration) { b.m.hold(b.now, b.now.Add(d)) }

func (b *holdBench) state() HolderState { return b.m.status(b.now).State }

func (b *holdBench) events() (kinds []HolderEventKind) {
	for _, e := range b.m.events {
		kinds = append(kinds, e.Kind)
	}
	b.m.events = nil
	return kinds
}

func TestHoldMachineTakesAndLetsGo(t *testing.T) {
	b := newHoldBench(t)
	require.Equal(t, HolderReleased, b.state())

	b.hold(time.Minute)
	require.Equal(t, HolderTaking, b.state())
	require.Equal(t, []holdActionKind{holdAdd, holdAnnounce}, b.settle())
	require.Equal(t, HolderHeld, b.state())
	require.Equal(t, []HolderEventKind{HolderAdded, HolderAnnounced}, b.events())
	require.Equal(t, b.now.Add(6*time.Second), b.m.status(b.now).ValidUntil, "no longer than the kernel keeps it")

	// One check and one renewal a beat, the round of announcements beside.
	require.Equal(t, []holdActionKind{
		holdAnnounce, holdAnnounce, holdAnnounce, holdAnnounce,
		holdRenew, holdFindMissing, holdRenew, holdFindMissing, holdAnnounce,
	}, b.run(5*time.Second))
	require.Empty(t, b.events())

	b.m.release(b.now, "lost the election")
	require.Equal(t, HolderReleasing, b.state())
	require.False(t, b.m.mayAnnounce(b.now, b.m.epoch))
	require.Equal(t, []holdActionKind{holdRemove}, b.settle())
	st := b.m.status(b.now)
	require.Equal(t, HolderReleased, st.State)
	require.Equal(t, "lost the election", st.Reason)
	require.Equal(t, []HolderEventKind{HolderRemoved}, b.events())
	require.EqualValues(t, 6, st.Announcements)
}

// The kernel's lifetime ends before the token, for every fraction of a second
// and whether the token is renewed or runs out.
func TestHoldMachineLifetimeEndsBeforeToken(t *testing.T) {
	for rest := 300 * time.Millisecond; rest < 9*time.Second; rest += 70 * time.Millisecond {
		b := newHoldBench(t)
		b.hold(rest)
		end := b.now.Add(rest)
		removedAt, keptUntil := time.Time{}, time.Time{}
		for b.now.Before(end) {
			due, ok := b.m.deadline()
			require.True(t, ok)
			if due.After(b.now) {
				b.now = due
			}
			for a := b.m.advance(b.now); a.kind != holdNothing; a = b.m.advance(b.now) {
				switch a.kind {
				case holdAdd, holdRenew:
					require.Zero(t, a.lifetime%time.Second)
					require.GreaterOrEqual(t, a.lifetime, time.Second)
					require.False(t, b.now.Add(a.lifetime).After(end), "rest %v: %v asked at %v", rest, a.lifetime, b.now.Sub(announceT0))
					b.m.installed(b.now, b.now.Add(10*time.Millisecond), a, nil)
					require.False(t, b.m.kernelLast.After(end))
					require.False(t, b.m.kernelEnd.Before(keptUntil), "rest %v: a renewal shortened the lifetime", rest)
					keptUntil = b.m.kernelEnd
				case holdRemove:
					removedAt = b.now
					b.m.removed(b.now, a, nil)
				case holdFindMissing, holdFindLeft:
					b.m.checked(b.now, a, nil, nil)
				case holdAnnounce:
					require.True(t, b.now.Before(end.Add(-b.m.margin)))
					b.m.announced(b.now, a, 1, nil)
				}
			}
			if b.m.state == HolderReleased {
				break
			}
		}
		if rest >= time.Second+holdSlack {
			require.Equal(t, end.Add(-b.m.margin), removedAt, "rest %v", rest)
		} else {
			require.Zero(t, removedAt, "too short a token was turned into an address: %v", rest)
		}
	}
}

func TestHoldMachineToken(t *testing.T) {
	held := func(t *testing.T, token time.Duration) *holdBench {
		b := newHoldBench(t)
		b.hold(token)
		b.settle()
		require.Equal(t, HolderHeld, b.state())
		b.events()
		return b
	}
	tests := []struct {
		name string
		do   func(t *testing.T)
	}{
		{"renewed in time it goes on without a new round", func(t *testing.T) {
			b := held(t, 7*time.Second)
			for range 100 {
				for _, k := range b.run(time.Second) {
					require.NotEqual(t, holdAdd, k)
				}
				b.hold(7 * time.Second)
			}
			require.Equal(t, HolderHeld, b.state())
			require.Empty(t, b.events())
			require.EqualValues(t, 6+1, b.m.sent, "one round and one refresh")
		}},
		{"a past instant releases", func(t *testing.T) {
			b := held(t, time.Minute)
			b.hold(-time.Second)
			require.Equal(t, []holdActionKind{holdRemove}, b.settle())
			require.Contains(t, b.m.status(b.now).Reason, "the token ends in 0s")
		}},
		{"shortened it shortens the kernel's lifetime at once", func(t *testing.T) {
			b := held(t, time.Minute)
			b.sleep(10 * time.Millisecond)
			b.hold(3500 * time.Millisecond)
			due, _ := b.m.deadline()
			require.Equal(t, b.now, due)
			a := b.expect(holdRenew)
			require.Equal(t, 3*time.Second, a.lifetime)
		}},
		{"shortened below a second it releases at once", func(t *testing.T) {
			b := held(t, time.Minute)
			b.hold(900 * time.Millisecond)
			require.Equal(t, []holdActionKind{holdRemove}, b.settle())
			require.Contains(t, b.m.reason, "shortened")
		}},
		{"too short to take, then extended", func(t *testing.T) {
			b := newHoldBench(t)
			b.hold(900 * time.Millisecond)
			require.Empty(t, b.settle())
			require.Equal(t, HolderTaking, b.state())
			require.Contains(t, b.m.reason, "ends in 900ms")
			b.hold(10 * time.Second)
			require.Equal(t, []holdActionKind{holdAdd, holdAnnounce}, b.settle())
		}},
		{"running out and extended at the last moment it is renewed", func(t *testing.T) {
			b := held(t, 5*time.Second)
			b.run(4 * time.Second)
			require.Equal(t, HolderHeld, b.state())
			b.hold(10 * time.Second)
			require.Contains(t, b.settle(), holdRenew)
			require.Equal(t, b.now.Add(6*time.Second), b.m.status(b.now).ValidUntil)
		}},
		{"released and held again before the worker looked", func(t *testing.T) {
			b := held(t, time.Minute)
			old := b.m.epoch
			b.m.release(b.now, "lost")
			b.hold(time.Minute)
			require.False(t, b.m.mayAnnounce(b.now, old))
			require.Equal(t, []holdActionKind{holdAdd, holdAnnounce}, b.settle())
		}},
		{"released while the kernel was adding", func(t *testing.T) {
			b := newHoldBench(t)
			b.hold(time.Minute)
			a := b.expect(holdAdd)
			b.m.release(b.now, "lost")
			b.m.installed(b.now, b.now, a, nil)
			require.Equal(t, []holdActionKind{holdRemove}, b.settle())
			require.Equal(t, []HolderEventKind{HolderRemoved}, b.events())
		}},
		{"an addition that took long is cut back", func(t *testing.T) {
			b := newHoldBench(t)
			b.m.announces = false // or it would be due, too
			b.hold(4060 * time.Millisecond)
			a := b.expect(holdAdd)
			require.Equal(t, 4*time.Second, a.lifetime)
			begun := b.now
			b.sleep(500 * time.Millisecond) // the kernel's clock started somewhere in here
			b.m.installed(begun, b.now, a, nil)
			due, _ := b.m.deadline()
			require.Equal(t, b.now, due)
			require.Equal(t, 3*time.Second, b.expect(holdRenew).lifetime)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, tt.do)
	}
}

func TestHoldMachineFreeze(t *testing.T) {
	held := func(t *testing.T, token time.Duration) *holdBench {
		b := newHoldBench(t)
		b.hold(token)
		b.run(1500 * time.Millisecond)
		b.events()
		return b
	}
	t.Run("token ended: lets go first", func(t *testing.T) {
		b := held(t, 5*time.Second)
		b.sleep(time.Minute)
		require.Equal(t, HolderUnknown, b.state())
		require.Equal(t, []holdActionKind{holdRemove}, b.settle())
		require.Equal(t, HolderReleased, b.state())
		require.Contains(t, b.m.reason, "ago, unnoticed")
	})
	t.Run("token renewed after its end: takes again from the start", func(t *testing.T) {
		b := held(t, 5*time.Second)
		b.sleep(time.Minute)
		old := b.m.epoch
		b.hold(time.Minute)
		require.False(t, b.m.mayAnnounce(b.now, old))
		require.Equal(t, HolderTaking, b.state())
		require.Equal(t, []holdActionKind{holdAdd, holdAnnounce}, b.settle())
		require.Equal(t, []HolderEventKind{HolderAdded, HolderAnnounced}, b.events())
	})
	t.Run("token still good: adds and announces again", func(t *testing.T) {
		b := held(t, time.Hour)
		b.sleep(time.Minute)
		require.Equal(t, HolderUnknown, b.state(), "the kernel's lifetime ended")
		require.False(t, b.m.mayAnnounce(b.now, b.m.epoch))
		require.Equal(t, []holdActionKind{holdRenew, holdAnnounce}, b.settle())
		require.Equal(t, []HolderEventKind{HolderRestored, HolderAnnounced}, b.events())
		require.Equal(t, HolderHeld, b.state())
	})
	t.Run("shorter than the lifetime: announces again all the same", func(t *testing.T) {
		b := held(t, time.Hour)
		b.sleep(3 * time.Second)
		require.Equal(t, []holdActionKind{holdRenew, holdAnnounce}, b.settle())
		require.Equal(t, []HolderEventKind{HolderRestored, HolderAnnounced}, b.events())
	})
	t.Run("a little late is nothing", func(t *testing.T) {
		b := held(t, time.Hour)
		b.sleep(time.Second)
		b.settle()
		require.Empty(t, b.events())
	})
}

func TestHoldMachineForeignDeletion(t *testing.T) {
	b := newHoldBench(t)
	b.hold(time.Hour)
	b.run(10 * time.Second)
	b.events()

	b.m.suspect(b.now)
	a := b.expect(holdFindMissing)
	b.m.checked(b.now, a, holdPrefixes, nil)
	require.Equal(t, HolderTaking, b.state())
	require.Equal(t, []holdActionKind{holdRenew, holdAnnounce}, b.settle(), "the first time at once")
	require.Equal(t, []HolderEventKind{HolderLost, HolderRestored, HolderAnnounced}, b.events())

	b.m.suspect(b.now)
	a = b.expect(holdFindMissing)
	b.m.checked(b.now, a, holdPrefixes, nil)
	b.hold(time.Hour) // a renewal of the token does not break the pace
	require.Empty(t, b.settle(), "the second time not at once")
	due, _ := b.m.deadline()
	require.Equal(t, b.now.Add(b.m.pace()), due)
	b.now = due
	require.Equal(t, []holdActionKind{holdRenew, holdAnnounce}, b.settle())
}

func TestHoldMachineFaults(t *testing.T) {
	fault := errors.New("no")
	b := newHoldBench(t)
	b.hold(time.Hour)
	a := b.expect(holdAdd)
	b.m.installed(b.now, b.now, a, fault)
	require.Equal(t, HolderTaking, b.state())
	require.Equal(t, fault, b.m.status(b.now).Err)
	require.Empty(t, b.settle(), "waits")
	b.sleep(b.m.pace())
	require.Equal(t, []holdActionKind{holdAdd, holdAnnounce}, b.settle())
	require.NoError(t, b.m.status(b.now).Err)
	require.Equal(t, []HolderEventKind{HolderFault, HolderAdded, HolderAnnounced}, b.events())

	// Renewals that fail: held until the kernel's lifetime ends, not longer.
	heldUntil := b.m.status(b.now).ValidUntil
	for b.now.Before(heldUntil) {
		require.Equal(t, HolderHeld, b.state())
		due, _ := b.m.deadline()
		b.now = due
		switch a := b.m.advance(b.now); a.kind {
		case holdRenew:
			b.m.installed(b.now, b.now, a, fault)
		case holdFindMissing:
			b.m.checked(b.now, a, nil, nil)
		case holdAnnounce:
			b.m.announced(b.now, a, 1, nil)
		}
	}
	require.NotEqual(t, HolderHeld, b.state())
	require.False(t, b.m.mayAnnounce(b.now, b.m.epoch))

	// A fault of the announcer repeats the round.
	b = newHoldBench(t)
	b.hold(time.Hour)
	a = b.expect(holdAdd)
	b.m.installed(b.now, b.now, a, nil)
	a = b.expect(holdAnnounce)
	b.m.announced(b.now, a, 0, fault)
	require.Equal(t, fault, b.m.status(b.now).Err)
	b.sleep(b.m.pace())
	require.Contains(t, b.settle(), holdAnnounce)
	require.Contains(t, b.events(), HolderAnnounced)

	// A removal that fails is repeated.
	b.m.release(b.now, "lost")
	a = b.expect(holdRemove)
	b.m.removed(b.now, a, fault)
	require.Equal(t, HolderReleasing, b.state())
	require.Empty(t, b.settle())
	b.sleep(b.m.pace())
	require.Equal(t, []holdActionKind{holdRemove}, b.settle())
	require.Equal(t, HolderReleased, b.state())
}

func TestHoldMachineLink(t *testing.T) {
	b := newHoldBench(t)
	b.hold(time.Hour)
	b.run(10 * time.Second)
	sent := b.m.sent
	b.m.linkUp(b.now)
	b.run(time.Second)
	require.EqualValues(t, 5, b.m.sent-sent, "the round of the first second")

	// The interface vanishes: the addresses count as lost, adding fails, and
	// is tried at once when the interface is back.
	b.m.suspect(b.now)
	a := b.expect(holdFindMissing)
	b.m.checked(b.now, a, nil, ErrNoInterface)
	require.Equal(t, HolderTaking, b.state())
	a = b.expect(holdRenew)
	b.m.installed(b.now, b.now, a, ErrNoInterface)
	b.expect(holdNothing)
	b.m.linkUp(b.now)
	require.Equal(t, []holdActionKind{holdRenew, holdAnnounce}, b.settle())
}

func TestHoldMachineLeftBehind(t *testing.T) {
	b := newHoldBench(t)
	b.sleep(b.m.beat())
	a := b.expect(holdFindLeft)
	b.m.checked(b.now, a, holdPrefixes, nil)
	require.Equal(t, HolderReleasing, b.state())
	require.Equal(t, []holdActionKind{holdRemove}, b.settle())
	require.Equal(t, HolderReleased, b.state())
}

func TestHoldMachineReleasedExpires(t *testing.T) {
	b := newHoldBench(t)
	end := b.m.status(b.now).ValidUntil
	require.Equal(t, b.now.Add(6*time.Second), end)
	b.now = end
	st := b.m.status(b.now)
	require.Equal(t, HolderUnknown, st.State, "nobody looked for a lifetime")
	require.Equal(t, end, st.Since)
	require.Zero(t, st.ValidUntil)
	require.Contains(t, st.Reason, "released, but not renewed in time")
}

// A long lifetime makes renewals rare, but neither repairs nor the notice of a
// freeze.
func TestHoldMachineLongLifetime(t *testing.T) {
	b := newHoldBench(t)
	b.m.lifetime = 10 * time.Minute
	b.hold(time.Hour)
	b.run(10 * time.Second)
	b.events()
	due, _ := b.m.deadline()
	require.Greater(t, due.Sub(b.now), 30*time.Second, "nothing to do for long")
	b.now = due.Add(3 * time.Second)
	b.settle()
	require.Equal(t, []HolderEventKind{HolderRestored, HolderAnnounced}, b.events())

	for range 3 {
		b.m.suspect(b.now)
		a := b.expect(holdFindMissing)
		b.m.checked(b.now, a, holdPrefixes, nil)
		b.run(time.Second)
		require.Equal(t, HolderHeld, b.state(), "repaired within a second")
	}
}
