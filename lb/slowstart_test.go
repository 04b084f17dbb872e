package lb

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// returning gives a balancer whose last backend came back at epoch from being
// down, among n-1 others.
func returning(t require.TestingT, alg Algorithm, n int) *Balancer[int] {
	b, err := New(Config{Algorithm: alg, SlowStart: 100 * time.Second, Rand: rand.New(rand.NewPCG(1, 2))}, many(n)...)
	require.NoError(t, err)
	b.Advance(epoch)
	list := many(n)
	list[n-1].State = Down
	require.NoError(t, b.Set(list...))
	require.NoError(t, b.Set(many(n)...))
	return b
}

func TestSlowStart(t *testing.T) {
	for _, alg := range []Algorithm{RoundRobin{}, WeightedRoundRobin{}} {
		b := returning(t, alg, 3)
		for step := 1; step <= 10; step++ {
			got := shares(t, b, 20+step)
			require.Equal(t, map[int]int{0: 10, 1: 10, 2: step}, got, "%s step %d", alg.Name(), step)
			due := b.Deadline()
			if step == 10 {
				require.Zero(t, due)
				break
			}
			require.Equal(t, epoch.Add(time.Duration(step+1)*10*time.Second), due)
			before := b.current.Load()
			b.Advance(due.Add(-1))
			b.Advance(due.Add(-time.Hour))
			require.Same(t, before, b.current.Load(), "nothing is due, so nothing is built")
			b.Advance(due)
		}
		require.Len(t, b.current.Load().picker.(*lap).turns, 3, "afterwards laps are short again")
	}
}

func TestSlowStartFollowsRandomAlgorithms(t *testing.T) {
	for _, alg := range []Algorithm{Random{}, WeightedRandom{}, Shuffle{}, P2C{}, Maglev{}, SourceHash{}, Rendezvous{}} {
		b := returning(t, alg, 3)
		got := make([]int, 3)
		for key := range 21_000 {
			l, err := b.Pick(uint64(key))
			require.NoError(t, err)
			got[l.Value()]++
			l.Done(epoch, Result{})
		}
		require.InEpsilon(t, 1000, got[2], 0.2, "%s %v", alg.Name(), got)
	}
}

func TestWhoStartsSlowly(t *testing.T) {
	step := func(b *Balancer[int], key string) int {
		for _, e := range b.current.Load().entries {
			if e.Key == key {
				return int(e.step)
			}
		}
		return 0
	}
	fresh := func(list []Backend[int]) *Balancer[int] {
		return seeded(t, Config{SlowStart: 100 * time.Second}, 1, list)
	}
	t.Run("not those of the beginning", func(t *testing.T) {
		b := fresh(inState("UU", ""))
		b.Advance(epoch)
		require.Equal(t, 10, step(b, "a"))
		require.Zero(t, b.Deadline())
	})
	t.Run("nobody before the first Advance", func(t *testing.T) {
		b := fresh(inState("UD", ""))
		require.NoError(t, b.Set(inState("UU", "")...))
		require.Equal(t, 10, step(b, "b"))
	})
	t.Run("a new one", func(t *testing.T) {
		b := fresh(inState("UU", ""))
		b.Advance(epoch)
		require.NoError(t, b.Set(inState("UUU", "")...))
		require.Equal(t, 1, step(b, "c"))
		require.NoError(t, b.Set(inState("UURU", "")...))
		require.Equal(t, 1, step(b, "d"))
	})
	t.Run("not one that was drained", func(t *testing.T) {
		b := fresh(inState("UR", ""))
		b.Advance(epoch)
		require.NoError(t, b.Set(inState("UU", "")...))
		require.Equal(t, 10, step(b, "b"))
	})
	t.Run("nor the first after an outage, but those after it", func(t *testing.T) {
		b := fresh(inState("UU", ""))
		b.Advance(epoch)
		require.NoError(t, b.Set(inState("DD", "")...))
		require.NoError(t, b.Set(inState("UD", "")...))
		require.Equal(t, 10, step(b, "a"))
		require.NoError(t, b.Set(inState("UU", "")...))
		require.Equal(t, 1, step(b, "b"))
	})
	t.Run("a drain does not stop it, going down does", func(t *testing.T) {
		b := fresh(inState("UD", ""))
		b.Advance(epoch)
		require.NoError(t, b.Set(inState("UU", "")...))
		b.Advance(epoch.Add(35 * time.Second))
		require.Equal(t, 3, step(b, "b"), "a late Advance takes the steps it missed")
		require.NoError(t, b.Set(inState("UR", "")...))
		b.Advance(epoch.Add(55 * time.Second))
		require.NoError(t, b.Set(inState("UU", "")...))
		require.Equal(t, 5, step(b, "b"))
		require.NoError(t, b.Set(inState("UD", "")...))
		require.Zero(t, b.Deadline())
		require.NoError(t, b.Set(inState("UU", "")...))
		require.Equal(t, 1, step(b, "b"))
	})
	t.Run("limits rise too", func(t *testing.T) {
		list := inState("UD", "")
		list[1].MaxConns = 25
		b := fresh(list)
		b.Advance(epoch)
		list[1].State = Up
		require.NoError(t, b.Set(list...))
		open := func() int { return shares(t, b, 1000)[1] }
		require.Equal(t, 3, open(), "a tenth, rounded up")
		b.Advance(epoch.Add(90 * time.Second))
		require.Equal(t, 20, open())
		b.Advance(epoch.Add(100 * time.Second))
		require.Equal(t, 2, open())
	})
	for _, bad := range []time.Duration{-1, time.Millisecond, 25 * time.Hour} {
		_, err := New[int](Config{SlowStart: bad})
		require.ErrorIs(t, err, ErrConfig)
		require.ErrorContains(t, err, "SlowStart")
	}
}

