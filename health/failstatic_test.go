package health

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func failStatic(t testing.TB, c FailStaticConfig) *FailStatic {
	f, err := NewFailStatic(c)
	require.NoError(t, err)
	return f
}

// on and off are statuses found at a second; off is proven.
func on(second, length float64) Status {
	return Status{Online, at(second), at(second + length), Reason{Passing, "ok"}}
}

func off(second float64) Status {
	return Status{Offline, at(second), at(second + 1000), Reason{Failed, "refused"}}
}

// guardOf returns a guard of n targets, 0 to n-1, that are Online since second 0.
func guardOf(t testing.TB, c FailStaticConfig, n int) *FailStatic {
	f := failStatic(t, c)
	for i := range n {
		f.Observe(at(0), fmt.Sprint(i), on(0, 1000))
	}
	return f
}

func frozen(f *FailStatic, now time.Time) bool {
	_, frozen := f.Freeze(now)
	return frozen
}

// A mass failure is not believed, then somebody finds out that it is true.
func TestMassFailureWithRelease(t *testing.T) {
	f := guardOf(t, FailStaticConfig{}, 6)
	for i := range 3 {
		f.Observe(at(10+float64(i)), fmt.Sprint(i), off(10))
	}
	s, _ := f.At(at(12), "0")
	require.Equal(t, off(10), s, "half of them may be true")
	f.Observe(at(13), "3", off(13))
	freeze, is := f.Freeze(at(13))
	require.True(t, is)
	require.Equal(t, Freeze{at(13), at(73), "4 of 6 targets turned bad within 20s"}, freeze)
	for _, key := range []string{"0", "3"} {
		s, _ = f.At(at(13), key)
		require.Equal(t, Online, s.State, "also those that had been believed")
		require.Equal(t, at(0), s.Since)
		require.Equal(t, at(73), s.ValidUntil)
		require.Equal(t, Frozen, s.Reason.Code)
	}
	require.Equal(t, "frozen: 4 of 6 targets turned bad within 20s; found is offline, failed: refused", s.Reason.String())
	s, _ = f.At(at(13), "5")
	require.Equal(t, on(0, 1000), s, "what is found online is not frozen")
	f.Observe(at(14), "4", off(14))
	s, _ = f.At(at(14), "4")
	require.Equal(t, Frozen, s.Reason.Code, "nor believed while the freeze lasts")

	require.True(t, f.Release(at(20)))
	require.False(t, f.Release(at(20)))
	f.Advance(at(20))
	for i := range 5 {
		s, _ = f.At(at(20), fmt.Sprint(i))
		require.Equal(t, Offline, s.State, "all is believed, and does not freeze again")
	}
}

// Fail-static must itself expire, with nobody's doing.
func TestFreezeEnds(t *testing.T) {
	f := guardOf(t, FailStaticConfig{Hold: 10 * time.Second}, 5)
	for i := range 5 {
		f.Observe(at(1), fmt.Sprint(i), off(1))
	}
	s, _ := f.At(at(10.999), "4")
	require.Equal(t, Online, s.State)
	s, _ = f.At(at(11), "4")
	require.Equal(t, off(1), s)
	f.Advance(at(11))
	require.False(t, frozen(f, at(11)), "the same losses do not prolong it")
	for i := range 5 { // back, and gone again
		f.Observe(at(12), fmt.Sprint(i), on(12, 100))
		f.Observe(at(13), fmt.Sprint(i), off(13))
	}
	require.True(t, frozen(f, at(13)), "new ones begin another")
}

// https://github.com/kubernetes/kubernetes/issues/121793: when everything expires at
// once it is the store, or me.
func TestMassExpiryFreezes(t *testing.T) {
	f := failStatic(t, FailStaticConfig{})
	for i := range 6 {
		f.Observe(at(0), fmt.Sprint(i), on(0, 30))
	}
	s, _ := f.At(at(30), "0")
	require.Equal(t, Status{Since: at(30), Reason: Reason{Expired, "ok"}}, s, "no sweep, no freeze, but never a stale online")
	f.Advance(at(35))
	freeze, is := f.Freeze(at(35))
	require.True(t, is)
	require.Equal(t, Freeze{at(30), at(90), "6 of 6 targets turned bad within 20s"}, freeze, "from when it happened, not from when it was noticed")
	s, _ = f.At(at(35), "0")
	require.Equal(t, Frozen, s.Reason.Code)
	f.Advance(at(200))
	s, _ = f.At(at(200), "0")
	require.Equal(t, Unknown, s.State)
}

func TestLateSweepFindsAFreezeThatIsOver(t *testing.T) {
	f := failStatic(t, FailStaticConfig{})
	for i := range 6 {
		f.Observe(at(0), fmt.Sprint(i), on(0, 30))
	}
	f.Advance(at(90))
	require.False(t, frozen(f, at(90)))
}

