package lb

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// deviation returns the largest |turns - ideal| of any backend after any prefix of
// the lap, computed the slow way.
func deviation(weights []int, lap []uint32) float64 {
	total := 0
	for _, w := range weights {
		total += w
	}
	taken := make([]int, len(weights))
	worst := 0.0
	for t, who := range lap {
		taken[who]++
		for i, w := range weights {
			worst = max(worst, math.Abs(float64(taken[i])-float64(t+1)*float64(w)/float64(total)))
		}
	}
	return worst
}

func drawWeights(t *rapid.T) []int {
	top := rapid.SampledFrom([]int{1, 2, 5, 17, MaxWeight}).Draw(t, "top")
	return rapid.SliceOfN(rapid.IntRange(1, top), 1, 24).Draw(t, "weights")
}

// Tijdeman's bound 1 - 1/(2n-2) on every prefix, and the exact shares of a lap.
func TestWeightedLap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := drawWeights(t)
		lap := schedule(weights)

		div, total := 0, 0
		for _, w := range weights {
			div, total = gcd(div, w), total+w
		}
		require.Len(t, lap, total/div)
		turns := make([]int, len(weights))
		for _, who := range lap {
			turns[who] += div
		}
		require.Equal(t, weights, turns)

		if n := len(weights); n > 1 {
			bound := 1 - 1/float64(2*n-2)
			require.LessOrEqual(t, deviation(weights, lap), bound+1e-9)
		}
	})
}

// Over 20,000 random sets of weights: exact shares of a lap, below 1 off the ideal
// at every turn from its start, and below 2 from any other turn to any later one.
func TestWeightedLapManySets(t *testing.T) {
	const sets = 20_000
	r := rand.New(rand.NewPCG(3, 4))
	worst, worstAny := 0.0, 0.0
	for set := range sets {
		most, top := 8, 12
		if set%200 == 0 {
			most, top = 24, MaxWeight
		}
		weights := make([]int, 1+r.IntN(most))
		total, divisor := 0, 0
		for i := range weights {
			weights[i] = 1 + r.IntN(top)
			total, divisor = total+weights[i], gcd(divisor, weights[i])
		}
		lap := schedule(weights)
		if len(lap)*divisor != total {
			t.Fatalf("%v: a lap of %d turns", weights, len(lap))
		}
		for i, w := range weights {
			// The difference of two turns' errors is the error of what lies between, so the
			// largest and the least error of a lap bound those of all stretches.
			taken, low, high := 0, 0.0, 0.0
			for at, who := range lap {
				if int(who) == i {
					taken++
				}
				off := float64(taken) - float64(at+1)*float64(w)/float64(total)
				low, high = min(low, off), max(high, off)
			}
			if taken*divisor != w {
				t.Fatalf("%v: backend %d has %d turns", weights, i, taken)
			}
			worst, worstAny = max(worst, high, -low), max(worstAny, high-low)
		}
	}
	t.Logf("%d sets of weights: at most %.3f off from the start, %.3f from any turn", sets, worst, worstAny)
	require.Less(t, worst, 1.0)
	require.Less(t, worstAny, 2.0)
}

// Cases in which other schedules go wrong: the heaviest in one block (LVS), equal
// light ones in a clump (heap by deadline), weights that are rounded away (stride).
func TestWeightedLapHardCases(t *testing.T) {
	heavyAndLight := []int{256, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
	random := make([]int, 100)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range random {
		random[i] = 1 + r.IntN(MaxWeight)
	}
	for name, weights := range map[string][]int{
		"5,1,1": {5, 1, 1}, "21,11": {21, 11}, "99,1": {99, 1}, "256 and ten of 1": heavyAndLight, "100 random": random,
	} {
		t.Run(name, func(t *testing.T) {
			lap := schedule(weights)
			require.Less(t, deviation(weights, lap), 1.0)
		})
	}
}

func TestLapsOfFew(t *testing.T) {
	require.Empty(t, schedule(nil))
	require.Equal(t, []uint32{0}, schedule([]int{MaxWeight}))
	require.Equal(t, []uint32{0, 1}, schedule([]int{256, 256}), "256:256 is 1:1")
}

// Equal backends alternate: no one gets its second turn before all had the first.
// The shortcut for them gives what the algorithm itself would.
func TestWeightedLapOfEqualsIsRoundRobin(t *testing.T) {
	for _, n := range []int{2, 3, 10, 100} {
		weights, want := make([]int, n), make([]uint32, n)
		for i := range weights {
			weights[i], want[i] = 3, uint32(i)
		}
		require.Equal(t, want, schedule(weights), "n=%d", n)
		g, _ := grouped(t, WeightedRoundRobin{}, weights...)
		require.Equal(t, want, g.schedule(), "n=%d", n)
	}
}

func TestRescale(t *testing.T) {
	never := func(n uint64) uint64 { return n - 1 }
	always := func(uint64) uint64 { return 0 }
	for _, tc := range []struct{ pos, from, to, down, up uint64 }{
		{0, 3, 3, 0, 0},
		{2, 3, 3, 2, 2},
		{3, 10, 9, 2, 3},    // 2.7
		{9, 10, 3, 2, 0},    // 2.7, rounded up is the next lap
		{1, 3, 100, 33, 34}, // 33.3
		{50, 100, 1, 0, 0},  // 0.5
		{1 << 31, 1 << 32, 1 << 33, 1 << 32, 1 << 32},
	} {
		require.Equal(t, tc.down, rescale(tc.pos, tc.from, tc.to, never), "%+v", tc)
		require.Equal(t, tc.up, rescale(tc.pos, tc.from, tc.to, always), "%+v", tc)
	}
}

func BenchmarkSchedule(b *testing.B) {
	for _, n := range []int{3, 100, 10_000} {
		weights := make([]int, n)
		for i := range weights {
			weights[i] = 1 + i%10
		}
		b.Run(sizeName(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				schedule(weights)
			}
		})
	}
}
