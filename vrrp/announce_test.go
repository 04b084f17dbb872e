package vrrp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// announceT0 is an arbitrary instant; the pure parts know no other clock.
var announceT0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func announceSchedule(t *testing.T, c AnnounceConfig) *AnnounceSchedule {
	t.Helper()
	s, err := NewAnnounceSchedule(c)
	require.NoError(t, err)
	return s
}

// announcePlay drives the schedule by its own deadlines and returns the
// offsets at which it announced, until the given offset.
func announcePlay(s *AnnounceSchedule, until time.Duration) []time.Duration {
	var at []time.Duration
	for {
		due, ok := s.Deadline()
		if !ok || due.Sub(announceT0) > until {
			return at
		}
		if s.Advance(due) {
			at = append(at, due.Sub(announceT0))
		}
	}
}

func TestAnnounceScheduleDefault(t *testing.T) {
	s := announceSchedule(t, AnnounceConfig{})
	s.Again(announceT0)
	require.Equal(t, []time.Duration{
		0, 50 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 5 * time.Second,
		65 * time.Second, 125 * time.Second,
	}, announcePlay(s, 130*time.Second))
}

func TestAnnounceSchedule(t *testing.T) {
	short := AnnounceConfig{Schedule: []time.Duration{0, time.Second}, Refresh: 10 * time.Second}
	tests := []struct {
		name string
		do   func(t *testing.T, s *AnnounceSchedule)
		cfg  AnnounceConfig
	}{
		{"a new one is stopped", func(t *testing.T, s *AnnounceSchedule) {
			_, ok := s.Deadline()
			require.False(t, ok)
			require.False(t, s.Running())
			require.False(t, s.Advance(announceT0))
		}, short},
		{"early calls change nothing", func(t *testing.T, s *AnnounceSchedule) {
			s.Again(announceT0)
			require.True(t, s.Advance(announceT0))
			for i := range 10 {
				require.False(t, s.Advance(announceT0.Add(time.Duration(i)*99*time.Millisecond)))
			}
			due, _ := s.Deadline()
			require.Equal(t, announceT0.Add(time.Second), due)
		}, short},
		{"a late call announces once for all that was missed", func(t *testing.T, s *AnnounceSchedule) {
			s.Again(announceT0)
			late := announceT0.Add(time.Hour)
			require.True(t, s.Advance(late))
			require.False(t, s.Advance(late))
			due, ok := s.Deadline()
			require.True(t, ok)
			require.Equal(t, late.Add(10*time.Second), due)
		}, short},
		{"late inside the round keeps the round's own offsets", func(t *testing.T, s *AnnounceSchedule) {
			s.Again(announceT0)
			require.True(t, s.Advance(announceT0.Add(700*time.Millisecond)))
			due, _ := s.Deadline()
			require.Equal(t, announceT0.Add(time.Second), due)
		}, short},
		{"stop cancels at once", func(t *testing.T, s *AnnounceSchedule) {
			s.Again(announceT0)
			s.Stop()
			require.False(t, s.Advance(announceT0))
			_, ok := s.Deadline()
			require.False(t, ok)
		}, short},
		{"again starts over in the middle of a round", func(t *testing.T, s *AnnounceSchedule) {
			s.Again(announceT0)
			require.True(t, s.Advance(announceT0))
			again := announceT0.Add(900 * time.Millisecond)
			s.Again(again)
			require.True(t, s.Advance(again))
			due, _ := s.Deadline()
			require.Equal(t, again.Add(time.Second), due)
		}, short},
		{"again in the future waits", func(t *testing.T, s *AnnounceSchedule) {
			s.Again(announceT0.Add(time.Second))
			require.False(t, s.Advance(announceT0))
			require.True(t, s.Advance(announceT0.Add(time.Second)))
		}, short},
		{"without refresh it ends with the round", func(t *testing.T, s *AnnounceSchedule) {
			s.Again(announceT0)
			require.Equal(t, []time.Duration{0, time.Second}, announcePlay(s, time.Hour))
			_, ok := s.Deadline()
			require.False(t, ok)
			require.True(t, s.Running())
			s.Again(announceT0)
			require.Len(t, announcePlay(s, time.Hour), 2)
		}, AnnounceConfig{Schedule: short.Schedule, Refresh: -1}},
		{"a first offset above zero delays the first", func(t *testing.T, s *AnnounceSchedule) {
			s.Again(announceT0)
			require.Equal(t, []time.Duration{time.Second}, announcePlay(s, time.Hour))
		}, AnnounceConfig{Schedule: []time.Duration{time.Second}, Refresh: -1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.do(t, announceSchedule(t, tt.cfg)) })
	}
}

func TestAnnounceConfigFaults(t *testing.T) {
	c := AnnounceConfig{Schedule: []time.Duration{time.Second, time.Second, -1, 25 * time.Hour}, Refresh: time.Millisecond}
	_, err := NewAnnounceSchedule(c)
	require.ErrorContains(t, err, "offset 1 (1s) does not follow 1s")
	require.ErrorContains(t, err, "offset 2 is -1ns")
	require.ErrorContains(t, err, "offset 3 is 25h0m0s")
	require.ErrorContains(t, err, "refresh is 1ms")

	// The caller's slice is neither kept nor changed.
	offsets := []time.Duration{0, time.Second}
	s := announceSchedule(t, AnnounceConfig{Schedule: offsets, Refresh: -1})
	offsets[1] = time.Minute
	s.Again(announceT0)
	require.Equal(t, []time.Duration{0, time.Second}, announcePlay(s, time.Hour))
}
