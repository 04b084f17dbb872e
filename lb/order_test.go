package lb

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// order is what another package would declare to take one of ours.
type order interface {
	Name() string
	Arrange(hosts []string, index int, key string) []string
	Diff(want, got []string) string
}

var orders = []order{Static{}, RoundRobin{}, Shuffle{Seed: 7}, Rendezvous{}, weighted(map[string]int{"a": 3, "b": 0, "c": 256})}

func weighted(weights map[string]int) WeightedRendezvous {
	r, err := NewWeightedRendezvous(weights)
	if err != nil {
		panic(err)
	}
	return r
}

func TestOrderNames(t *testing.T) {
	var names []string
	for _, o := range orders {
		names = append(names, o.Name())
	}
	require.Equal(t, []string{"static", "roundrobin", "shuffle", "rendezvous", "weightedrendezvous"}, names)
}

// The lists that CloudStack's roundrobin gives for hosts A, B, C and agents
// 1, 5, 10, 20, 50, 60, 70, 80.
func TestRoundRobinOrderCloudStack(t *testing.T) {
	fleet := []int{1, 5, 10, 20, 50, 60, 70, 80}
	want := map[int]string{1: "ABC", 5: "BCA", 10: "CAB", 20: "ABC", 50: "BCA", 60: "CAB", 70: "ABC", 80: "BCA"}
	hosts := []string{"A", "B", "C"}
	arrange := func(hosts []string, index int) string {
		return strings.Join(RoundRobin{}.Arrange(hosts, index, ""), "")
	}
	for i, id := range fleet {
		require.Equal(t, want[id], arrange(hosts, i), "agent %d", id)
	}
	require.Equal(t, "CAB", arrange(hosts, len(fleet)), "an agent outside the fleet comes after all others")

	var preferred strings.Builder
	for i := range fleet[1:] {
		preferred.WriteString(arrange(hosts, i)[:1])
	}
	require.Equal(t, "ABCABCA", preferred.String(), "agents 5 to 80 after agent 1 has left")

	for i := range fleet {
		require.Equal(t, "A", arrange([]string{"A"}, i), "one host")
	}
	for i, want := range []string{"AB", "BA", "AB"} {
		require.Equal(t, want, arrange([]string{"A", "A", "B"}, i), "duplicates are dropped before rotating")
	}
}

// Any index is a position, also those that no planner should pass: an agent must
// get a list in every case (https://github.com/apache/cloudstack/issues/3581).
func TestRoundRobinOrderAnyIndex(t *testing.T) {
	const most = int(^uint(0) >> 1)
	hosts := []string{"A", "B", "C"}
	for index, want := range map[int]string{-1: "CAB", -3: "ABC", -4: "CAB", most: rotated(most), -most - 1: rotated(-most - 1)} {
		require.Equal(t, want, strings.Join(RoundRobin{}.Arrange(hosts, index, ""), ""), "index %d", index)
	}
}

func rotated(index int) string {
	at := ((index % 3) + 3) % 3
	return "ABCABC"[at : at+3]
}

func TestArrangeIsPure(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := rapid.SliceOfN(rapid.StringMatching(`[a-e]`), 0, 8).Draw(t, "hosts")
		index := rapid.Int().Draw(t, "index")
		key := rapid.String().Draw(t, "key")
		for _, o := range orders {
			before := slices.Clone(hosts)
			got := o.Arrange(hosts, index, key)
			require.NotNil(t, got)
			require.Equal(t, got, o.Arrange(hosts, index, key), "the same again")

			unique := slices.Compact(slices.Sorted(slices.Values(hosts)))
			require.ElementsMatch(t, unique, got, "%s keeps every host once", o.Name())
			require.Empty(t, o.Diff(o.Arrange(hosts, index, key), got))

			for i := range got {
				got[i] = "overwritten"
			}
			require.Equal(t, before, hosts, "%s leaves its input alone", o.Name())
		}
	})
}

// Every permutation is equally likely over the keys. 6 orders, 60,000 keys: a
// deviation of 5 standard deviations (456) has a chance of one in a million, but
// the keys are fixed, so this test either holds for ever or never.
func TestShuffleUniform(t *testing.T) {
	const keys = 60_000
	seen := map[string]int{}
	for i := range keys {
		seen[strings.Join(Shuffle{Seed: 1}.Arrange([]string{"A", "B", "C"}, 0, fmt.Sprint(i)), "")]++
	}
	require.Len(t, seen, 6)
	for perm, n := range seen {
		require.InDelta(t, keys/6, n, 456, perm)
	}
}

