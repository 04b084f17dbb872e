package lb

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func sticky(t require.TestingT, b *Balancer[int], size int) *Sticky[int] {
	s, err := NewSticky(b, size)
	require.NoError(t, err)
	return s
}

// to returns the backend of a key and ends the lease.
func to(t require.TestingT, s *Sticky[int], key uint64) string {
	l, err := s.Pick(key)
	require.NoError(t, err)
	l.Done(epoch, Result{})
	return l.Key()
}

func TestStickySize(t *testing.T) {
	b := seeded(t, Config{}, 1, members(1))
	for _, bad := range []int{-1, 0, MaxSticky + 1} {
		_, err := NewSticky(b, bad)
		require.ErrorIs(t, err, ErrSticky)
	}
	require.Len(t, sticky(t, b, 5).slots, 8)
}

func TestStickyStays(t *testing.T) {
	each(t, func(t *testing.T, alg Algorithm) {
		b := seeded(t, Config{Algorithm: alg}, 1, members(1, 1, 1))
		s := sticky(t, b, 4096)
		first := map[uint64]string{}
		for key := range uint64(100) {
			first[key] = to(t, s, key)
		}
		require.NoError(t, b.Set(members(1, 1, 1, 1, 1)...))
		for key := range uint64(100) {
			require.Equal(t, first[key], to(t, s, key), "those who join take no keys")
		}
	})
}

// What a key remembers, by what happened to its backend between two picks.
func TestStickyEnds(t *testing.T) {
	drained := func(l []Backend[int]) []Backend[int] { l[0].State = Drain; return l }
	for _, tc := range []struct {
		name   string
		events []func([]Backend[int]) []Backend[int]
		stays  bool
	}{
		{"nothing", nil, true},
		{"drained", []func([]Backend[int]) []Backend[int]{drained}, true},
		{"without weight", []func([]Backend[int]) []Backend[int]{func(l []Backend[int]) []Backend[int] { l[0].Weight = 0; return l }}, true},
		{"moved in the list", []func([]Backend[int]) []Backend[int]{func(l []Backend[int]) []Backend[int] { slices.Reverse(l); return l }}, true},
		{"down", []func([]Backend[int]) []Backend[int]{func(l []Backend[int]) []Backend[int] { l[0].State = Down; return l }}, false},
		{"down and up again", []func([]Backend[int]) []Backend[int]{
			func(l []Backend[int]) []Backend[int] { l[0].State = Down; return l },
			func(l []Backend[int]) []Backend[int] { l[0].State = Up; return l },
		}, false},
		{"removed", []func([]Backend[int]) []Backend[int]{func(l []Backend[int]) []Backend[int] { return l[1:] }}, false},
		{"removed and added again", []func([]Backend[int]) []Backend[int]{
			func(l []Backend[int]) []Backend[int] { return l[1:] },
			func(l []Backend[int]) []Backend[int] { return append(members(1), l...) },
		}, false},
		{"now a backup", []func([]Backend[int]) []Backend[int]{func(l []Backend[int]) []Backend[int] { l[0].Tier = 1; return l }}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// Static sends every new key to the first, a; the others come after it.
			b := seeded(t, Config{Algorithm: Static{}}, 1, members(1, 1, 1))
			s := sticky(t, b, 64)
			require.Equal(t, "a", to(t, s, 7))
			for _, e := range tc.events {
				require.NoError(t, b.Update(e))
			}
			l, err := s.Pick(7)
			require.NoError(t, err)
			if tc.stays {
				require.Equal(t, "a", l.Key())
				return
			}
			place := s.find(b.current.Load(), 7)
			require.True(t, place.known)
			require.Equal(t, l.entry.id, b.current.Load().entries[place.entry].id, "and the new one is remembered")
			if len(tc.events) == 1 {
				require.NotEqual(t, "a", l.Key())
			}
		})
	}
}

// A client that was down with its backend does not return to it, though it is up
// again when the client comes next.
func TestStickyDownBetweenVisits(t *testing.T) {
	b := seeded(t, Config{}, 1, members(1, 1))
	s := sticky(t, b, 64)
	first := to(t, s, 7)
	id := b.current.Load().entries[s.find(b.current.Load(), 7).entry].id
	for _, state := range []State{Down, Up} {
		require.NoError(t, b.Update(func(l []Backend[int]) []Backend[int] {
			l[slices.IndexFunc(l, func(b Backend[int]) bool { return b.Key == first })].State = state
			return l
		}))
	}
	require.False(t, s.find(b.current.Load(), 7).known)
	_, alive := b.current.Load().byID[id]
	require.False(t, alive)
}