// Losses of an expiry that nobody has noticed yet are in a freeze all the same.
func TestUnnoticedExpiryInAFreeze(t *testing.T) {
	f := guardOf(t, FailStaticConfig{}, 6)
	f.Observe(at(0), "short", on(0, 12))
	for i := range 5 {
		f.Observe(at(10), fmt.Sprint(i), off(10))
	}
	s, _ := f.At(at(12), "short")
	require.Equal(t, Frozen, s.Reason.Code)
	require.Equal(t, at(0), s.Since)
}

func TestWhatFreezes(t *testing.T) {
	rack := func(key string) string { return key[:1] }
	for _, tc := range []struct {
		name   string
		config FailStaticConfig
		online []string
		lost   []string
		want   bool
	}{
		{"two of three is plausible", FailStaticConfig{}, []string{"a", "b", "c"}, []string{"a", "b"}, false},
		{"all four, too small a set", FailStaticConfig{}, []string{"a", "b", "c", "d"}, []string{"a", "b", "c", "d"}, false},
		{"all four, if wanted", FailStaticConfig{Least: 4}, []string{"a", "b", "c", "d"}, []string{"a", "b", "c", "d"}, true},
		{"two of two with another count", FailStaticConfig{Least: 2, Count: 2}, []string{"a", "b"}, []string{"a", "b"}, true},
		{"less than the count", FailStaticConfig{Percent: 1}, []string{"a", "b", "c", "d", "e"}, []string{"a", "b"}, false},
		{"exactly half", FailStaticConfig{}, []string{"a", "b", "c", "d", "e", "f"}, []string{"a", "b", "c"}, false},
		{"more than half", FailStaticConfig{}, []string{"a", "b", "c", "d", "e"}, []string{"a", "b", "c"}, true},
		{"a whole rack, most of all", FailStaticConfig{Domain: rack},
			[]string{"a1", "a2", "a3", "a4", "b1", "b2"}, []string{"a1", "a2", "a3", "a4"}, false},
		{"a rack and one more", FailStaticConfig{Domain: rack},
			[]string{"a1", "a2", "a3", "a4", "b1", "b2"}, []string{"a1", "a2", "a3", "a4", "b1"}, false},
		{"all racks", FailStaticConfig{Domain: rack},
			[]string{"a1", "a2", "a3", "a4", "b1", "b2"}, []string{"a1", "a2", "a3", "a4", "b1", "b2"}, true},
		{"two racks of three", FailStaticConfig{Domain: rack},
			[]string{"a1", "a2", "b1", "b2", "c1"}, []string{"a1", "a2", "b1", "b2"}, true},
		{"in whatever order, one rack may be dead", FailStaticConfig{Domain: rack},
			[]string{"a1", "a2", "a3", "a4", "b1", "b2", "b3", "b4", "b5", "b6"}, []string{"b1", "b2", "b3", "a1", "a2", "a3", "a4"}, false},
		{"the only rack", FailStaticConfig{Domain: rack},
			[]string{"a1", "a2", "a3", "a4", "a5"}, []string{"a1", "a2", "a3", "a4", "a5"}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := failStatic(t, tc.config)
			for _, key := range tc.online {
				f.Observe(at(0), key, on(0, 100))
			}
			for _, key := range tc.lost {
				f.Observe(at(1), key, off(1))
			}
			require.Equal(t, tc.want, frozen(f, at(1)))
		})
	}
}

func TestWindowPasses(t *testing.T) {
	f := guardOf(t, FailStaticConfig{Window: 10 * time.Second}, 6)
	for i := range 6 {
		f.Observe(at(float64(6*i)), fmt.Sprint(i), off(float64(6*i)))
		require.False(t, frozen(f, at(float64(6*i))), "slowly, one after the other")
	}
	// Lost before the Window: no part of the freeze.
	f = guardOf(t, FailStaticConfig{Window: 10 * time.Second}, 7)
	f.Observe(at(1), "0", off(1))
	for i := 1; i < 7; i++ {
		f.Observe(at(11), fmt.Sprint(i), off(11))
	}
	s, _ := f.At(at(11), "0")
	require.Equal(t, off(1), s)
	s, _ = f.At(at(11), "1")
	require.Equal(t, Frozen, s.Reason.Code)
}

func TestRecoveredTargetsDoNotCount(t *testing.T) {
	f := guardOf(t, FailStaticConfig{}, 6)
	for range 10 {
		for i := range 3 {
			f.Observe(at(1), fmt.Sprint(i), off(1))
		}
		for i := range 3 {
			f.Observe(at(1), fmt.Sprint(i), on(1, 100))
		}
	}
	require.False(t, frozen(f, at(1)))
	require.Equal(t, tally{online: 6}, f.all)

	// 0 was lost twice, and its first loss must not keep that of 1 in the Window.
	f.Observe(at(0), "2", off(0))
	f.Observe(at(1), "0", off(1))
	f.Observe(at(2), "0", on(2, 100))
	f.Observe(at(5), "1", off(5))
	f.Observe(at(11), "0", off(11))
	f.Advance(at(25))
	require.Equal(t, tally{online: 3, lost: 1}, f.all)
}

