package lb

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// What every algorithm keeps to, whatever it optimises.

var algorithms = []Algorithm{
	RoundRobin{}, WeightedRoundRobin{}, Random{}, WeightedRandom{}, Shuffle{}, Static{},
	P2C{}, PeakEWMA{}, LeastConn{},
	Maglev{Size: 1009}, Ring{}, Ring{Points: 20, Bound: 1.25}, SourceHash{}, Rendezvous{}, Rendezvous{Top: 3},
}

// hashes are the algorithms that map keys to backends.
var hashes = []Algorithm{Maglev{}, Ring{}, SourceHash{}, Rendezvous{}}

func each(t *testing.T, f func(t *testing.T, alg Algorithm)) {
	for _, alg := range algorithms {
		t.Run(fmt.Sprintf("%s%+v", alg.Name(), alg), func(t *testing.T) { f(t, alg) })
	}
}

func TestAlgorithmNames(t *testing.T) {
	names := map[string]string{}
	for _, a := range algorithms {
		kind := fmt.Sprintf("%T", a)
		require.Regexp(t, "^[a-z0-9]+$", a.Name())
		if other, taken := names[a.Name()]; taken {
			require.Equal(t, other, kind)
		}
		names[a.Name()] = kind
	}
}

func TestAlgorithmSettings(t *testing.T) {
	for want, alg := range map[string]Algorithm{
		"lb: bad config: algorithm maglev: Size: size 100: want a prime from 2 to 8388608":          Maglev{Size: 100},
		"lb: bad config: algorithm maglev: 3 backends for a table of 2 slots: choose a larger size": Maglev{Size: 2},
		"lb: bad config: algorithm ring: Points -1: want 1 to 10000, or 0 for 160":                  Ring{Points: -1},
		"lb: bad config: algorithm ring: Points 10001: want 1 to 10000, or 0 for 160":               Ring{Points: 10_001},
		"lb: bad config: algorithm ring: Bound 1: want more than 1 up to 100, or 0 for none":        Ring{Bound: 1},
		"lb: bad config: algorithm ring: Bound NaN: want more than 1 up to 100, or 0 for none":      Ring{Bound: math.NaN()},
		"lb: bad config: algorithm rendezvous: Top 9: want 0 to 8":                                  Rendezvous{Top: 9},
		"lb: bad config: algorithm peakewma: Decay 1ms: want 1s to 1h":                              PeakEWMA{Decay: time.Millisecond},
		"lb: bad config: algorithm peakewma: Penalty 2h0m0s: want 1ms to 1h":                        PeakEWMA{Penalty: 2 * time.Hour},
	} {
		_, err := New(Config{Algorithm: alg}, members(1, 1, 1)...)
		require.ErrorIs(t, err, ErrConfig)
		require.EqualError(t, err, want)
	}
	b := seeded(t, Config{Algorithm: Maglev{Size: 2}}, 1, members(1, 1))
	require.ErrorIs(t, b.Set(members(1, 1, 1)...), ErrConfig)
	require.Len(t, b.Backends(), 2, "a refused list changes nothing")
}

// A walk yields each usable backend once, and what Pick would have given first.
func TestEveryWalkIsComplete(t *testing.T) {
	each(t, func(t *testing.T, alg Algorithm) {
		rapid.Check(t, func(t *rapid.T) {
			list := members(drawWeights(t)...)
			var want []int
			for i := range list {
				list[i].State = rapid.SampledFrom([]State{Up, Up, Drain, Down}).Draw(t, "state")
				if list[i].State == Up {
					want = append(want, i)
				}
			}
			seed, key := rapid.Uint64().Draw(t, "seed"), rapid.Uint64().Draw(t, "key")
			b, err := New(Config{Algorithm: alg, Rand: rand.New(rand.NewPCG(seed, 0))}, list...)
			require.NoError(t, err)
			twin, err := New(Config{Algorithm: alg, Rand: rand.New(rand.NewPCG(seed, 0))}, list...)
			require.NoError(t, err)
			var got []int
			for l := range b.Walk(key) {
				got = append(got, l.Value())
			}
			require.ElementsMatch(t, want, got)
			if len(want) > 0 && alg != (Ring{Points: 20, Bound: 1.25}) { // bounds don't hold for walks
				l, err := twin.Pick(key)
				require.NoError(t, err)
				require.Equal(t, got[0], l.Value())
			}
		})
	})
}