// https://github.com/envoyproxy/envoy/issues/19526
// https://github.com/envoyproxy/envoy/issues/29259
// One returns among 130 others, and connections are few: it gets its tenth all the
// same, from the first lap, and its whole share as soon as the window has passed.
func TestReportSlowStartReachesTheNewOne(t *testing.T) {
	b := returning(t, RoundRobin{}, 131)
	require.Equal(t, 1, shares(t, b, 1301)[130])
	b.Advance(epoch.Add(100 * time.Second))
	require.Equal(t, 1, shares(t, b, 131)[130])
}

// Whatever is set, and whenever time is told, the steps are those that the times
// say; and a Deadline is never in the past of the last Advance.
func TestSlowStartModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, err := New(Config{SlowStart: 100 * time.Second}, inState("UUU", "")...)
		require.NoError(t, err)
		now := epoch
		b.Advance(now)
		since := map[string]time.Time{}
		states := []byte("UUU")
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			if rapid.Bool().Draw(t, "time") {
				now = now.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "seconds")) * time.Second)
				b.Advance(now)
			} else {
				i := rapid.IntRange(0, 2).Draw(t, "which")
				anybody := slices.Contains(states, 'U')
				to := rapid.SampledFrom([]byte("URD")).Draw(t, "state")
				key := string(rune('a' + i))
				switch {
				case to == 'D':
					delete(since, key)
				case states[i] == 'D' && to == 'U' && anybody:
					since[key] = now
				}
				states[i] = to
				require.NoError(t, b.Set(inState(string(states), "")...))
			}
			for _, e := range b.current.Load().entries {
				want := 10
				if s, slow := since[e.Key]; slow {
					want = min(10, max(1, int(now.Sub(s)/(10*time.Second))))
				}
				require.Equal(t, want, int(e.step), "%s of %s", e.Key, states)
			}
			if due := b.Deadline(); !due.IsZero() {
				require.True(t, due.After(now), fmt.Sprint(due, now))
			}
		}
	})
}

// PeakEWMA ages by Advance too.
func TestAdvanceAgesLatencies(t *testing.T) {
	b := seeded(t, Config{Algorithm: PeakEWMA{}}, 1, members(1))
	l, _ := b.Pick(0)
	l.Done(epoch, Result{Latency: time.Second})
	b.Advance(epoch.Add(20 * time.Second))
	at := b.shared.clock.latest.Load()
	require.Equal(t, 250*time.Millisecond, time.Duration(estimate(b.current.Load().entries[0].load.latency.Load()).at(at)))
}

// https://github.com/envoyproxy/envoy/issues/2874
// https://github.com/envoyproxy/envoy/issues/45055
// 1000 flips in one Update build one snapshot, from the state at its end.
func TestReportOneRebuildPerSet(t *testing.T) {
	list := many(2000)
	b := seeded(t, Config{Algorithm: counting{new(int)}}, 1, list)
	builds := b.algorithm.(counting).builds
	*builds = 0
	require.NoError(t, b.Update(func(l []Backend[int]) []Backend[int] {
		for i := range 1000 {
			l[i].State = Down
		}
		l[0].State = Up
		return l
	}))
	require.Equal(t, 1, *builds)
	require.Len(t, b.current.Load().group.members, 1001)
}

// counting counts its snapshots.
type counting struct{ builds *int }

func (counting) Name() string   { return "counting" }
func (counting) traits() traits { return RoundRobin{}.traits() }
func (counting) fault() string  { return "" }
func (c counting) prepare(g *group, old picker, draw func(n uint64) uint64) picker {
	*c.builds++
	return RoundRobin{}.prepare(g, old, draw)
}
