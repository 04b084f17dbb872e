package lb

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func sizeName(n int) string { return fmt.Sprintf("n=%d", n) }

// members gives backends a, b, c, ... one weight each.
func members(weights ...int) []Backend[int] {
	out := make([]Backend[int], len(weights))
	for i, w := range weights {
		out[i] = Backend[int]{Key: fmt.Sprintf("%c", 'a'+i), Value: i, Weight: w}
	}
	return out
}

// seeded makes the starting point repeatable.
func seeded(t testing.TB, c Config, seed uint64, backends []Backend[int]) *Balancer[int] {
	c.Rand = rand.New(rand.NewPCG(seed, 0))
	b, err := New(c, backends...)
	require.NoError(t, err)
	return b
}

// picks returns the values of the next n picks.
func picks(t require.TestingT, b *Balancer[int], n int) []int {
	out := make([]int, n)
	for i := range out {
		l, err := b.Pick(0)
		require.NoError(t, err)
		out[i] = l.Value()
	}
	return out
}

// shares counts the values of the next n picks.
func shares(t require.TestingT, b *Balancer[int], n int) map[int]int {
	out := map[int]int{}
	for _, v := range picks(t, b, n) {
		out[v]++
	}
	return out
}

func TestZeroConfigIsRoundRobin(t *testing.T) {
	b, err := New(Config{}, members(1, 200, 3)...)
	require.NoError(t, err)
	got := picks(t, b, 300)
	for i := 1; i < len(got); i++ {
		require.Equal(t, (got[i-1]+1)%3, got[i], "pick %d", i)
	}
}

func TestWhoIsEligible(t *testing.T) {
	up, drain, down := members(1)[0], members(1)[0], members(1)[0]
	drain.State, down.State = Drain, Down
	weightless := members(0)[0]
	downWeightless := Backend[int]{Weight: 0, State: Down}
	const a, b, c, d = 0, 1, 2, 3
	for _, tc := range []struct {
		name   string
		policy Policy
		list   []Backend[int]
		want   []int // values that get picks; none: ErrEmpty
		mode   Mode
	}{
		{"none", PolicyEmpty, nil, nil, ModeEmpty},
		{"none, panic", PolicyPanic, nil, nil, ModeEmpty},
		{"only the one that is up", PolicyEmpty, []Backend[int]{drain, down, up, weightless}, []int{c}, ModeNormal},
		{"panic needs nobody up", PolicyPanic, []Backend[int]{drain, down, up, weightless}, []int{c}, ModeNormal},
		{"none is up", PolicyEmpty, []Backend[int]{drain, down, weightless, down}, nil, ModeEmpty},
		{"none is up, panic", PolicyPanic, []Backend[int]{drain, down, weightless, down}, []int{b, d}, ModePanic},
		{"a weight of 0 means no, also in panic", PolicyPanic, []Backend[int]{drain, downWeightless, weightless}, nil, ModeEmpty},
		{"drained by a person means no, also in panic", PolicyPanic, []Backend[int]{drain, drain}, nil, ModeEmpty},
	} {
		for _, alg := range []Algorithm{RoundRobin{}, WeightedRoundRobin{}} {
			t.Run(tc.name+"/"+alg.Name(), func(t *testing.T) {
				list := slices.Clone(tc.list)
				for i := range list {
					list[i].Key, list[i].Value = fmt.Sprint("k", i), i
				}
				bal := seeded(t, Config{Algorithm: alg, Policy: tc.policy}, 1, list)
				require.Equal(t, tc.mode, bal.Mode())
				require.Equal(t, list, append([]Backend[int](nil), bal.Backends()...))

				seen := map[int]bool{}
				for range 20 {
					l, err := bal.Pick(0)
					if len(tc.want) == 0 {
						require.ErrorIs(t, err, ErrEmpty)
						require.Zero(t, l)
						continue
					}
					require.NoError(t, err)
					require.Equal(t, tc.mode, l.Mode())
					require.Equal(t, fmt.Sprint("k", l.Value()), l.Key())
					seen[l.Value()] = true
				}
				for _, v := range tc.want {
					require.True(t, seen[v], "%d was never picked", v)
				}
				require.Len(t, seen, len(tc.want))
			})
		}
	}
}