// No backend ever has more open leases than it may; a pick fails only when all are
// full; and what ends makes room.
func TestEveryLimitHolds(t *testing.T) {
	each(t, func(t *testing.T, alg Algorithm) {
		rapid.Check(t, func(t *rapid.T) {
			list := members(drawWeights(t)...)
			room := 0
			for i := range list {
				list[i].MaxConns = rapid.IntRange(1, 4).Draw(t, "limit")
				room += list[i].MaxConns
			}
			b, err := New(Config{Algorithm: alg, Count: true}, list...)
			require.NoError(t, err)
			var leases []Lease[int]
			for range room {
				l, err := b.Pick(rapid.Uint64().Draw(t, "key"))
				if r, ok := alg.(Ring); ok && r.Bound > 0 && err != nil {
					return // the bound, together with a limit, may leave no room
				}
				require.NoError(t, err)
				leases = append(leases, l)
			}
			for _, be := range list {
				c, _ := b.Counts(be.Key)
				require.EqualValues(t, be.MaxConns, c.Open)
			}
			_, err = b.Pick(1)
			require.ErrorIs(t, err, ErrAllFull)
			for range b.Walk(1) {
				t.Fatal("a walk over full backends yields nothing")
			}
			leases[room/2].Done(epoch, Result{})
			l, err := b.Pick(2)
			require.NoError(t, err)
			require.Equal(t, leases[room/2].Value(), l.Value())
		})
	})
}

// Conservation: when all leases have ended, in any order and across rebuilds,
// nothing is open.
func TestEveryLeaseIsReturned(t *testing.T) {
	each(t, func(t *testing.T, alg Algorithm) {
		rapid.Check(t, func(t *rapid.T) {
			b, err := New(Config{Algorithm: alg, Count: true}, members(1, 2, 3)...)
			require.NoError(t, err)
			var open []Lease[int]
			now := epoch
			t.Repeat(map[string]func(*rapid.T){
				"pick": func(t *rapid.T) {
					if l, err := b.Pick(rapid.Uint64().Draw(t, "key")); err == nil {
						open = append(open, l)
					}
				},
				"done": func(t *rapid.T) {
					if len(open) == 0 {
						t.Skip()
					}
					i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
					now = now.Add(time.Duration(rapid.IntRange(-5, 100).Draw(t, "ms")) * time.Millisecond)
					open[i].Done(now, Result{Failed: rapid.Bool().Draw(t, "failed"), Latency: time.Duration(rapid.IntRange(-1, 1e9).Draw(t, "latency"))})
					open[i].Done(now, Result{})
					open = slices.Delete(open, i, i+1)
				},
				"set": func(t *rapid.T) {
					list := members(rapid.SliceOfN(rapid.IntRange(0, 3), 0, 5).Draw(t, "weights")...)
					for i := range list {
						list[i].State = rapid.SampledFrom([]State{Up, Up, Drain, Down}).Draw(t, "state")
					}
					require.NoError(t, b.Set(list...))
				},
			})
			for i := range open {
				open[i].Done(now, Result{})
			}
			for _, be := range b.Backends() {
				c, _ := b.Counts(be.Key)
				require.Zero(t, c.Open)
			}
			require.Zero(t, b.shared.open.Load())
		})
	})
}

// Everybody at once, for the race detector; limits hold all the time.
func TestEveryAlgorithmConcurrently(t *testing.T) {
	each(t, func(t *testing.T, alg Algorithm) {
		list := members(3, 1, 2, 2)
		for i := range list {
			list[i].MaxConns = 3
		}
		b := seeded(t, Config{Algorithm: alg, Count: true}, 1, list)
		var open [4]atomic.Int64
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				var held []Lease[int]
				for i := range 300 {
					l, err := b.Pick(uint64(g*1000 + i))
					if err == nil {
						if open[l.Value()].Add(1) > 3 {
							panic("over the limit")
						}
						held = append(held, l)
					}
					if err != nil && len(held) == 0 || len(held) == 4 {
						for i := range held {
							open[held[i].Value()].Add(-1)
							held[i].Done(epoch, Result{Latency: time.Millisecond})
						}
						held = held[:0]
					}
				}
				for i := range held {
					open[held[i].Value()].Add(-1)
					held[i].Done(epoch, Result{})
				}
			})
		}
		wg.Go(func() {
			for i := range 100 {
				list := slices.Clone(list)
				list[i%4].State = State(i % 3)
				if err := b.Set(list...); err != nil {
					panic(err)
				}
			}
		})
		wg.Wait()
		for _, be := range list {
			c, _ := b.Counts(be.Key)
			require.Zero(t, c.Open)
		}
	})
}

// Shares follow the weights, or are equal for algorithms that ignore weights, when
// each lease ends before the next begins.
func TestSharesOfIdleBackends(t *testing.T) {
	const n = 60_000
	weights := []float64{5, 1, 2}
	for _, alg := range algorithms {
		switch alg.(type) {
		case Static, Rendezvous, Maglev, Ring, LeastConn:
			continue // by a rule of their own, see below
		}
		t.Run(alg.Name(), func(t *testing.T) {
			b := seeded(t, Config{Algorithm: alg}, 2, members(5, 1, 2))
			got := make([]int, 3)
			for i := range n {
				l, err := b.Pick(uint64(i))
				require.NoError(t, err)
				got[l.Value()]++
				l.Done(epoch, Result{})
			}
			for i, w := range weights {
				p := w / 8
				if alg.traits().unweighted {
					p = 1. / 3
				}
				require.InDelta(t, n*p, got[i], 5*math.Sqrt(n*p*(1-p)), "%v", got)
			}
		})
	}
}

