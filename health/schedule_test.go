package health

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// byHand is a Monitor without Run: the test calls the scheduler, in a bubble, and
// so may leave it alone for a while as if the process stood still.
type byHand struct {
	*Monitor
	t     *testing.T
	start time.Time
	made  map[string][]time.Duration // starts of probes, by key
	at    time.Time                  // of the next call
}

func newByHand(t *testing.T, config MonitorConfig, targets ...Target) *byHand {
	m, err := NewMonitor(config, targets...)
	require.NoError(t, err)
	h := &byHand{Monitor: m, t: t, start: time.Now(), made: map[string][]time.Duration{}, at: time.Now()}
	m.launch(h.start)
	return h
}

// run passes time with the scheduler at work. All probes are good and take none. It
// returns how many began at most at once.
func (h *byHand) run(d time.Duration) (most int) {
	end := time.Now().Add(d)
	for h.at.Before(end) {
		time.Sleep(time.Until(h.at))
		wait, start := h.advance(time.Now(), nil)
		most = max(most, len(start))
		for len(start) > 0 {
			p := start[0]
			start = start[1:]
			h.made[p.w.key] = append(h.made[p.w.key], time.Since(h.start))
			if following, ok := h.complete(h.t.Context(), p, time.Now(), nil); ok {
				start = append(start, following)
			}
		}
		wait = min(wait, h.until(time.Now()))
		h.at = time.Now().Add(wait)
	}
	time.Sleep(time.Until(end))
	return most
}

// until returns when the scheduler would have been woken by what completed.
func (h *byHand) until(now time.Time) time.Duration {
	if next, any := h.agenda.Next(); any {
		return max(pace, next-now.Sub(h.origin))
	}
	return idle
}

func many(n int, config Config) []Target {
	targets := make([]Target, n)
	for i := range targets {
		targets[i] = Target{fmt.Sprint("target-", i), Func(func(context.Context) error { return nil }), config}
	}
	return targets
}

// After a standstill no burst makes up for what was missed, the misses are counted,
// and the targets are spread again.
func TestStallIsNotMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		h := newByHand(t, MonitorConfig{Workers: 100_000}, many(n, Config{})...)
		require.Less(t, h.run(20*time.Second), 10)
		before := h.Stats()
		require.Zero(t, before.Dropped)
		require.Zero(t, before.Late)
		require.InDelta(t, 4*n, before.Probes, n)

		time.Sleep(time.Minute)
		h.made = map[string][]time.Duration{}
		require.Less(t, h.run(5*time.Second), 10, "no burst")
		after := h.Stats()
		require.InDelta(t, 11*n, after.Dropped, n, "a minute has 12 intervals, of which one was only late")
		require.InDelta(t, time.Minute, after.LateBy, float64(5*time.Second))
		perSecond := make([]int, 5)
		for key, w := range h.targets {
			require.Len(t, h.made[key], 1, "%s: %v", key, w.probeAt)
			perSecond[(h.made[key][0]-80*time.Second)/time.Second]++
		}
		// Binomial(1000, 1/5) with fixed keys: mean 200, standard deviation 13.
		require.Greater(t, slices.Min(perSecond), 140, "%v", perSecond)
		require.Less(t, slices.Max(perSecond), 260, "%v", perSecond)
	})
}

// Less than an interval late is late, and made up for.
func TestShortStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newByHand(t, MonitorConfig{Workers: 100_000}, many(100, Config{})...)
		h.run(20 * time.Second)
		time.Sleep(4 * time.Second)
		h.run(time.Second)
		s := h.Stats()
		require.Zero(t, s.Dropped)
		require.Greater(t, s.Late, uint64(40), "all that were due in the 4 s, but for the last half")
		require.LessOrEqual(t, s.LateBy, 4*time.Second)
	})
}

// A process that stands still over and over puts no probe off twice.
func TestStallsDoNotStarve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		h := newByHand(t, MonitorConfig{Workers: 100_000}, many(n, Config{})...)
		for round := range 6 {
			time.Sleep(11 * time.Second)
			_, start := h.advance(time.Now(), nil)
			if round%2 == 0 {
				require.Empty(t, start)
				continue
			}
			require.Len(t, start, n)
			for _, p := range start {
				h.complete(t.Context(), p, time.Now(), nil)
			}
		}
	})
}