func TestValidation(t *testing.T) {
	good := members(1, 2)
	b := seeded(t, Config{}, 1, good)

	bad := []Backend[int]{
		{Key: "a", Weight: -1},
		{Key: "", Weight: 1},
		{Key: "a", Weight: 257, State: 9},
		{Key: "ok", Weight: 256},
	}
	wants := []struct {
		index int
		err   error
		text  string
	}{
		{0, ErrWeight, `lb: backend 0 "a": weight -1: weight is out of range: want 0 to 256`},
		{1, ErrNoKey, `lb: backend 1 "": key is empty: give each backend one`},
		{2, ErrDuplicateKey, `lb: backend 2 "a": same key as backend 0: key is already taken: give each backend its own`},
		{2, ErrWeight, `lb: backend 2 "a": weight 257: weight is out of range: want 0 to 256`},
		{2, ErrState, `lb: backend 2 "a": state(9): state is unknown: want Up, Drain or Down`},
	}
	verify := func(t *testing.T, err error) {
		joined, ok := err.(interface{ Unwrap() []error })
		require.True(t, ok)
		faults := joined.Unwrap()
		require.Len(t, faults, len(wants))
		for i, w := range wants {
			var be *BackendError
			require.ErrorAs(t, faults[i], &be)
			require.Equal(t, w.index, be.Index)
			require.ErrorIs(t, be, w.err)
			require.EqualError(t, be, w.text)
		}
	}

	t.Run("Set", func(t *testing.T) {
		verify(t, b.Set(bad...))
		require.Equal(t, good, b.Backends(), "a refused list changes nothing")
		require.Len(t, shares(t, b, 4), 2)
	})
	t.Run("Update", func(t *testing.T) {
		verify(t, b.Update(func([]Backend[int]) []Backend[int] { return bad }))
		require.Equal(t, good, b.Backends())
	})
	t.Run("New", func(t *testing.T) {
		_, err := New(Config{Policy: PolicyFailStatic + 1}, bad...)
		require.ErrorIs(t, err, ErrConfig)
		for _, w := range wants {
			require.ErrorIs(t, err, w.err)
		}
	})
}

func TestListsAreCopied(t *testing.T) {
	list := members(1, 1)
	b := seeded(t, Config{}, 1, list)
	list[0].State = Down
	require.Equal(t, Up, b.Backends()[0].State, "New")

	require.NoError(t, b.Set(list...))
	list[0].State = Drain
	require.Equal(t, Down, b.Backends()[0].State, "Set")

	b.Backends()[0].State = Up
	require.Equal(t, Down, b.Backends()[0].State, "Backends")

	var kept []Backend[int]
	require.NoError(t, b.Update(func(l []Backend[int]) []Backend[int] { kept = l; return l }))
	kept[0].State = Up
	require.Equal(t, Down, b.Backends()[0].State, "Update")
}

// Shares within any window of picks, not only from the start of a lap.
func TestSharesFromAnyStart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := drawWeights(t)
		b, err := New(Config{Algorithm: WeightedRoundRobin{}, Rand: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))}, members(weights...)...)
		require.NoError(t, err)
		total := 0
		for _, w := range weights {
			total += w
		}
		taken := make([]int, len(weights))
		for n, who := range picks(t, b, 2*total) {
			taken[who]++
			for i, w := range weights {
				ideal := float64(n+1) * float64(w) / float64(total)
				require.Less(t, math.Abs(float64(taken[i])-ideal), 2.0)
			}
		}
		for i, w := range weights {
			require.Equal(t, 2*w, taken[i], "two whole laps give exact shares")
		}
	})
}

func TestWalk(t *testing.T) {
	t.Run("each eligible backend once", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			list := members(drawWeights(t)...)
			var want []int
			for i := range list {
				list[i].State = rapid.SampledFrom([]State{Up, Up, Drain, Down}).Draw(t, "state")
				if list[i].State == Up {
					want = append(want, i)
				}
			}
			alg := rapid.SampledFrom([]Algorithm{RoundRobin{}, WeightedRoundRobin{}}).Draw(t, "algorithm")
			b, err := New(Config{Algorithm: alg}, list...)
			require.NoError(t, err)
			var got []int
			for l := range b.Walk(0) {
				got = append(got, l.Value())
			}
			require.ElementsMatch(t, want, got)
		})
	})
	t.Run("takes one turn per step", func(t *testing.T) {
		b := seeded(t, Config{}, 8, members(1, 1, 1, 1))
		first := picks(t, b, 1)[0]
		var walked []int
		for l := range b.Walk(0) {
			walked = append(walked, l.Value())
			if len(walked) == 2 {
				break
			}
		}
		require.Equal(t, []int{(first + 1) % 4, (first + 2) % 4}, walked)
		require.Equal(t, (first+3)%4, picks(t, b, 1)[0])
	})
	t.Run("others picking meanwhile cause no repetition", func(t *testing.T) {
		b := seeded(t, Config{}, 9, members(1, 1, 1, 1))
		var walked []int
		for l := range b.Walk(0) {
			walked = append(walked, l.Value())
			picks(t, b, 3) // the next turn is that of the one just tried
		}
		require.ElementsMatch(t, []int{0, 1, 2, 3}, walked)
	})
	t.Run("sees the list as it was", func(t *testing.T) {
		b := seeded(t, Config{}, 10, members(1, 1, 1))
		n := 0
		for range b.Walk(0) {
			require.NoError(t, b.Set())
			n++
		}
		require.Equal(t, 3, n)
		for range b.Walk(0) {
			t.Fatal("a walk over no backends yields nothing")
		}
	})
}

