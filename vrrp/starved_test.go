package vrrp_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/vrrp"
)

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
	t.Run("and again, after it was heard", func(t *testing.T) {
		r := started(t, nil)
		for i := range 3 {
			r.hear(highAddr, 100)
			r.after(30 * time.Second)
			r.Advance(r.now)
			require.Equal(t, vrrp.Backup, r.state())
			require.EqualValues(t, i+1, r.Stats().Starved)
		}
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
		require.EqualValues(t, 1, r.Stats().Starved)
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
	t.Run("from the instant on at which an equal takes over", func(t *testing.T) {
		r := active(t, nil)
		r.after(3734375 * time.Microsecond)
		r.Advance(r.now)
		require.Equal(t, vrrp.Backup, r.state())
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
