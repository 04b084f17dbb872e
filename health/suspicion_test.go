package health

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func suspicion(t testing.TB, c SuspicionConfig) *Suspicion {
	s, err := NewSuspicion(c)
	require.NoError(t, err)
	return s
}

// The formula by hand: Min 2 s, Max 30 s, 3 confirmations.
// After 1: 30 - 28*log(2)/log(4) = 16. After 2: 30 - 28*log(3)/log(4) = 7.810. After 3: 2.
func TestConfirmationsShorten(t *testing.T) {
	s := suspicion(t, SuspicionConfig{Min: 2 * time.Second, Max: 30 * time.Second, Confirmations: 3})
	require.True(t, s.Deadline().IsZero())
	require.False(t, s.Confirmed(at(1e6)), "nobody suspects")
	for i, want := range []float64{30, 16, 7.810, 2} {
		require.True(t, s.Suspect(at(0), fmt.Sprint("observer", i)))
		require.InDelta(t, want, s.Deadline().Sub(at(0)).Seconds(), 0.001, "%d", i)
		require.False(t, s.Suspect(at(0), fmt.Sprint("observer", i)), "each counts once")
		require.False(t, s.Suspect(at(0), "observer0"), "also the first")
		require.InDelta(t, want, s.Deadline().Sub(at(0)).Seconds(), 0.001, "%d", i)
	}
	require.False(t, s.Suspect(at(0), "one more"))
	require.Equal(t, at(2), s.Deadline())
	require.False(t, s.Confirmed(at(1.999)))
	require.True(t, s.Confirmed(at(2)))
}

func TestLateConfirmationEndsItAtOnce(t *testing.T) {
	s := suspicion(t, SuspicionConfig{Min: 2 * time.Second, Max: 30 * time.Second, Confirmations: 1})
	s.Suspect(at(0), "a")
	require.True(t, s.Suspect(at(10), "b"))
	require.Equal(t, at(10), s.Deadline(), "not in the past")
	require.False(t, s.Suspect(at(11), "c"), "it is over")
}

func TestUnconfirmedSuspicion(t *testing.T) {
	s := suspicion(t, SuspicionConfig{})
	s.Suspect(at(0), "a")
	require.Equal(t, at(4), s.Deadline(), "nobody else is there to confirm")
	require.False(t, s.Suspect(at(0), "b"))

	s = suspicion(t, SuspicionConfig{Confirmations: 2})
	s.Suspect(at(0), "a")
	require.Equal(t, at(24), s.Deadline())
	require.False(t, s.Suspect(at(24), "b"), "too late to confirm")
}

func TestRefute(t *testing.T) {
	s := suspicion(t, SuspicionConfig{Confirmations: 1})
	require.False(t, s.Refute())
	s.Suspect(at(0), "a")
	s.Suspect(at(0), "b")
	require.True(t, s.Refute())
	require.False(t, s.Confirmed(at(100)))
	require.True(t, s.Suspect(at(100), "b"), "the next one is another")
	require.Equal(t, at(124), s.Deadline())
}

func TestSuspendedObserverGivesTheSuspectTime(t *testing.T) {
	s := suspicion(t, SuspicionConfig{})
	s.Suspended(at(0), time.Hour)
	require.True(t, s.Deadline().IsZero())
	s.Suspect(at(0), "a")
	s.Suspended(at(3), 0)
	require.Equal(t, at(4), s.Deadline())
	s.Suspended(at(3), time.Hour)
	require.Equal(t, at(7), s.Deadline())
}

func TestSuspicionMin(t *testing.T) {
	for _, tc := range []struct {
		observers int
		interval  time.Duration
		want      time.Duration
	}{
		{-1, time.Second, 4 * time.Second}, {0, time.Second, 4 * time.Second}, {10, time.Second, 4 * time.Second},
		{100, time.Second, 8 * time.Second}, {1000, 100 * time.Millisecond, 1200 * time.Millisecond},
		{10, 0, 0}, {10, -1, 0}, {math.MaxInt, math.MaxInt64, maxInterval},
	} {
		require.Equal(t, tc.want, SuspicionMin(tc.observers, tc.interval), "%d, %v", tc.observers, tc.interval)
	}
}

func TestSuspicionConfigFaults(t *testing.T) {
	for _, tc := range []struct {
		name   string
		config SuspicionConfig
		want   string
	}{
		{"min", SuspicionConfig{Min: 1}, "health: Min is 1ns: want 1ms to 24h0m0s"},
		{"max below min", SuspicionConfig{Min: time.Minute, Max: time.Second}, "health: Max is 1s: want 1m0s, which is Min, to 144h0m0s"},
		{"confirmations", SuspicionConfig{Confirmations: -1}, "health: Confirmations is -1: want 0 to 1000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := NewSuspicion(tc.config)
			require.ErrorIs(t, err, ErrConfig)
			require.EqualError(t, err, tc.want)
		})
	}
	suspicion(t, SuspicionConfig{Min: maxInterval})
}