// What ends because this machine slept is over. A guard that froze it would keep as
// true what is older than anybody allowed.
func TestSuspendIsNoMassFailure(t *testing.T) {
	f := failStatic(t, FailStaticConfig{})
	for i := range 6 {
		f.Observe(at(0), fmt.Sprint(i), on(0, 30))
	}
	f.Observe(at(0), "never probed", Status{})
	f.Suspended(at(1), 0)
	s, _ := f.At(at(1), "0")
	require.Equal(t, on(0, 30), s)
	f.Suspended(at(1), 29*time.Second)
	f.Advance(at(1))
	require.False(t, frozen(f, at(1)))
	s, _ = f.At(at(1), "0")
	require.Equal(t, Status{Since: at(1), Reason: Reason{Suspended, "ok"}}, s)
	s, _ = f.At(at(1), "never probed")
	require.Equal(t, Status{}, s)

	// In a freeze neither.
	f = guardOf(t, FailStaticConfig{Hold: time.Hour}, 6)
	for _, s := range []Status{on(0, 10), off(1), on(1, 10)} {
		f.Observe(at(1), "short", s)
	}
	for i := range 5 {
		f.Observe(at(1), fmt.Sprint(i), off(1))
	}
	f.Suspended(at(1), 10*time.Second)
	require.True(t, frozen(f, at(1)))
	s, _ = f.At(at(1), "short")
	require.Equal(t, Suspended, s.Reason.Code)

	// What ended before the nap is.
	f = failStatic(t, FailStaticConfig{})
	for i := range 6 {
		f.Observe(at(0), fmt.Sprint(i), on(0, 30))
	}
	f.Suspended(at(31), time.Second)
	require.True(t, frozen(f, at(31)))

	f = guardOf(t, FailStaticConfig{}, 6)
	for i := range 5 {
		f.Observe(at(1), fmt.Sprint(i), off(1))
	}
	f.Suspended(at(1), 59*time.Second)
	require.True(t, frozen(f, at(1)))
	require.False(t, frozen(f, at(2)), "a freeze lasts no longer for a nap")
	s, _ = f.At(at(2), "5")
	require.Equal(t, at(1000-59), s.ValidUntil)
}

func TestRemoveFromGuard(t *testing.T) {
	f := failStatic(t, FailStaticConfig{Domain: func(key string) string { return key }})
	for _, key := range []string{"a", "b"} {
		f.Observe(at(0), key, on(0, 10))
	}
	f.Observe(at(0), "a", off(0))
	require.True(t, f.Remove("a"))
	require.False(t, f.Remove("a"))
	_, there := f.At(at(0), "a")
	require.False(t, there)
	require.True(t, f.Remove("b"))
	require.Zero(t, f.all)
	require.Empty(t, f.domains)
}

func TestFailStaticConfigFaults(t *testing.T) {
	_, err := NewFailStatic(FailStaticConfig{Percent: 100, Count: -1, Least: -1, Window: 1, Hold: 25 * time.Hour})
	require.ErrorIs(t, err, ErrConfig)
	require.EqualError(t, err, `health: Percent is 100: want 1 to 99
health: Count is -1: want 1 to 1000000
health: Least is -1: want 1 to 1000000
health: Window is 1ns: want 1ms to 24h0m0s
health: Hold is 25h0m0s: want 1ms to 24h0m0s`)
}

// Against a second opinion that keeps the losses of each target and counts them at
// every step.
func TestFailStaticAgainstModel(t *testing.T) {
	const window, hold = 10, 7
	rapid.Check(t, func(t *rapid.T) {
		f, err := NewFailStatic(FailStaticConfig{Window: window * time.Second, Hold: hold * time.Second, Least: 4})
		require.NoError(t, err)
		n := rapid.IntRange(3, 8).Draw(t, "targets")
		online := make([]bool, n)
		lost := make([]int, n) // second of the loss that counts, -1 if none does
		for i := range lost {
			lost[i] = -1
		}
		from, until := -100, -100
		for second := range rapid.IntRange(1, 60).Draw(t, "seconds") {
			for range rapid.IntRange(0, 3).Draw(t, "inputs") {
				i := rapid.IntRange(0, n-1).Draw(t, "target")
				up := rapid.IntRange(0, 2).Draw(t, "up") > 0
				s := off(float64(second))
				if up {
					s = on(float64(second), 1000)
					lost[i] = -1
				} else if online[i] {
					lost[i] = second
				}
				if second < until {
					lost[i] = -1 // in the freeze
				}
				online[i] = up
				f.Observe(at(float64(second)), fmt.Sprint(i), s)
				bad, all := 0, 0
				for k := range n {
					recent := lost[k] >= 0 && second-lost[k] < window
					if recent {
						bad++
					}
					if recent || online[k] {
						all++
					}
				}
				if bad >= 3 && all >= 4 && 2*bad > all {
					from, until = second, second+hold
					for k := range n {
						lost[k] = -1
					}
				}
				freeze, is := f.Freeze(at(float64(second)))
				require.Equal(t, second < until, is, "second %d", second)
				if is {
					require.Equal(t, at(float64(from)), freeze.From)
				}
				require.Equal(t, online[i], f.targets[fmt.Sprint(i)].online)
			}
		}
	})
}