// With two hosts and agents served in one burst, a generator seeded by the clock
// gives nearly all of them the same first host.
func TestShuffleTwoHostsNeighbouringAgents(t *testing.T) {
	first := map[string]int{}
	for i := range 1000 {
		first[Shuffle{}.Arrange([]string{"A", "B"}, i, fmt.Sprintf("agent-%d", i))[0]]++
	}
	require.InDelta(t, 500, first["A"], 79, "5 standard deviations")
}

func TestShuffleDependsOnSeedKeyAndSetOnly(t *testing.T) {
	hosts := strings.Split("abcdefghijkl", "")
	base := Shuffle{Seed: 1}.Arrange(hosts, 0, "k")
	require.Equal(t, base, Shuffle{Seed: 1}.Arrange(hosts, 99, "k"), "index")
	require.NotEqual(t, base, Shuffle{Seed: 2}.Arrange(hosts, 0, "k"), "seed")
	require.NotEqual(t, base, Shuffle{Seed: 1}.Arrange(hosts, 0, "l"), "key")
	slices.Reverse(hosts)
	require.Equal(t, base, Shuffle{Seed: 1}.Arrange(hosts, 0, "k"), "configured order")

	// Pinned: fleets store such lists, so another version must compute them again.
	require.Equal(t, shufflePinned, strings.Join(base, ""))
}

// The strict rules for comparing the list an agent has with the one it should.
func TestDiff(t *testing.T) {
	list := func(s string) []string { return strings.Split(s, ",") }
	ordered, set := []order{Static{}, RoundRobin{}, Rendezvous{}, WeightedRendezvous{}}, []order{Shuffle{}}
	for _, tc := range []struct {
		name      string
		orders    []order
		want, got []string
		diff      string
	}{
		{"same", orders, list("A,B,C"), list("A,B,C"), ""},
		{"order matters", ordered, list("A,B,C"), list("B,A,C"), `order: position 1 is "B", want "A"`},
		{"order does not matter", set, list("A,B,C"), list("C,A,B"), ""},
		{"extra", orders, list("A,B"), list("A,B,C"), `extra "C"`},
		{"missing", orders, list("A,B,C"), list("A,C"), `missing "B"`},
		{"replaced", orders, list("A,B"), list("A,C"), `missing "B"; extra "C"`},
		{"empty", orders, list("A,B"), []string{}, `list is empty, want "A", "B"`},
		{"nil", orders, list("A,B"), nil, `list is empty, want "A", "B"`},
		{"nothing wanted", orders, nil, list("A"), `extra "A"`},
		{"both empty", orders, nil, []string{}, ""},
		{"a duplicate does not hide a missing host", orders, list("A,B,C"), list("A,B,B"), `missing "C"`},
		{"a wanted duplicate does not hide an extra one", orders, list("A,B,B"), list("A,B,C"), `extra "C"`},
		{"duplicates on both sides", orders, list("A,A,B"), list("A,B,B"), ""},
		{"compared as text", orders, list("A"), list(" A"), `missing "A"; extra " A"`},
	} {
		for _, o := range tc.orders {
			t.Run(tc.name+"/"+o.Name(), func(t *testing.T) {
				require.Equal(t, tc.diff, o.Diff(tc.want, tc.got))
			})
		}
	}
}

func FuzzArrange(f *testing.F) {
	f.Add("A,B,C", 7, "agent-1", uint64(1))
	f.Add("", -1, "", uint64(0))
	f.Add(",,A,A", 1<<30, "\x00", ^uint64(0))
	f.Fuzz(func(t *testing.T, csv string, index int, key string, seed uint64) {
		hosts := strings.Split(csv, ",")
		for _, o := range []order{Static{}, RoundRobin{}, Shuffle{Seed: seed}, Rendezvous{}, weighted(map[string]int{hosts[0]: int(seed % (MaxWeight + 1))})} {
			got := o.Arrange(hosts, index, key)
			if d := o.Diff(got, o.Arrange(hosts, index, key)); d != "" {
				t.Fatalf("%s is not repeatable: %s", o.Name(), d)
			}
			if d := (Shuffle{}).Diff(hosts, got); d != "" {
				t.Fatalf("%s of %q changed the set: %s", o.Name(), hosts, d)
			}
			if len(slices.Compact(slices.Sorted(slices.Values(got)))) != len(got) {
				t.Fatalf("%s of %q has duplicates: %q", o.Name(), hosts, got)
			}
		}
	})
}

// Computed by a second implementation, of the generator too, in another language.
const shufflePinned = "bhcljikaegfd"