func TestCounts(t *testing.T) {
	counts := func(b *Balancer[int], key string) Counts {
		c, ok := b.Counts(key)
		require.True(t, ok)
		return c
	}
	t.Run("off by default", func(t *testing.T) {
		b := seeded(t, Config{}, 1, members(1))
		l, _ := b.Pick(0)
		l.Done(epoch, Result{})
		_, ok := b.Counts("a")
		require.False(t, ok)
	})
	t.Run("once per lease", func(t *testing.T) {
		b := seeded(t, Config{Count: true}, 1, members(1))
		one, _ := b.Pick(0)
		two, _ := b.Pick(0)
		require.Equal(t, Counts{Open: 2}, counts(b, "a"))
		one.Done(epoch, Result{Failed: true})
		one.Done(epoch, Result{Failed: true})
		require.Equal(t, Counts{Open: 1, Finished: 1, Failed: 1}, counts(b, "a"))
		two.Done(epoch, Result{})
		require.Equal(t, Counts{Finished: 2, Failed: 1}, counts(b, "a"))
		require.Equal(t, 0, one.Value(), "a finished lease can still be read")
		require.Equal(t, "a", one.Key())
	})
	t.Run("kept while the key stays", func(t *testing.T) {
		b := seeded(t, Config{Count: true}, 1, members(1))
		l, _ := b.Pick(0)
		require.NoError(t, b.Set(Backend[int]{Key: "z", Weight: 1}, Backend[int]{Key: "a", State: Drain}))
		require.Equal(t, Counts{Open: 1}, counts(b, "a"), "a drained backend still shows its connections")
		l.Done(epoch, Result{})
		require.Equal(t, Counts{Finished: 1}, counts(b, "a"))
	})
	t.Run("a release after removal touches nobody", func(t *testing.T) {
		b := seeded(t, Config{Count: true}, 1, members(1))
		l, _ := b.Pick(0)
		require.NoError(t, b.Set())
		_, ok := b.Counts("a")
		require.False(t, ok)
		require.NoError(t, b.Set(members(1)...))
		l.Done(epoch, Result{})
		require.Equal(t, Counts{}, counts(b, "a"), "a key added again starts afresh")
	})
	t.Run("walks count", func(t *testing.T) {
		b := seeded(t, Config{Count: true}, 1, members(1, 1))
		for l := range b.Walk(0) {
			l.Done(epoch, Result{Failed: true})
		}
		require.Equal(t, Counts{Finished: 1, Failed: 1}, counts(b, "a"))
		require.Equal(t, Counts{Finished: 1, Failed: 1}, counts(b, "b"))
	})
	t.Run("zero lease", func(t *testing.T) {
		var l Lease[int]
		l.Done(epoch, Result{})
		require.Zero(t, l.Value())
		require.Empty(t, l.Key())
		require.Equal(t, ModeNormal, l.Mode())
	})
}

// Pick, Walk, Set and the readers at the same time, for the race detector; after
// it every lease is accounted for, and no pick ever saw a half-made list.
func TestConcurrentUse(t *testing.T) {
	b, err := New(Config{Algorithm: WeightedRoundRobin{}, Count: true}, members(3, 1, 2)...)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				l, err := b.Pick(0)
				if err != nil || l.Value() != int(l.Key()[0]-'a') {
					panic(fmt.Sprint("a lease of mixed lists: ", l.Key(), l.Value(), err))
				}
				l.Done(epoch, Result{})
				for l := range b.Walk(0) {
					l.Done(epoch, Result{Failed: true})
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 500 {
			list := members(3, 1, 2)
			list[1].State = State(i % 3)
			if err := b.Set(list...); err != nil {
				panic(err)
			}
			b.Backends()
			b.Mode()
		}
	})
	wg.Wait()
	for _, key := range []string{"a", "b", "c"} {
		c, ok := b.Counts(key)
		require.True(t, ok)
		require.Zero(t, c.Open, key)
	}
}

// Concurrent updates are all applied.
func TestUpdateLosesNothing(t *testing.T) {
	b := seeded(t, Config{}, 1, nil)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if err := b.Update(func(l []Backend[int]) []Backend[int] {
				return append(l, Backend[int]{Key: fmt.Sprint(i), Weight: 1})
			}); err != nil {
				panic(err)
			}
		})
	}
	wg.Wait()
	require.Len(t, b.Backends(), 20)
}

func TestPickDoesNotAllocate(t *testing.T) {
	for _, c := range []Config{{}, {Algorithm: WeightedRoundRobin{}}, {Count: true}} {
		b, err := New(c, members(5, 1, 2)...)
		require.NoError(t, err)
		require.Zero(t, testing.AllocsPerRun(1000, func() {
			l, _ := b.Pick(0)
			_ = l.Value()
			l.Done(epoch, Result{})
		}))
		require.NoError(t, b.Set())
		require.Zero(t, testing.AllocsPerRun(1000, func() {
			if _, err := b.Pick(0); err == nil {
				panic("no backend, but a lease")
			}
		}))
	}
}
