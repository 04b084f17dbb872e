package health

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func flap(t testing.TB, c FlapConfig) *Flap {
	f, err := NewFlap(c)
	require.NoError(t, err)
	return f
}

// fall takes the target up and down at now.
func (f *Flap) fallAt(now time.Time) {
	f.Observe(now, Online)
	f.Observe(now, Offline)
}

func TestThirdFallSuppresses(t *testing.T) {
	f := flap(t, FlapConfig{})
	require.Equal(t, FlapStatus{}, f.At(at(0)))
	f.fallAt(at(0))
	f.fallAt(at(0))
	require.Equal(t, FlapStatus{Penalty: 2000}, f.At(at(0)), "not above")
	f.fallAt(at(0))
	s := f.At(at(0))
	require.True(t, s.Suppressed)
	require.Equal(t, at(0), s.Since)
	require.Equal(t, at(30), s.Until, "3000 halves to 750 in two half-lives of 15 s")
	require.InDelta(t, 1500, f.At(at(15)).Penalty, 0.01)
	require.True(t, f.At(at(29.999)).Suppressed)
	s = f.At(at(30))
	require.False(t, s.Suppressed)
	require.InDelta(t, 750, s.Penalty, 0.01)
	require.InDelta(t, 375, f.At(at(45)).Penalty, 0.01)
}

func TestSlowFallsAreForgiven(t *testing.T) {
	f := flap(t, FlapConfig{})
	for s := 0.0; s < 1000; s += 20 {
		f.fallAt(at(s))
		require.False(t, f.At(at(s)).Suppressed, "at %v", s)
	}
}

func TestOnlyFallsCount(t *testing.T) {
	f := flap(t, FlapConfig{})
	f.Observe(at(0), Offline)
	require.Zero(t, f.At(at(0)).Penalty, "it was never up")
	for _, s := range []State{Online, Online, Unknown, Error, Online} {
		f.Observe(at(0), s)
		require.Zero(t, f.At(at(0)).Penalty)
	}
	f.Observe(at(1), Unknown)
	f.Observe(at(1), Offline)
	require.Equal(t, 1000.0, f.At(at(1)).Penalty, "not forgotten for the pause")
	f.Observe(at(1), Offline)
	f.Observe(at(1), Error)
	f.Observe(at(1), Offline)
	require.Equal(t, 1000.0, f.At(at(1)).Penalty)
	f.fallAt(at(0.5))
	require.Equal(t, 1000.0, f.At(at(1)).Penalty, "too late to count")
}

// A target that never stops flapping is let in once in a while all the same: it
// would otherwise stay away for ever, also once it is well.
func TestSuppressionHasALimit(t *testing.T) {
	f := flap(t, FlapConfig{})
	for s := 0.0; s <= 59; s++ {
		f.fallAt(at(s))
	}
	require.Equal(t, at(2), f.At(at(59)).Since)
	require.Equal(t, at(62), f.At(at(59)).Until)
	require.InDelta(t, 750, f.At(at(62)).Penalty, 0.01, "its debts are paid")
	f.fallAt(at(62))
	require.False(t, f.At(at(62)).Suppressed)
	f.fallAt(at(63))
	require.True(t, f.At(at(63)).Suppressed)
	require.Equal(t, at(63), f.At(at(63)).Since)
}

func TestDamp(t *testing.T) {
	f := flap(t, FlapConfig{})
	online := Status{Online, at(1), at(11), Reason{Passing, "ok"}}
	require.Equal(t, online, f.Damp(at(1), online))
	for range 3 {
		f.fallAt(at(0))
	}
	require.Equal(t, Status{Offline, at(1), at(11), Reason{Damped, "penalty 2865, let in again at 750 or after 29s"}}, f.Damp(at(1), online))
	long := Status{Online, at(-50), at(100), Reason{Passing, "ok"}}
	require.Equal(t, at(30), f.Damp(at(1), long).ValidUntil, "the suppression ends, and so does what is said of it")
	require.Equal(t, at(0), f.Damp(at(1), long).Since)
	require.Equal(t, long, f.Damp(at(30), long))
	for _, s := range []Status{{}, {State: Error, ValidUntil: at(9)}, {State: Offline, ValidUntil: at(9)}} {
		require.Equal(t, s, f.Damp(at(1), s), "only Online is held back")
	}
}

func TestFlapConfigFaults(t *testing.T) {
	for _, tc := range []struct {
		name   string
		config FlapConfig
		want   string
	}{
		{"penalty", FlapConfig{Penalty: -1}, "health: Penalty is -1: want 1 to 1000000"},
		{"reuse above suppress", FlapConfig{Suppress: 100, Reuse: 101}, "health: Reuse is 101: want 1 to 100, which is Suppress"},
		{"half-life", FlapConfig{HalfLife: 1}, "health: HalfLife is 1ns: want 1ms to 24h0m0s"},
		{"limit", FlapConfig{Limit: -1}, "health: Limit is -1ns: want 1ms to 96h0m0s"},
		{"two", FlapConfig{Suppress: -1, HalfLife: -1}, "health: Suppress is -1: want 1 to 1000000\nhealth: HalfLife is -1ns: want 1ms to 24h0m0s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := NewFlap(tc.config)
			require.ErrorIs(t, err, ErrConfig)
			require.EqualError(t, err, tc.want)
		})
	}
	require.Equal(t, 10, flap(t, FlapConfig{Suppress: 10}).config.Reuse)
	_, err := NewFlap(FlapConfig{HalfLife: maxInterval})
	require.NoError(t, err, "the largest half-life has a legal limit")
}

// Whatever happens, a suppression begins with a fall, ends when it said it would
// unless a later fall prolongs it, and never lasts longer than Limit.
func TestFlapBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, err := NewFlap(FlapConfig{Limit: time.Duration(rapid.IntRange(1, 100).Draw(t, "limit")) * time.Second})
		require.NoError(t, err)
		now := epoch
		for range rapid.IntRange(1, 60).Draw(t, "inputs") {
			now = now.Add(time.Duration(rapid.IntRange(0, 8000).Draw(t, "pause")) * time.Millisecond)
			before := f.At(now)
			s := rapid.SampledFrom([]State{Online, Offline, Unknown, Error}).Draw(t, "state")
			f.Observe(now, s)
			after := f.At(now)
			if s != Offline {
				require.Equal(t, before, after)
			}
			if !after.Suppressed {
				require.LessOrEqual(t, after.Penalty, 2000.0)
				continue
			}
			require.LessOrEqual(t, after.Until.Sub(after.Since), f.config.Limit)
			require.True(t, f.At(after.Until.Add(-1)).Suppressed)
			require.False(t, f.At(after.Until).Suppressed)
			if before.Suppressed {
				require.Equal(t, before.Since, after.Since)
				require.False(t, after.Until.Before(before.Until))
			} else {
				require.Equal(t, now, after.Since)
			}
		}
	})
}
