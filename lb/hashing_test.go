package lb

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func many(n int) []Backend[int] {
	out := make([]Backend[int], n)
	for i := range out {
		out[i] = Backend[int]{Key: fmt.Sprint("backend-", i), Value: i, Weight: 1}
	}
	return out
}

// owners returns the backend of each of n keys.
func owners(t require.TestingT, alg Algorithm, list []Backend[int], n int) []string {
	b, err := New(Config{Algorithm: alg}, list...)
	require.NoError(t, err)
	out := make([]string, n)
	for key := range out {
		l, err := b.Pick(uint64(key))
		require.NoError(t, err)
		out[key] = l.Key()
	}
	return out
}

// Of 100 backends one leaves: the keys of others that move, and the fullest load
// over the mean, within the bounds that such algorithms were measured to have.
func TestDisruptionAndBalance(t *testing.T) {
	const keys, n = 50_000, 100
	for _, tc := range []struct {
		alg           Algorithm
		moved, fuller float64
	}{
		{Maglev{Size: 16381}, 0.025, 1.25},
		{Maglev{}, 0.011, 1.2},
		{Maglev{Size: 655373}, 0.003, 1.2},
		{Ring{Points: 40}, 0, 1.7},
		{Ring{}, 0, 1.4},
		{Ring{Points: 1000}, 0, 1.3},
		{Rendezvous{}, 0, 1.2},
		{SourceHash{}, 1, 1.2},
	} {
		t.Run(fmt.Sprintf("%s%+v", tc.alg.Name(), tc.alg), func(t *testing.T) {
			list := many(n)
			gone := list[n/2].Key
			before := owners(t, tc.alg, list, keys)
			after := owners(t, tc.alg, slices.Delete(slices.Clone(list), n/2, n/2+1), keys)
			moved, load := 0, map[string]int{}
			for i := range before {
				load[before[i]]++
				require.NotEqual(t, gone, after[i])
				if before[i] != gone && before[i] != after[i] {
					moved++
				}
			}
			require.LessOrEqual(t, float64(moved)/keys, tc.moved)
			fullest := 0
			for _, l := range load {
				fullest = max(fullest, l)
			}
			require.Less(t, float64(fullest)/(keys/n), tc.fuller)
		})
	}
}

// For ring and rendezvous the minimum is exact: only the leaver's keys move, also
// with weights, and when it returns they are the same ones.
func TestOnlyTheLeaversKeysMove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := many(rapid.IntRange(2, 12).Draw(t, "n"))
		for i := range list {
			list[i].Weight = 3 // a ring's points depend on the mean weight
		}
		gone := rapid.IntRange(0, len(list)-1).Draw(t, "gone")
		for _, alg := range []Algorithm{Ring{Points: 20}, Rendezvous{}} {
			before := owners(t, alg, list, 200)
			down := slices.Clone(list)
			down[gone].State = Down
			for key, after := range owners(t, alg, down, 200) {
				if before[key] != list[gone].Key {
					require.Equal(t, before[key], after)
				}
			}
		}
	})
}

func TestHashWeights(t *testing.T) {
	const keys = 60_000
	list := many(4)
	for i, w := range []int{1, 2, 5, 256} {
		list[i].Weight = w
	}
	for _, alg := range []Algorithm{Maglev{}, SourceHash{}, Rendezvous{}} {
		got := map[string]int{}
		for _, o := range owners(t, alg, list, keys) {
			got[o]++
		}
		for i, w := range []float64{1, 2, 5, 256} {
			p := w / 264
			require.InDelta(t, keys*p, got[list[i].Key], 5*math.Sqrt(keys*p*(1-p))+2, "%s %v", alg.Name(), got)
		}
	}
	got := map[string]int{}
	for _, o := range owners(t, Ring{Points: 5000}, list, keys) {
		got[o]++
	}
	for i, w := range []float64{1, 2, 5, 256} {
		require.InEpsilon(t, keys*w/264, got[list[i].Key], 0.5, "ring %v", got)
	}
}

// At no moment has a backend more than Bound times its share, rounded up, although
// half of the connections have the same key.
func TestRingBoundHoldsAtEveryStep(t *testing.T) {
	for _, bound := range []float64{1.1, 1.25, 2} {
		rapid.Check(t, func(t *rapid.T) {
			list := many(rapid.IntRange(1, 10).Draw(t, "n"))
			total := 0.0
			for i := range list {
				list[i].Weight = rapid.IntRange(1, 5).Draw(t, "weight")
				total += float64(list[i].Weight)
			}
			b, err := New(Config{Algorithm: Ring{Bound: bound, Points: 10}}, list...)
			require.NoError(t, err)
			load, open := map[int]float64{}, 0.0
			for i := range 100 {
				key := uint64(7)
				if i%2 == 0 {
					key = rapid.Uint64().Draw(t, "key")
				}
				l, err := b.Pick(key)
				require.NoError(t, err)
				load[l.Value()]++
				open++
				w := float64(list[l.Value()].Weight)
				require.LessOrEqual(t, load[l.Value()], max(1, math.Ceil(bound*open*w/total)))
			}
		})
	}
}

// Top spreads one popular key over a few backends, always the same ones.
func TestRendezvousTop(t *testing.T) {
	b := seeded(t, Config{Algorithm: Rendezvous{Top: 3}}, 1, many(20))
	var first []string
	for l := range b.Walk(77) {
		if first = append(first, l.Key()); len(first) == 1 {
			l.Done(epoch, Result{})
			break
		}
	}
	load := map[string]int{}
	for range 30 {
		l, err := b.Pick(77)
		require.NoError(t, err)
		load[l.Key()]++
	}
	require.Len(t, load, 3)
	for key, n := range load {
		require.Equal(t, 10, n, key)
	}
	require.Contains(t, load, first[0])
}

// A walk follows the order of the key, and each of the orders begins with the one
// that is left when those before are gone.
func TestRendezvousWalkIsTheOrder(t *testing.T) {
	list := many(6)
	b := seeded(t, Config{Algorithm: Rendezvous{}}, 1, list)
	for key := range uint64(50) {
		var order []int
		for l := range b.Walk(key) {
			order = append(order, l.Value())
		}
		rest := slices.Clone(list)
		for _, want := range order {
			c := seeded(t, Config{Algorithm: Rendezvous{}}, 9, rest)
			l, err := c.Pick(key)
			require.NoError(t, err)
			require.Equal(t, want, l.Value())
			rest = slices.DeleteFunc(rest, func(b Backend[int]) bool { return b.Value == want })
		}
	}
}
