package lb

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// fleet gives agents to hosts: "AAB" is two agents with A and one with B.
func fleet(held string) map[string]string {
	out := map[string]string{}
	for i, h := range held {
		out[fmt.Sprint("agent-", i)] = string(h)
	}
	return out
}

func loads(assigned map[string]string) map[string]int {
	out := map[string]int{}
	for _, h := range assigned {
		out[h]++
	}
	return out
}

func movesBetween(before, after map[string]string) int {
	n := 0
	for agent, host := range after {
		if before[agent] != host {
			n++
		}
	}
	return n
}

func TestBalancedAssign(t *testing.T) {
	many := func(n int, host string) (s string) {
		for range n {
			s += host
		}
		return s
	}
	abc400 := many(400, "A") + many(400, "B") + many(400, "C")
	for _, tc := range []struct {
		name, held string
		hosts      []string
		loads      map[string]int
		moves      int
	}{
		{"a host joins", "AAAABB", []string{"A", "B", "C"}, map[string]int{"A": 2, "B": 2, "C": 2}, 2},
		{"the spare place stays with the fullest", "AAAABBB", []string{"A", "B", "C"}, map[string]int{"A": 3, "B": 2, "C": 2}, 2},
		{"a host leaves", "ABC", []string{"A", "B"}, map[string]int{"A": 2, "B": 1}, 1},
		{"a large fleet grows", abc400, []string{"A", "B", "C", "D"}, map[string]int{"A": 300, "B": 300, "C": 300, "D": 300}, 300},
		{"nothing to do", abc400, []string{"C", "B", "A"}, map[string]int{"A": 400, "B": 400, "C": 400}, 0},
		{"an idle host is used", "AAA", []string{"A", "B"}, map[string]int{"A": 2, "B": 1}, 1},
		{"nobody has a host", "    ", []string{"A", "B"}, map[string]int{"A": 2, "B": 2}, 4},
		{"fewer agents than hosts", "A", []string{"B", "C"}, nil, 1},
		{"duplicate hosts count once", "AAA", []string{"A", "A", "B"}, map[string]int{"A": 2, "B": 1}, 1},
		{"no agents", "", []string{"A"}, map[string]int{}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			held := fleet(tc.held)
			got := Balanced{}.Assign(tc.hosts, held)
			require.Len(t, got, len(held))
			if tc.loads != nil {
				require.Equal(t, tc.loads, loads(got))
			}
			require.Equal(t, tc.moves, movesBetween(held, got))
			require.Equal(t, fleet(tc.held), held, "the argument is left alone")
		})
	}
	require.Equal(t, map[string]string{}, Balanced{}.Assign(nil, fleet("AB")), "no hosts")
	require.Equal(t, "balanced", Balanced{}.Name())
}

// leastMoves tries every division into loads that differ by at most one.
func leastMoves(hosts []string, held map[string]string) int {
	low, high := len(held)/len(hosts), len(held)%len(hosts)
	count := loads(held)
	best := len(held)
	for chosen := range 1 << len(hosts) { // the hosts that get one more
		stay, more := 0, 0
		for i, h := range hosts {
			quota := low + chosen>>i&1
			more += chosen >> i & 1
			stay += min(count[h], quota)
		}
		if more == high {
			best = min(best, len(held)-stay)
		}
	}
	return best
}

func TestBalancedIsBalancedByLeastMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := rapid.SliceOfNDistinct(rapid.StringMatching(`[A-G]`), 1, 6, rapid.ID).Draw(t, "hosts")
		held := rapid.MapOfN(rapid.StringMatching(`[a-z0-9]{1,4}`), rapid.StringMatching(`[A-G]?`), 0, 40).Draw(t, "held")
		got := Balanced{}.Assign(hosts, held)

		require.ElementsMatch(t, slices.Collect(maps.Keys(held)), slices.Collect(maps.Keys(got)))
		for _, h := range hosts {
			n := loads(got)[h]
			require.GreaterOrEqual(t, n, len(held)/len(hosts))
			require.LessOrEqual(t, n, (len(held)+len(hosts)-1)/len(hosts))
		}
		require.Equal(t, leastMoves(hosts, held), movesBetween(held, got))
		require.Equal(t, got, Balanced{}.Assign(rapid.Permutation(hosts).Draw(t, "shuffled"), held), "configured order plays no role")
		require.Equal(t, got, Balanced{}.Assign(hosts, got), "nobody moves twice")
	})
}
