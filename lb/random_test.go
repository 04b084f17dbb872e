package lb

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// grouped returns the group and picker of a balancer.
func grouped(t require.TestingT, alg Algorithm, weights ...int) (*group, picker) {
	b, err := New(Config{Algorithm: alg}, members(weights...)...)
	require.NoError(t, err)
	s := b.current.Load()
	return &s.group, s.picker
}

// The parts of all slots add up to each member's share, to 2^-32 a slot.
func TestAliasIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := drawWeights(t)
		g, p := grouped(t, WeightedRandom{}, weights...)
		u := p.(*urn)
		if u.slots == nil {
			require.True(t, g.even())
			return
		}
		share := make([]float64, len(weights))
		for i, s := range u.slots {
			keep := float64(s.keep) / (1 << 32)
			share[i] += keep
			share[s.alias] += 1 - keep
		}
		for i, w := range weights {
			require.InDelta(t, float64(w)*float64(len(weights))/float64(g.total), share[i], float64(len(weights))/(1<<32))
		}
	})
}

// Each lap is a permutation, and all permutations are about equally likely.
func TestShuffleLaps(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 16, 17, 100} {
		_, p := grouped(t, Shuffle{}, slices.Repeat([]int{1}, n)...)
		s := p.(*shuffled)
		for key := range uint64(20) {
			seen := make([]bool, n)
			for x := range uint64(n) {
				i := s.permute(x, mix64(key))
				require.False(t, seen[i], "n=%d key=%d", n, key)
				seen[i] = true
			}
		}
	}
	_, p := grouped(t, Shuffle{}, 1, 1, 1)
	seen := map[string]int{}
	const laps = 30_000
	for key := range uint64(laps) {
		s := p.(*shuffled)
		seen[fmt.Sprint(s.permute(0, mix64(key)), s.permute(1, mix64(key)), s.permute(2, mix64(key)))]++
	}
	require.Len(t, seen, 6)
	for order, k := range seen {
		require.InEpsilon(t, laps/6, k, 0.1, order)
	}
}

// Every lap of a balancer holds all, and two laps in a row differ; a rebuild that
// changes nothing leaves no trace.
func TestShuffleKeepsItsLaps(t *testing.T) {
	list := members(1, 1, 1, 1, 1, 1, 1, 1)
	b, twin := seeded(t, Config{Algorithm: Shuffle{}}, 5, list), seeded(t, Config{Algorithm: Shuffle{}}, 5, list)
	want := picks(t, b, 800)
	var got []int
	for range want {
		got = append(got, picks(t, twin, 1)...)
		require.NoError(t, twin.Set(list...))
	}
	require.Equal(t, want, got)
	s := b.current.Load().picker.(*shuffled)
	first := int((8 - s.offset%8) % 8) // the first whole lap
	changed := 0
	for at := first; at+16 <= len(want); at += 8 {
		require.ElementsMatch(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, want[at:at+8])
		if !slices.Equal(want[at:at+8], want[at+8:at+16]) {
			changed++
		}
	}
	require.Greater(t, changed, 90)
}

func TestStaticIsFirstWithRoom(t *testing.T) {
	list := members(1, 200, 1)
	list[0].MaxConns, list[1].MaxConns = 2, 1
	b := seeded(t, Config{Algorithm: Static{}}, 1, list)
	require.Equal(t, []int{0, 0, 1, 2, 2, 2}, picks(t, b, 6))
	list[0].State = Down
	require.NoError(t, b.Set(list...))
	require.Equal(t, []int{2}, picks(t, b, 1), "b is still full")
}

// Balls into bins: with 100 per backend, random runs about 30 ahead of the mean,
// two choices about 2.
func TestTwoChoicesBeatOne(t *testing.T) {
	excess := func(alg Algorithm) int {
		const n = 1000
		b := seeded(t, Config{Algorithm: alg}, 1, many(n))
		load := make([]int, n)
		for _, v := range picks(t, b, 100*n) {
			load[v]++
		}
		return slices.Max(load) - 100
	}
	require.Greater(t, excess(Random{}), 15)
	require.LessOrEqual(t, excess(P2C{}), 4)
}

// Loads of leases that stay open follow the weights.
func TestP2CWeights(t *testing.T) {
	b := seeded(t, Config{Algorithm: P2C{}}, 1, members(8, 1, 4))
	got := shares(t, b, 13_000)
	for i, w := range []int{8000, 1000, 4000} {
		require.InEpsilon(t, w, got[i], 0.02, "%v", got)
	}
}

// feed serves n leases one after the other, each of the latency of its backend.
func feed(b *Balancer[int], now *time.Time, n int, latency ...time.Duration) []int {
	got := make([]int, len(latency))
	for range n {
		l, err := b.Pick(0)
		if err != nil {
			panic(err)
		}
		got[l.Value()]++
		*now = now.Add(10 * time.Millisecond)
		l.Done(*now, Result{Latency: latency[l.Value()]})
	}
	return got
}

