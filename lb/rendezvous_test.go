package lb

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var managers = []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"}

// letters writes A for the first of managers, B for the second, ...
func letters(hosts []string) string {
	var b strings.Builder
	for _, h := range hosts {
		b.WriteByte(byte('A' + slices.Index(managers, h)))
	}
	return b.String()
}

// Lists that fleets store; every version on every machine must give them again.
// Computed by a second implementation in another language.
func TestRendezvousGolden(t *testing.T) {
	for _, tc := range []struct {
		key, three, four, weighted string
		scores                     [3]uint64
		weightedScores             [4]uint64 // bits, weights 1, 2, 5, 256
	}{
		{"1", "CAB", "CADB", "DCAB",
			[3]uint64{0xc8598db803e28315, 0x459afe145bcf7b06, 0xeabe1a4abc1c765f},
			[4]uint64{0x3fcf5fd8c80914e1, 0x3fe4d65cf05eb1c8, 0x3f91c0f1457a2781, 0x3f6050d77617d203}},
		{"5", "CAB", "CADB", "DCAB",
			[3]uint64{0xaae839f151d416ea, 0x1b496be2ca4d3e96, 0xb3a28ace79554942},
			[4]uint64{0x3fd9dc125b139817, 0x3ff1e9027e1ecf79, 0x3fb2233c7e9d53fd, 0x3f789971d77cd399}},
		{"10", "BCA", "BDCA", "DBCA",
			[3]uint64{0x5c8f0b8f01099731, 0xeceab87f815d9758, 0x7ea1ac38d52b32e1},
			[4]uint64{0x3ff046ffa5fd49d1, 0x3fa3d4f2e8bedcf1, 0x3fc2050d52d1052b, 0x3f661d75a89cf960}},
		{"20", "ACB", "DACB", "DCBA",
			[3]uint64{0x406a50dc4d36c1f6, 0x26e4cc43e6bd8d0e, 0x2734099477fdd5c6},
			[4]uint64{0x3ff613c4c31a6336, 0x3fee2645fbb3be5a, 0x3fd804a4e0b4f846, 0x3f13db79a5510920}},
		{"agent-a", "BAC", "BADC", "DBAC",
			[3]uint64{0xe6cc999f76273a3c, 0xf5fffc2463b09c52, 0x672adc0e3b3c2705},
			[4]uint64{0x3fba877309a4c654, 0x3f9466b6dbb1b875, 0x3fc74412382fb32e, 0x3f60f74db1122cdb}},
		{"agent-b", "ABC", "ABDC", "DCAB",
			[3]uint64{0x92344ee436fec77e, 0x478a0b9f9d3c1684, 0x28b41f8a1e4db335},
			[4]uint64{0x3fe1ecee6fa23db2, 0x3fe4661e6691fe00, 0x3fd789943332600c, 0x3f781b07290f6806}},
	} {
		t.Run(tc.key, func(t *testing.T) {
			require.Equal(t, tc.three, letters(Rendezvous{}.Arrange(managers[:3], 0, tc.key)))
			require.Equal(t, tc.four, letters(Rendezvous{}.Arrange(managers[:4], 0, tc.key)))
			for i, want := range tc.scores {
				require.Equal(t, want, mix64(fnv64(rendezvousPrefix(tc.key), managers[i])))
			}
			weights := map[string]int{}
			for i, w := range []int{1, 2, 5, 256} {
				weights[managers[i]] = w
				h := mix64(fnv64(rendezvousPrefix(tc.key), managers[i]))
				require.Equal(t, tc.weightedScores[i], math.Float64bits(weightedScore(h, w)))
			}
			require.Equal(t, tc.weighted, letters(weighted(weights).Arrange(managers[:4], 0, tc.key)))
		})
	}
}

// Equal to the last bit with a second implementation, in a language that never
// fuses operations; and close to the true logarithm.
func TestLogarithm(t *testing.T) {
	for x, bits := range map[float64]uint64{
		0x1p-54:              0xc042b708872320e2,
		1e-10:                0xc037069e2aa2aa5a,
		0.1:                  0xc0026bb1bbb55515,
		0.25:                 0xbff62e42fefa39ef,
		0.3:                  0xbff34378fcbda720,
		0.5:                  0xbfe62e42fefa39ef,
		0.6:                  0xbfe058aefa811452,
		0x1.6a09e667f3bccp-1: 0xbfd62e42fefa39f1,
		0x1.6a09e667f3bcdp-1: 0xbfd62e42fefa39ee,
		0.9:                  0xbfbaf8e8210a415b,
		0.999999:             0xbeb0c6f82d74d22f,
		0x1.fffffffffffffp-1: 0xbca0000000000000,
		1:                    0,
	} {
		require.Equal(t, bits, math.Float64bits(logarithm(x)), "%v", x)
	}
	rapid.Check(t, func(t *rapid.T) {
		x := (float64(rapid.Uint64().Draw(t, "h")>>11) + 0.5) / (1 << 53)
		want := math.Log(x)
		require.InDelta(t, want, logarithm(x), 4*(math.Nextafter(math.Abs(want), math.Inf(1))-math.Abs(want)))
	})
}