// https://github.com/zalando/skipper/pull/1015
// https://github.com/kubernetes/kubernetes/pull/13619
// Instances seed themselves: 1000 fresh ones do not choose alike.
func TestReportInstancesDiffer(t *testing.T) {
	for _, alg := range []Algorithm{RoundRobin{}, WeightedRoundRobin{}, Random{}, WeightedRandom{}, Shuffle{}, P2C{}, PeakEWMA{}} {
		load := make([]int, 10)
		for range 1000 {
			b, err := New(Config{Algorithm: alg}, members(1, 1, 1, 1, 1, 1, 1, 1, 1, 1)...)
			require.NoError(t, err)
			load[picks(t, b, 1)[0]]++
		}
		// Binomial(1000, 1/10): 200 is 10.5 standard deviations above the mean.
		require.Less(t, slices.Max(load), 200, "%s %v", alg.Name(), load)
	}
}

// https://github.com/sozu-proxy/sozu/pull/1412
// Hashing instances agree, in whatever order they list the backends and whatever
// their private seed; another common seed gives another mapping.
func TestReportHashesAgree(t *testing.T) {
	list := members(3, 1, 2, 7, 1)
	shuffled := []Backend[int]{list[3], list[0], list[4], list[2], list[1]}
	for _, alg := range hashes {
		one, err := New(Config{Algorithm: alg, HashSeed: 9}, list...)
		require.NoError(t, err)
		two, err := New(Config{Algorithm: alg, HashSeed: 9}, shuffled...)
		require.NoError(t, err)
		other, err := New(Config{Algorithm: alg, HashSeed: 10}, list...)
		require.NoError(t, err)
		differ := 0
		for key := range uint64(1000) {
			a, _ := one.Pick(key)
			b, _ := two.Pick(key)
			c, _ := other.Pick(key)
			require.Equal(t, a.Key(), b.Key(), "%s key %d", alg.Name(), key)
			if a.Key() != c.Key() {
				differ++
			}
		}
		require.Greater(t, differ, 500, "%s: the seed matters", alg.Name())
	}
}

// https://github.com/googleapis/google-cloud-java/pull/1551
// https://github.com/asynkron/protoactor-go/pull/137
// No algorithm minds that the counter wraps.
func TestReportCounterWrapsEverywhere(t *testing.T) {
	each(t, func(t *testing.T, alg Algorithm) {
		b := seeded(t, Config{Algorithm: alg}, 7, members(1, 1, 1))
		b.turn.Store(math.MaxUint64 - 150)
		require.NoError(t, b.Set(members(1, 1, 1)...))
		got := map[int]int{}
		for i := range 300 {
			l, err := b.Pick(uint64(i))
			require.NoError(t, err)
			got[l.Value()]++
			if i == 150 {
				require.NoError(t, b.Set(members(1, 1, 1)...), "a rebuild at the wrap")
			}
		}
		if alg != (Static{}) {
			require.Len(t, got, 3)
		}
	})
}

// A dead backend's share goes to all others alike, by every algorithm that shares.
func TestReportNoDoubleShareAnywhere(t *testing.T) {
	const n = 20_000
	each(t, func(t *testing.T, alg Algorithm) {
		if alg == (Static{}) {
			t.Skip("all go to the first")
		}
		if r, ok := alg.(Ring); ok && r.Points != 0 {
			t.Skip("few points share unevenly, with or without a dead backend")
		}
		b := seeded(t, Config{Algorithm: alg}, 3, members(1, 1, 1, 1, 1))
		require.NoError(t, b.Update(func(l []Backend[int]) []Backend[int] {
			l[2].State = Down
			return l
		}))
		got := make([]int, 5)
		for i := range n {
			l, err := b.Pick(uint64(i))
			require.NoError(t, err)
			got[l.Value()]++
			l.Done(epoch, Result{})
		}
		require.Zero(t, got[2])
		for _, i := range []int{0, 1, 3, 4} {
			require.InEpsilon(t, n/4, got[i], 0.3, "%v", got) // a double share is 100 % more
		}
	})
}

func TestNoAlgorithmAllocates(t *testing.T) {
	each(t, func(t *testing.T, alg Algorithm) {
		for _, limit := range []int{0, 1} {
			list := members(5, 1, 2, 2)
			for i := range list {
				list[i].MaxConns = limit
			}
			b := seeded(t, Config{Algorithm: alg, Count: limit > 0}, 1, list)
			now, key := epoch, uint64(0)
			require.Zero(t, testing.AllocsPerRun(1000, func() {
				key++
				now = now.Add(time.Millisecond)
				l, _ := b.Pick(key)
				m, _ := b.Pick(key)
				l.Done(now, Result{Latency: time.Millisecond})
				m.Done(now, Result{Failed: true})
			}))
		}
	})
}