// Intervals shorter than the pace of the scheduler are as good as its pace.
func TestManyVeryShortIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newByHand(t, MonitorConfig{Workers: 100_000}, many(20, Config{Interval: time.Millisecond})...)
		h.run(time.Second)
		for key := range h.targets {
			require.Greater(t, len(h.made[key]), int(time.Second/(crowdPace+2*pace)), key)
		}
	})
}

// Waiting for a worker drops probes too.
func TestStarvedProbesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := Func(func(context.Context) error { time.Sleep(3 * time.Second); return nil })
		l := watch(t, MonitorConfig{NoSpread: true, Workers: 1},
			Target{"a", slow, Config{Interval: time.Second, Timeout: 4 * time.Second}}, Target{"b", slow, Config{Interval: time.Second, Timeout: 4 * time.Second}})
		sleep(3500 * time.Millisecond) // the second one began at 3 s
		s := l.Stats()
		require.Equal(t, uint64(1), s.Late)
		require.Equal(t, uint64(3), s.Dropped)
		require.Equal(t, 3*time.Second, s.LateBy)
		l.stop()
	})
}

func TestJitter(t *testing.T) {
	starts := func(jitter int, seed uint64) map[string][]time.Duration {
		var made map[string][]time.Duration
		synctest.Test(t, func(t *testing.T) {
			h := newByHand(t, MonitorConfig{Jitter: jitter, Seed: seed, Workers: 1000}, many(10, Config{})...)
			h.run(10 * time.Minute)
			made = h.made
		})
		return made
	}
	pauses := func(made map[string][]time.Duration) (all []time.Duration) {
		for _, at := range made {
			for i := range at[1:] {
				all = append(all, at[i+1]-at[i])
			}
		}
		return all
	}
	none := pauses(starts(0, 0))
	require.Equal(t, 5*time.Second, slices.Min(none))
	require.LessOrEqual(t, slices.Max(none), 5*time.Second+pace)

	made := starts(20, 0)
	p := pauses(made)
	require.Greater(t, len(p), 1100)
	require.GreaterOrEqual(t, slices.Min(p), 4*time.Second)
	require.Less(t, slices.Min(p), 4050*time.Millisecond, "the whole range is used")
	require.Greater(t, slices.Max(p), 4950*time.Millisecond, "the whole range is used")
	require.LessOrEqual(t, slices.Max(p), 5*time.Second+pace, "never longer than Config says")
	require.Equal(t, made, starts(20, 0), "the same seed and keys, the same times")

	other := starts(20, 1)
	same := 0
	for key := range made {
		for _, at := range other[key] {
			if slices.Contains(made[key], at) {
				same++
			}
		}
	}
	require.Less(t, same, 3, "another seed, other times")
}

// Two observers that begin at once do not probe in step if their seeds differ.
func TestSeedSpreadsObservers(t *testing.T) {
	first := func(seed uint64) []time.Duration {
		m, err := NewMonitor(MonitorConfig{Seed: seed}, many(200, Config{})...)
		require.NoError(t, err)
		var all []time.Duration
		m.launch(time.Time{})
		for i := range 200 {
			all = append(all, m.targets[fmt.Sprint("target-", i)].probeAt)
		}
		return all
	}
	a, b := first(1), first(2)
	require.Equal(t, a, first(1))
	near := 0
	for i := range a {
		if (a[i] - b[i]).Abs() < 50*time.Millisecond {
			near++
		}
	}
	// Binomial(200, 1/50) with fixed keys: mean 4, standard deviation 2.
	require.Less(t, near, 14)
}

func TestJitterFault(t *testing.T) {
	for _, jitter := range []int{-1, 51} {
		_, err := NewMonitor(MonitorConfig{Jitter: jitter})
		require.EqualError(t, err, fmt.Sprintf("health: Jitter is %d: want 0 to 50 percent", jitter))
	}
}
