package health

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func local(t testing.TB, c LocalConfig) *Local {
	l, err := NewLocal(c)
	require.NoError(t, err)
	return l
}

// calm returns a Local with score 0 at second 0, which can't recover again before
// second 1.
func calm(t testing.TB, c LocalConfig) *Local {
	l := local(t, c)
	for s := -120.0; s <= 0; s++ {
		l.Good(at(s))
	}
	require.Equal(t, 0, l.At(at(0)).Score)
	return l
}

func TestNewObserverTrustsItselfStepByStep(t *testing.T) {
	l := local(t, LocalConfig{Max: 3, Block: 2})
	require.Equal(t, LocalStatus{Score: 3, Detail: "nothing heard of myself"}, l.At(at(0)))
	for i, want := range []int{3, 2, 1, 0, 0} {
		l.Good(at(float64(i)))
		require.Equal(t, LocalStatus{want, want < 2, at(float64(i) + 15), ""}, l.At(at(float64(i))))
	}
}

func TestDoubtsRaiseGoodNewsLowers(t *testing.T) {
	l := calm(t, LocalConfig{})
	require.True(t, l.At(at(0)).MayAccuse)
	l.Raise(at(0), OwnError)
	require.True(t, l.At(at(0)).MayAccuse, "one is an accident")
	l.Raise(at(0), MissedSelfProbe)
	require.Equal(t, LocalStatus{2, false, at(15), "last doubt: missed self-probe"}, l.At(at(0)))
	for range 1000 {
		l.Raise(at(0), Refuted)
	}
	require.Equal(t, 7, l.At(at(0)).Score)

	for range 1000 {
		l.Good(at(0.5))
	}
	require.Equal(t, 7, l.At(at(0.5)).Score, "a thousand good probes in one moment are one moment")
	for range 1000 {
		l.Good(at(1))
	}
	require.Equal(t, 6, l.At(at(1)).Score)
	require.Equal(t, "last doubt: refuted", l.At(at(1)).Detail)
}

// A stalled observer doubts itself by as much as it was stalled.
func TestLateTicks(t *testing.T) {
	for _, tc := range []struct {
		name string
		late float64
		want int
	}{
		{"early", -1, 0}, {"in time", 0, 0}, {"less than a period", 0.999, 0},
		{"a period", 1, 1}, {"four and a half", 4.5, 4}, {"an hour", 3600, 7},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := calm(t, LocalConfig{Lease: 2 * time.Hour})
			l.Tick(at(tc.late), at(0), time.Second)
			require.Equal(t, tc.want, l.At(at(tc.late)).Score)
		})
	}
	l := calm(t, LocalConfig{})
	l.Raise(at(0), OwnError)
	for s := range 100 {
		l.Tick(at(float64(s)), at(float64(s)), time.Second)
	}
	require.Equal(t, 1, l.At(at(100)).Score, "a process that ticks is not a process that works")
	l.Tick(at(100), at(99), 0)
	require.Equal(t, 7, l.At(at(100)).Score, "a bad period does no harm")
}

// Trust is a lease too: an observer that does nothing does not know that it is well.
func TestTrustExpires(t *testing.T) {
	l := calm(t, LocalConfig{})
	require.Equal(t, 0, l.At(at(14.9)).Score)
	require.Equal(t, LocalStatus{Score: 7, Detail: "nothing heard of myself any more"}, l.At(at(15)))
	l.Good(at(20))
	require.Equal(t, 7, l.At(at(20)).Score, "and it comes back step by step")
	l.Good(at(21))
	require.Equal(t, 6, l.At(at(21)).Score)
}

func TestSuspendedObserverDoubtsItself(t *testing.T) {
	l := calm(t, LocalConfig{})
	l.Suspended(at(0), 0)
	require.Equal(t, 0, l.At(at(0)).Score)
	l.Suspended(at(0), time.Second)
	require.Equal(t, 7, l.At(at(0)).Score)
	require.False(t, l.At(at(0)).MayAccuse)
}

func TestStretch(t *testing.T) {
	l := calm(t, LocalConfig{})
	require.Equal(t, 5*time.Second, l.Stretch(at(0), 5*time.Second))
	l.Raise(at(0), OwnError)
	l.Raise(at(0), OwnError)
	require.Equal(t, 15*time.Second, l.Stretch(at(0), 5*time.Second))
	require.Equal(t, time.Duration(math.MaxInt64), l.Stretch(at(0), math.MaxInt64/2))
	require.Equal(t, 40*time.Second, l.Stretch(at(99), 5*time.Second))
}

func TestOldNewsDoesNotShortenTheLease(t *testing.T) {
	l := calm(t, LocalConfig{})
	l.Raise(at(0), OwnError)
	l.Raise(at(-5), OwnError)
	require.Equal(t, at(15), l.At(at(0)).ValidUntil)
	l.Good(at(0.5))
	require.Equal(t, 2, l.At(at(0.5)).Score, "nor the way back")
}

func TestLocalConfigFaults(t *testing.T) {
	for _, tc := range []struct {
		name   string
		config LocalConfig
		want   string
	}{
		{"max", LocalConfig{Max: 101}, "health: Max is 101: want 1 to 100"},
		{"block", LocalConfig{Max: 3, Block: 4}, "health: Block is 4: want 1 to 3, which is Max"},
		{"negative block", LocalConfig{Block: -1}, "health: Block is -1: want 1 to 7, which is Max"},
		{"recovery", LocalConfig{Recovery: 1}, "health: Recovery is 1ns: want 1ms to 24h0m0s"},
		{"lease", LocalConfig{Recovery: time.Minute, Lease: time.Second}, "health: Lease is 1s: want 1m0s, which is Recovery, to 24h0m0s"},
		{"all", LocalConfig{Max: -1, Recovery: -1}, "health: Max is -1: want 1 to 100\nhealth: Recovery is -1ns: want 1ms to 24h0m0s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := NewLocal(tc.config)
			require.ErrorIs(t, err, ErrConfig)
			require.EqualError(t, err, tc.want)
		})
	}
	require.Equal(t, 1, local(t, LocalConfig{Max: 1}).config.Block)
	require.Equal(t, time.Hour, local(t, LocalConfig{Recovery: time.Hour}).config.Lease)
	require.Equal(t, "late tick", LateTick.String())
	require.Equal(t, "doubt(9)", Doubt(9).String())
}
