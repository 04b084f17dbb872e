package maglev

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func equal(n int) []Member {
	out := make([]Member, n)
	for i := range out {
		out[i] = Member{fmt.Sprint("backend-", i), 1}
	}
	return out
}

func slots(table []uint32, n int) []int {
	out := make([]int, n)
	for _, m := range table {
		out[m]++
	}
	return out
}

func TestCheck(t *testing.T) {
	for _, good := range []int{2, 3, 251, 16381, 65537, 655373, 8388593} {
		require.NoError(t, Check(good))
	}
	for _, bad := range []int{-7, 0, 1, 4, 65536, 65537 * 3, 8388617} {
		require.Error(t, Check(bad), bad)
	}
	require.EqualError(t, Check(100), "size 100: want a prime from 2 to 8388608")
}

func TestBuildWithout(t *testing.T) { require.Empty(t, Build(7, 1, nil)) }

// The slots of a small table, computed by a second implementation in another
// language. Tables of a fleet, and of the kernel rules of its nodes, must agree.
func TestBuildGolden(t *testing.T) {
	members := []Member{{"a", 1}, {"b", 1}, {"c", 1}}
	require.Equal(t, goldenEqual, Build(13, 0, members))
	members = []Member{{"a", 3}, {"b", 1}, {"c", 2}}
	require.Equal(t, goldenWeighted, Build(13, 7, members))
}

// Shares within two slots of the ideal, for any weights, and a slot for everybody.
func TestShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{251, 1009, 4099}).Draw(t, "size")
		top := rapid.SampledFrom([]uint32{1, 3, 256}).Draw(t, "top")
		weights := rapid.SliceOfN(rapid.Uint32Range(1, top), 1, 40).Draw(t, "weights")
		members := equal(len(weights))
		total := 0.0
		for i, w := range weights {
			members[i].Weight = w
			total += float64(w)
		}
		for i, n := range slots(Build(size, rapid.Uint64().Draw(t, "seed"), members), len(members)) {
			require.GreaterOrEqual(t, n, 1)
			ideal := float64(size) * float64(weights[i]) / total
			require.Less(t, math.Abs(float64(n)-ideal), 2+float64(len(weights))*float64(weights[i])/total, "weights %v, member %d", weights, i)
		}
	})
}

func TestOrderOfListPlaysNoRole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := equal(rapid.IntRange(1, 20).Draw(t, "n"))
		for i := range members {
			members[i].Weight = rapid.Uint32Range(1, 5).Draw(t, "weight")
		}
		shuffled := rapid.Permutation(members).Draw(t, "shuffled")
		seed := rapid.Uint64().Draw(t, "seed")
		one, two := Build(251, seed, members), Build(251, seed, shuffled)
		for i := range one {
			require.Equal(t, members[one[i]].Key, shuffled[two[i]].Key, "slot %d", i)
		}
	})
}

func TestSeedMatters(t *testing.T) {
	require.NotEqual(t, Build(251, 1, equal(5)), Build(251, 2, equal(5)))
}

// When one of n leaves, the slots of others that change their owner stay within
// twice what was measured for this algorithm.
func TestDisruption(t *testing.T) {
	for _, tc := range []struct {
		size, n int
		most    float64
	}{{16381, 10, 0.013}, {16381, 100, 0.025}, {65537, 10, 0.005}, {65537, 100, 0.011}, {65537, 1000, 0.013}} {
		t.Run(fmt.Sprint(tc.size, "/", tc.n), func(t *testing.T) {
			members := equal(tc.n)
			gone := tc.n / 2
			before := Build(tc.size, 3, members)
			after := Build(tc.size, 3, slices.Delete(slices.Clone(members), gone, gone+1))
			moved := 0
			for i, m := range before {
				to := int(after[i])
				if to >= gone {
					to++
				}
				if int(m) != gone && to != int(m) {
					moved++
				}
			}
			require.Less(t, float64(moved)/float64(tc.size), tc.most)
		})
	}
}

// BenchmarkBuild is one rebuild; the floor is filling a table of the size at
// random places.
func BenchmarkBuild(b *testing.B) {
	for _, size := range []int{16381, 65537, 655373} {
		b.Run(fmt.Sprintf("floor/size=%d", size), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 2))
			for b.Loop() {
				table := make([]uint32, size)
				for i := range table {
					table[r.IntN(size)] = uint32(i)
				}
			}
		})
		for _, n := range []int{3, 100, 10_000} {
			b.Run(fmt.Sprintf("size=%d/n=%d", size, n), func(b *testing.B) {
				members := equal(n)
				b.ReportAllocs()
				for b.Loop() {
					Build(size, 1, members)
				}
			})
		}
	}
}