func TestWeightedRendezvousWeights(t *testing.T) {
	_, err := NewWeightedRendezvous(map[string]int{"a": -1, "b": 256, "c": 257, "d": 0})
	require.ErrorIs(t, err, ErrHostWeight)
	require.EqualError(t, err, `lb: weight of a host is out of range: want 0 to 256: host "a" has weight -1
lb: weight of a host is out of range: want 0 to 256: host "c" has weight 257`)

	weights := map[string]int{"10.0.0.1": 0, "10.0.0.2": 4}
	order := weighted(weights)
	weights["10.0.0.1"] = 256
	first := map[string]int{}
	const agents = 20_000
	for i := range agents {
		list := order.Arrange(managers[:3], 0, fmt.Sprint(i))
		require.Equal(t, managers[0], list[2], "weight 0 stands last, and the map was copied")
		first[list[0]]++
	}
	require.InDelta(t, agents*4/5, first[managers[1]], 5*math.Sqrt(agents*.8*.2), "4:1, the unnamed host has weight 1")

	for i := range 1000 {
		key := fmt.Sprint(i)
		require.Equal(t, Rendezvous{}.Arrange(managers, 0, key), WeightedRendezvous{}.Arrange(managers, 0, key))
	}
}

// moved returns the share of 1200 agents whose preferred host differs, and of
// how many hosts the ones that had lost a host prefer now.
func moved(o order, before, after []string) float64 {
	n := 0
	for i := range 1200 {
		if o.Arrange(before, i, fmt.Sprint(i))[0] != o.Arrange(after, i, fmt.Sprint(i))[0] {
			n++
		}
	}
	return float64(n) / 1200
}

// Rendezvous moves about the share that no order can avoid to move, within 5
// standard deviations; round robin moves most agents.
func TestMovement(t *testing.T) {
	five := managers
	for _, tc := range []struct {
		name          string
		before, after []string
		least         float64
	}{
		{"3 to 4, appended", five[:3], five[:4], 1. / 4},
		{"3 to 4, prepended", five[1:4], five[:4], 1. / 4},
		{"3 to 2, last dropped", five[:3], five[:2], 1. / 3},
		{"3 to 2, first dropped", five[:3], five[1:3], 1. / 3},
		{"4 to 5, appended", five[:4], five, 1. / 5},
		{"first two swapped", five[:2], []string{five[1], five[0]}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, o := range []order{Rendezvous{}, WeightedRendezvous{}} {
				require.InDelta(t, tc.least, moved(o, tc.before, tc.after), 5*math.Sqrt(tc.least*(1-tc.least)/1200), o.Name())
			}
			require.Greater(t, moved(RoundRobin{}, tc.before, tc.after), 0.6, "else the test would prove nothing")
		})
	}
}

// A host that leaves changes nothing in the order of the others, so exactly its
// own agents move; likewise for one that joins.
func TestRendezvousMovesOnlyTheLeaversAgents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}`), 1, 12, rapid.ID).Draw(t, "hosts")
		key := rapid.String().Draw(t, "key")
		leaver := rapid.SampledFrom(hosts).Draw(t, "leaver")
		weights := map[string]int{}
		for _, h := range hosts {
			weights[h] = rapid.IntRange(0, MaxWeight).Draw(t, "weight")
		}
		rest := slices.DeleteFunc(slices.Clone(hosts), func(h string) bool { return h == leaver })
		shuffled := rapid.Permutation(hosts).Draw(t, "shuffled")
		for _, o := range []order{Rendezvous{}, weighted(weights)} {
			all := o.Arrange(hosts, 0, key)
			require.Equal(t, all, o.Arrange(shuffled, 7, key), "configured order plays no role")
			left := slices.DeleteFunc(slices.Clone(all), func(h string) bool { return h == leaver })
			require.Equal(t, left, o.Arrange(rest, 0, key))
		}
	})
}

// Raising one weight moves agents to that host only.
func TestWeightChangeMovesOneWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := map[string]int{}
		for _, h := range managers {
			weights[h] = rapid.IntRange(0, 100).Draw(t, "weight")
		}
		host := rapid.SampledFrom(managers).Draw(t, "host")
		before := weighted(weights)
		weights[host] += rapid.IntRange(1, 100).Draw(t, "more")
		after := weighted(weights)
		key := rapid.String().Draw(t, "key")
		if was, is := before.Arrange(managers, 0, key)[0], after.Arrange(managers, 0, key)[0]; was != is {
			require.Equal(t, host, is)
		}
	})
}

// The agents of a host that fails go to all others alike, not to one neighbour.
func TestRendezvousFailoverSpreads(t *testing.T) {
	for _, m := range []int{3, 5} {
		for failed := range m {
			orphans, next := 0, map[string]int{}
			for i := range 12_000 {
				list := Rendezvous{}.Arrange(managers[:m], 0, fmt.Sprint(i))
				if list[0] == managers[failed] {
					orphans++
					next[list[1]]++
				}
			}
			require.Len(t, next, m-1)
			p := 1 / float64(m-1)
			for host, n := range next {
				require.InDelta(t, float64(orphans)*p, n, 5*math.Sqrt(float64(orphans)*p*(1-p)), "%d hosts, %s fails: %s", m, managers[failed], host)
			}
		}
	}
}
