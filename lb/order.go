package lb

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
)

// Static is the order that leaves the hosts as they were configured, and the
// [Algorithm] of a [Balancer] that uses the first backend of its list which is
// not full, whatever its weight. Without MaxConns everything goes to the first.
//
// A pick costs one step for each full backend before the one it finds.
type Static struct{}

// Name returns "static".
func (Static) Name() string { return "static" }

// Arrange returns the hosts in the given order, without duplicates (the first one
// stays). The index and the key play no role. The result is a fresh slice, empty
// when hosts is empty.
func (Static) Arrange(hosts []string, index int, key string) []string { return distinct(hosts) }

// Diff tells how the list got differs from the list want, in words for a log. It
// returns "" when both name the same hosts in the same order. Duplicates in
// either list are dropped first. Two empty lists are equal.
func (Static) Diff(want, got []string) string { return diffOrder(want, got) }

// RoundRobin is an order of hosts and an [Algorithm] of a [Balancer]. Both give
// each in turn: the order to one agent after the other, the balancer to one
// connection after the other.
//
// Balancers that use it treat every weight above 0 alike.
type RoundRobin struct{}

// Name returns "roundrobin".
func (RoundRobin) Name() string { return "roundrobin" }

// Arrange drops duplicates (the first one stays) and rotates the hosts left by
// index modulo their number. The index is the agent's position in the fleet,
// counted from 0 in ascending order of the agents' ids; an agent that is not
// (yet) part of the fleet takes the position after the last one, which is the
// number of agents. Any index is valid: a negative one rotates right. The key
// plays no role. The result is a fresh slice, empty when hosts is empty.
func (RoundRobin) Arrange(hosts []string, index int, key string) []string {
	out := distinct(hosts)
	if len(out) < 2 {
		return out
	}
	turn := index % len(out)
	if turn < 0 {
		turn += len(out)
	}
	// Rotating left by turn is three reversals, all in place.
	slices.Reverse(out[:turn])
	slices.Reverse(out[turn:])
	slices.Reverse(out)
	return out
}

// Diff tells how the list got differs from the list want, in words for a log. It
// returns "" when both name the same hosts in the same order. Duplicates in
// either list are dropped first. Two empty lists are equal.
func (RoundRobin) Diff(want, got []string) string { return diffOrder(want, got) }

// Shuffle is the order that gives every agent a random permutation of its own. As
// an [Algorithm] of a [Balancer] it gives each backend one turn per lap, whatever
// its weight, every lap in another order: as even as RoundRobin, without a fixed
// successor for anybody. The balancer draws the laps from its own seed; Seed
// plays no role for it.
//
// The order's permutation is a function of Seed, the agent's key and the set of
// hosts, and of nothing else: it can be computed again anywhere, and a push for
// another reason does not reorder anybody.
type Shuffle struct {
	// Seed selects one family of permutations. A fleet shares it, so that each
	// of its managers computes the same list for an agent. Any value is good.
	Seed uint64
}

// Name returns "shuffle".
func (Shuffle) Name() string { return "shuffle" }

// Arrange drops duplicates and returns the hosts in the order drawn from Seed and
// key; over all keys each order is equally likely. The order in which hosts are
// given and the index play no role. The result is a fresh slice, empty when hosts
// is empty.
func (s Shuffle) Arrange(hosts []string, index int, key string) []string {
	out := distinct(hosts)
	slices.Sort(out) // what was configured first must not matter
	src := rand.NewPCG(s.Seed, hashKey(key))
	for i := len(out) - 1; i > 0; i-- {
		j := below(src, uint64(i)+1)
		out[i], out[j] = out[j], out[i]
	}
	return out
}

// Diff tells how the list got differs from the list want, in words for a log. It
// returns "" when both name the same hosts, in any order: an agent that was given
// another permutation is as well off. Duplicates in either list are dropped
// first. Two empty lists are equal.
func (Shuffle) Diff(want, got []string) string { return diffSet(distinct(want), distinct(got)) }

// below returns a uniform number in [0, n) by multiply and shift, with the few
// values rejected that would make low results more likely (Lemire, 2019).
// rand.Rand has the same, but does not promise the same results in the next
// version of Go; the permutations of a fleet must not change with its compiler.
func below(src *rand.PCG, n uint64) uint64 {
	hi, lo := bits.Mul64(src.Uint64(), n)
	for lo < n {
		if lo >= -n%n {
			break
		}
		hi, lo = bits.Mul64(src.Uint64(), n)
	}
	return hi
}

// hashKey maps an agent's key to the second half of the generator's seed.
func hashKey(key string) uint64 { return mix64(fnv64(fnvStart, key)) }

// distinct returns a copy of hosts in which every host stands once, at its first
// place. It is never nil.
func distinct(hosts []string) []string {
	out := make([]string, 0, len(hosts))
	seen := make(map[string]struct{}, len(hosts))
	for _, h := range hosts {
		if _, dup := seen[h]; !dup {
			seen[h] = struct{}{}
			out = append(out, h)
		}
	}
	return out
}

func diffOrder(want, got []string) string {
	want, got = distinct(want), distinct(got)
	if d := diffSet(want, got); d != "" {
		return d
	}
	for i := range want {
		if want[i] != got[i] {
			return fmt.Sprintf("order: position %d is %q, want %q", i+1, got[i], want[i])
		}
	}
	return ""
}

// diffSet compares two lists without duplicates as sets.
func diffSet(want, got []string) string {
	if len(got) == 0 && len(want) > 0 {
		return fmt.Sprintf("list is empty, want %s", quoteAll(want))
	}
	missing, extra := without(want, got), without(got, want)
	switch {
	case len(missing) > 0 && len(extra) > 0:
		return fmt.Sprintf("missing %s; extra %s", quoteAll(missing), quoteAll(extra))
	case len(missing) > 0:
		return "missing " + quoteAll(missing)
	case len(extra) > 0:
		return "extra " + quoteAll(extra)
	}
	return ""
}

// without returns the entries of a that b lacks.
func without(a, b []string) []string {
	in := make(map[string]struct{}, len(b))
	for _, h := range b {
		in[h] = struct{}{}
	}
	var out []string
	for _, h := range a {
		if _, ok := in[h]; !ok {
			out = append(out, h)
		}
	}
	return out
}

func quoteAll(hosts []string) string {
	q := make([]string, len(hosts))
	for i, h := range hosts {
		q[i] = fmt.Sprintf("%q", h)
	}
	return strings.Join(q, ", ")
}
