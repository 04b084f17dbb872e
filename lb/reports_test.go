package lb

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Faults that other balancers were reported to have.

// https://github.com/openresty/lua-resty-balancer/issues/47
// https://github.com/envoyproxy/envoy/issues/31378
// https://github.com/kubernetes/kubernetes/issues/3640
// The first pick of fresh balancers follows the weights; it is not always the
// heaviest or the first in the list.
func TestReportFirstPickFollowsWeights(t *testing.T) {
	for _, tc := range []struct {
		alg     Algorithm
		weights []int
		share   []float64
	}{
		{RoundRobin{}, []int{1, 1, 1, 1}, []float64{.25, .25, .25, .25}},
		{RoundRobin{}, []int{100, 1}, []float64{.5, .5}},
		{WeightedRoundRobin{}, []int{99, 1}, []float64{.99, .01}},
		{WeightedRoundRobin{}, []int{5, 1, 2}, []float64{.625, .125, .25}},
	} {
		const fresh = 20_000
		first := make([]int, len(tc.weights))
		for seed := range uint64(fresh) {
			first[picks(t, seeded(t, Config{Algorithm: tc.alg}, seed, members(tc.weights...)), 1)[0]]++
		}
		for i, p := range tc.share {
			sigma := math.Sqrt(fresh * p * (1 - p))
			require.InDelta(t, fresh*p, first[i], 5*sigma, "%s %v backend %d", tc.alg.Name(), tc.weights, i)
		}
	}
}

// 1000 clients with ten backends and one pick each: with a common start one
// backend would get all 1000.
func TestReportHerdOfFreshClients(t *testing.T) {
	load := make([]int, 10)
	for range 1000 {
		b, err := New(Config{}, members(1, 1, 1, 1, 1, 1, 1, 1, 1, 1)...) // seeds itself
		require.NoError(t, err)
		load[picks(t, b, 1)[0]]++
	}
	// Binomial(1000, 1/10): 200 is 10.5 standard deviations above the mean.
	require.Less(t, slices.Max(load), 200, "%v", load)
}

// The same when all clients see the same member leave at the same moment.
func TestReportHerdAfterChange(t *testing.T) {
	load := make([]int, 10)
	for seed := range uint64(1000) {
		b := seeded(t, Config{}, seed, members(1, 1, 1, 1, 1, 1, 1, 1, 1, 1))
		picks(t, b, 3)
		require.NoError(t, b.Update(func(l []Backend[int]) []Backend[int] { return l[1:] }))
		load[picks(t, b, 1)[0]]++
	}
	require.Zero(t, load[0])
	require.Less(t, slices.Max(load), 200, "%v", load)
}

// https://github.com/grpc/grpc-java/pull/4462
// https://github.com/grpc/grpc-go/pull/2579
// A rebuild that changes nothing leaves no trace in the sequence.
func TestReportRebuildKeepsPosition(t *testing.T) {
	for _, alg := range []Algorithm{RoundRobin{}, WeightedRoundRobin{}} {
		list := members(5, 1, 2, 7)
		calm := seeded(t, Config{Algorithm: alg}, 3, list)
		busy := seeded(t, Config{Algorithm: alg}, 3, list)
		want := picks(t, calm, 100)
		var got []int
		for range want {
			require.NoError(t, busy.Set(list...))
			got = append(got, picks(t, busy, 1)[0])
		}
		require.Equal(t, want, got, alg.Name())
	}
}

// https://github.com/envoyproxy/envoy/pull/3271
// https://github.com/envoyproxy/envoy/pull/10063
// With a change before every single pick, late members are still reached and the
// shares still hold.
func TestReportFrequentRebuilds(t *testing.T) {
	for _, alg := range []Algorithm{RoundRobin{}, WeightedRoundRobin{}} {
		b := seeded(t, Config{Algorithm: alg}, 4, members(1, 1, 1, 1, 1, 1))
		load := make([]int, 6)
		const rounds = 6000
		for i := range rounds {
			require.NoError(t, b.Update(func(l []Backend[int]) []Backend[int] {
				l[5].State = State(i % 2 * int(Down)) // the last one flaps
				return l
			}))
			load[picks(t, b, 1)[0]]++
		}
		// The flapping one may be picked half of the time, so it gets 1/12, the
		// others 11/60 each. The bounds are a tenth of a share wide.
		for i := range 5 {
			require.InEpsilon(t, rounds*11.0/60, load[i], 0.1, "%s: %v", alg.Name(), load)
		}
		require.InEpsilon(t, rounds/12.0, load[5], 0.1, "%s: %v", alg.Name(), load)
	}
}

// A dead backend's share goes to all others alike, not to its neighbour.
func TestReportNoDoubleShareAfterFilter(t *testing.T) {
	b := seeded(t, Config{}, 5, members(1, 1, 1, 1, 1))
	require.NoError(t, b.Update(func(l []Backend[int]) []Backend[int] {
		l[1].State, l[2].State = Down, Drain
		return l
	}))
	require.Equal(t, map[int]int{0: 100, 3: 100, 4: 100}, shares(t, b, 300))
}

// The same for callers who find the backend dead themselves.
func TestReportNoDoubleShareAfterRetry(t *testing.T) {
	b := seeded(t, Config{}, 6, members(1, 1, 1, 1, 1))
	load := make([]int, 5)
	for range 400 {
		for l := range b.Walk(0) {
			if l.Value() != 2 {
				load[l.Value()]++
				break
			}
		}
	}
	require.Equal(t, []int{100, 100, 0, 100, 100}, load)
}

// https://github.com/dotnet/yarp/issues/198
// https://github.com/spring-cloud/spring-cloud-commons/issues/1074
// The counter wraps without a panic; size 3 does not divide 2^64, so one member
// may be repeated or skipped there, once.
func TestReportCounterWrap(t *testing.T) {
	b := seeded(t, Config{}, 7, members(1, 1, 1))
	b.turn.Store(math.MaxUint64 - 8)
	got := picks(t, b, 18)
	jumps := 0
	for i := 1; i < len(got); i++ {
		if got[i] != (got[i-1]+1)%3 {
			jumps++
		}
	}
	require.LessOrEqual(t, jumps, 1, "%v", got)

	b.turn.Store(math.MaxUint64)
	require.NoError(t, b.Set(members(1, 1, 1)...), "a rebuild at the wrap")
	require.Len(t, shares(t, b, 4), 3)
	b.turn.Store(math.MaxUint64 - 1)
	seen := map[int]bool{}
	for l := range b.Walk(0) {
		seen[l.Value()] = true
	}
	require.Len(t, seen, 3, "a walk over the wrap")
}