func TestPeakEWMA(t *testing.T) {
	const ms = time.Millisecond
	fresh := func() (*Balancer[int], time.Time) {
		return seeded(t, Config{Algorithm: PeakEWMA{}}, 1, members(1, 1, 1)), epoch
	}
	known := func(b *Balancer[int], i int, now time.Time) time.Duration {
		l := b.current.Load().entries[i].load
		return time.Duration(estimate(l.latency.Load()).at(b.shared.clock.tick(now)))
	}
	t.Run("avoids the slow one", func(t *testing.T) {
		b, now := fresh()
		feed(b, &now, 100, 10*ms, 100*ms, 10*ms)
		got := feed(b, &now, 100, 10*ms, 100*ms, 10*ms)
		require.LessOrEqual(t, got[1], 2, "%v", got)
	})
	t.Run("rises at once and falls slowly", func(t *testing.T) {
		b, now := fresh()
		l, _ := b.Pick(0)
		i := l.Value()
		load := b.current.Load().entries[i].load
		load.observe(now, Result{Latency: 10 * ms})
		load.observe(now, Result{Latency: 900 * ms})
		require.Equal(t, 900*ms, known(b, i, now).Round(ms))
		load.observe(now, Result{Latency: 10 * ms})
		require.Equal(t, 900*ms, known(b, i, now).Round(ms))
		now = now.Add(10 * time.Second)
		load.observe(now, Result{Latency: 10 * ms})
		require.Equal(t, 455*ms, known(b, i, now).Round(ms), "half of both after one Decay")
	})
	t.Run("a backend that was slow once is tried again", func(t *testing.T) {
		b, now := fresh()
		feed(b, &now, 30, 10*ms, time.Second, 10*ms)
		got := feed(b, &now, 30_000, 10*ms, 10*ms, 10*ms) // five minutes
		require.Greater(t, got[1], 5000, "%v", got)
	})
	t.Run("refusing at once is not fast", func(t *testing.T) {
		b, now := fresh()
		got := make([]int, 3)
		for range 1000 {
			l, _ := b.Pick(0)
			got[l.Value()]++
			now = now.Add(10 * ms)
			l.Done(now, Result{Failed: l.Value() == 0, Latency: time.Duration(20*l.Value()+1) * ms})
		}
		require.Less(t, got[0], 20, "%v", got)
	})
	t.Run("reports that overtake each other", func(t *testing.T) {
		b, now := fresh()
		load := b.current.Load().entries[0].load
		load.observe(now.Add(time.Minute), Result{Latency: 100 * ms})
		load.observe(now, Result{Latency: 10 * ms})
		require.Equal(t, 100*ms, known(b, 0, now.Add(time.Minute)).Round(ms), "an old report does not age the newer")
		load.observe(now.Add(-time.Hour), Result{Latency: 300 * ms})
		require.Equal(t, 300*ms, known(b, 0, now.Add(time.Minute)).Round(ms), "though it may raise it")
	})
	t.Run("nothing measured", func(t *testing.T) {
		b, now := fresh()
		feed(b, &now, 30, 0, -1, 0)
		require.Zero(t, known(b, 0, now))
	})
}

func TestFade(t *testing.T) {
	require.EqualValues(t, 1, fade(0))
	require.EqualValues(t, 1, fade(-5))
	require.EqualValues(t, 0.5, fade(perDecay))
	require.EqualValues(t, 0.25, fade(2*perDecay))
	require.EqualValues(t, 0, fade(math.MaxInt32))
	rapid.Check(t, func(t *rapid.T) {
		age := rapid.Int32Range(0, 100*perDecay).Draw(t, "age")
		exact := math.Exp2(-float64(age) / perDecay)
		require.InEpsilon(t, exact, float64(fade(age)), 0.062)
		require.LessOrEqual(t, fade(age+1), fade(age))
	})
}

// https://github.com/openresty/lua-resty-balancer/issues/47 and its kind, for the
// member that has no room: its turns go to all others, not to its successor.
func TestReportFullMemberIsNoDoubleShare(t *testing.T) {
	for _, alg := range []Algorithm{RoundRobin{}, Random{}, Shuffle{}, Maglev{}, SourceHash{}} {
		list := members(1, 1, 1, 1, 1)
		list[1].MaxConns = 1
		b := seeded(t, Config{Algorithm: alg}, 1, list)
		for l := range b.Walk(0) { // fill b, whatever the algorithm
			if l.Value() != 1 {
				l.Done(epoch, Result{})
			}
		}
		got := make([]int, 5)
		for key := range 8000 {
			l, err := b.Pick(uint64(key))
			require.NoError(t, err)
			got[l.Value()]++
			l.Done(epoch, Result{})
		}
		require.Zero(t, got[1])
		for _, i := range []int{0, 2, 3, 4} {
			require.InEpsilon(t, 2000, got[i], 0.1, "%s %v", alg.Name(), got)
		}
	}
}
