package lb

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// leastModel is LeastConn the naive way: a scan of all.
type leastModel struct {
	list []Backend[int]
	open map[string]int
	last map[string]int
	turn int
}

func (m *leastModel) pick() string {
	best := -1
	for i, b := range m.list {
		if b.State != Up || b.Weight == 0 || b.MaxConns > 0 && m.open[b.Key] >= b.MaxConns {
			continue
		}
		if best < 0 {
			best = i
			continue
		}
		x, y := (m.open[b.Key]+1)*m.list[best].Weight, (m.open[m.list[best].Key]+1)*b.Weight
		if x < y || x == y && m.last[b.Key] < m.last[m.list[best].Key] {
			best = i
		}
	}
	if best < 0 {
		return ""
	}
	m.turn++
	m.last[m.list[best].Key] = m.turn
	m.open[m.list[best].Key]++
	return m.list[best].Key
}

// Any sequence of picks, ends and rebuilds gives what the scan gives: the tree is
// exact while nothing overlaps.
func TestLeastConnIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{1, 3, 8, 9, 70}).Draw(t, "n")
		list := make([]Backend[int], n)
		for i := range list {
			list[i] = Backend[int]{Key: fmt.Sprint(i), Weight: rapid.IntRange(0, 3).Draw(t, "weight"), MaxConns: rapid.SampledFrom([]int{0, 0, 2}).Draw(t, "limit")}
		}
		b, err := New(Config{Algorithm: LeastConn{}}, list...)
		require.NoError(t, err)
		model := leastModel{list, map[string]int{}, map[string]int{}, 0}
		var open []Lease[int]
		t.Repeat(map[string]func(*rapid.T){
			"pick": func(t *rapid.T) {
				l, err := b.Pick(0)
				require.Equal(t, model.pick(), l.Key())
				if err == nil {
					open = append(open, l)
				}
			},
			"done": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				model.open[open[i].Key()]--
				open[i].Done(epoch, Result{})
				open = slices.Delete(open, i, i+1)
			},
			"flip": func(t *rapid.T) {
				i := rapid.IntRange(0, n-1).Draw(t, "backend")
				model.list[i].State ^= Down
				require.NoError(t, b.Set(model.list...))
			},
		})
	})
}

// The same over a long run with a tree of several levels, in which backends rise to
// the top by the end of a lease while they lead their part of it.
func TestLeastConnIsExactInDeepTrees(t *testing.T) {
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 1))
		list := many(70 + 500*int(seed%2))
		for i := range list {
			list[i].Weight = 1 + r.IntN(1+2*int(seed/2))
		}
		b := seeded(t, Config{Algorithm: LeastConn{}}, seed, list)
		model := leastModel{list, map[string]int{}, map[string]int{}, 0}
		var open []Lease[int]
		for step := range 4000 {
			if i := r.IntN(1 + 2*len(open)); i < len(open) && step > 1000 {
				model.open[open[i].Key()]--
				open[i].Done(epoch, Result{})
				open = slices.Delete(open, i, i+1)
				continue
			}
			l, err := b.Pick(0)
			require.NoError(t, err)
			require.Equal(t, model.pick(), l.Key(), "seed %d step %d", seed, step)
			open = append(open, l)
		}
	}
}

// scan returns the answer of a scan over the present loads.
func (t *tree) scan() int {
	best := 0
	for i := range t.members {
		if t.better(i, best) {
			best = i
		}
	}
	return best
}

// Many at once: no backend gets further ahead than there are pickers, and when
// they rest the tree is exact again, in every node on the way to the root.
func TestLeastConnConcurrently(t *testing.T) {
	const pickers, n = 4, 200
	list := make([]Backend[int], n)
	for i := range list {
		list[i] = Backend[int]{Key: fmt.Sprint(i), Value: i, Weight: 1}
	}
	for round := range uint64(5) {
		b := seeded(t, Config{Algorithm: LeastConn{}, Count: true}, round, list)
		var wg sync.WaitGroup
		for range pickers {
			wg.Go(func() {
				for range 5 * n {
					_, _ = b.Pick(0)
				}
			})
		}
		wg.Wait()
		low, high := ^uint64(0), uint64(0)
		for _, be := range list {
			c, _ := b.Counts(be.Key)
			low, high = min(low, c.Open), max(high, c.Open)
		}
		require.LessOrEqual(t, high-low, uint64(1+pickers))

		// Now with ends and rebuilds between.
		for g := range uint64(pickers) {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(round, g))
				var held []Lease[int]
				for range 2000 {
					if l, err := b.Pick(0); err == nil {
						held = append(held, l)
					}
					if i := r.IntN(2 * len(held)); i < len(held) {
						held[i].Done(epoch, Result{})
						held = slices.Delete(held, i, i+1)
					}
				}
			})
		}
		wg.Go(func() {
			for i := range 50 {
				changed := slices.Clone(list)
				changed[i].State = Down
				if err := b.Set(changed[:n-i]...); err != nil {
					panic(err)
				}
			}
		})
		wg.Wait()
		tr := b.current.Load().picker.(*tree)
		require.Equal(t, tr.scan(), int(uint32(tr.levels[len(tr.levels)-1][0].Load())))
		for depth, level := range tr.levels {
			for i := range level {
				require.Equal(t, tr.best(depth, i), int(uint32(level[i].Load())), "level %d node %d", depth, i)
			}
		}
	}
}

// A lease that began under an older list, or ends after its backend left, is
// counted where the backend stands now.
func TestLeastConnAcrossRebuilds(t *testing.T) {
	b := seeded(t, Config{Algorithm: LeastConn{}}, 1, members(1, 1))
	first, _ := b.Pick(0)
	second, _ := b.Pick(0)
	require.NotEqual(t, first.Value(), second.Value())
	require.NoError(t, b.Set(members(1, 1, 1)...))
	third, _ := b.Pick(0)
	require.Equal(t, 2, third.Value(), "the new one is the only idle one")
	first.Done(epoch, Result{})
	again, _ := b.Pick(0)
	require.Equal(t, first.Value(), again.Value())

	require.NoError(t, b.Set(members(1)...))
	require.NoError(t, b.Set())
	for _, l := range []Lease[int]{second, third, again} {
		l.Done(epoch, Result{})
	}
	_, err := b.Pick(0)
	require.ErrorIs(t, err, ErrEmpty)
}