func TestStickyFullBackendKeepsItsKeys(t *testing.T) {
	list := members(1, 1)
	list[0].MaxConns = 1
	b := seeded(t, Config{Algorithm: Static{}}, 1, list)
	s := sticky(t, b, 64)
	held, err := s.Pick(7)
	require.NoError(t, err)
	require.Equal(t, "a", held.Key())
	require.Equal(t, "b", to(t, s, 7), "for the moment")
	held.Done(epoch, Result{})
	require.Equal(t, "a", to(t, s, 7))
	list[1].State = Drain
	require.NoError(t, b.Set(list...))
	held, _ = s.Pick(7)
	_, err = s.Pick(7)
	require.ErrorIs(t, err, ErrAllFull)
	require.NoError(t, b.Set())
	_, err = s.Pick(7)
	require.ErrorIs(t, err, ErrEmpty)
	held.Done(epoch, Result{})
}

func TestStickyWalk(t *testing.T) {
	b := seeded(t, Config{Algorithm: Random{}}, 1, members(1, 1, 1))
	s := sticky(t, b, 64)
	first := to(t, s, 7)
	var order []string
	for l := range s.Walk(7) {
		order = append(order, l.Key())
		if len(order) == 2 {
			break
		}
	}
	require.Equal(t, first, order[0])
	require.Equal(t, order[1], to(t, s, 7), "the one at which the walk stopped")
	order = nil
	for l := range s.Walk(7) {
		order = append(order, l.Key())
	}
	require.ElementsMatch(t, []string{"a", "b", "c"}, order)
}

// A table that is far too small forgets, and gives no wrong backend.
func TestStickySmallTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, err := New(Config{}, members(1, 1, 1)...)
		require.NoError(t, err)
		s := sticky(t, b, rapid.IntRange(1, 20).Draw(t, "size"))
		for range rapid.IntRange(1, 100).Draw(t, "picks") {
			key := rapid.Uint64Range(0, 30).Draw(t, "key")
			first := to(t, s, key)
			require.Equal(t, first, to(t, s, key), "nothing came between")
		}
	})
}

// With a table four times as large as the number of clients, nearly all are kept.
func TestStickyKeepsNearlyAll(t *testing.T) {
	b := seeded(t, Config{}, 1, members(1, 1, 1, 1, 1))
	s := sticky(t, b, 40_000)
	first := map[uint64]string{}
	for key := range uint64(10_000) {
		first[key] = to(t, s, key)
	}
	lost := 0
	for key, want := range first {
		if to(t, s, key) != want {
			lost++
		}
	}
	require.Less(t, lost, 100)
}

func TestStickyConcurrently(t *testing.T) {
	b := seeded(t, Config{Algorithm: LeastConn{}, Count: true}, 1, members(1, 1, 1))
	s := sticky(t, b, 16)
	var wg sync.WaitGroup
	for g := range uint64(4) {
		wg.Go(func() {
			for i := range uint64(500) {
				if l, err := s.Pick(g*7 + i%20); err == nil {
					if l.Value() != int(l.Key()[0]-'a') {
						panic(fmt.Sprint("mixed up: ", l.Key(), l.Value()))
					}
					l.Done(epoch, Result{})
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 200 {
			list := members(1, 1, 1)
			list[i%3].State = State(i / 3 % 3)
			if err := b.Set(list...); err != nil {
				panic(err)
			}
		}
	})
	wg.Wait()
	for _, key := range []string{"a", "b", "c"} {
		c, _ := b.Counts(key)
		require.Zero(t, c.Open)
	}
}

func TestStickyDoesNotAllocate(t *testing.T) {
	b := seeded(t, Config{Algorithm: P2C{}}, 1, members(5, 1, 2))
	s := sticky(t, b, 64)
	key := uint64(0)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		key++
		l, _ := s.Pick(key % 200)
		l.Done(epoch, Result{})
	}))
}
