package lb

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Rendezvous is the order by highest random weight: each agent ranks all hosts by
// a hash of its own key and the host. As an [Algorithm] of a [Balancer] it ranks
// the backends for each key, in proportion to their weights.
//
// A host that leaves moves only the agents that preferred it, and those spread
// over all others; a host that joins takes its share from all others. Nobody else
// moves, the relative order of the hosts that stay never changes, and the order
// in which hosts are configured plays no role. The price is balance: shares vary
// as those of random draws do. A small fleet that must be even wants [Balanced].
//
// The order's score of a host is FNV-1a (64 bits) over the bytes of the key, a zero byte
// and the bytes of the host, passed through the finaliser of MurmurHash3. The
// highest score is first; equal scores are ordered by the host's text. There is
// no seed: every program that follows this paragraph computes the same lists.
//
// The balancer, which is given keys that are numbers, has a score of its own, with
// Config.HashSeed. A pick looks at all backends: fit for some dozens of them.
type Rendezvous struct {
	// Top makes a balancer take the least loaded of the first Top backends in the
	// order of the key, instead of the first: a key stays with a few backends,
	// and none of them is overloaded by it. Range 0 to 8, 0 being 1. An order
	// does not use it.
	Top int
}

// Name returns "rendezvous".
func (Rendezvous) Name() string { return "rendezvous" }

// Arrange drops duplicates and returns the hosts in the order of the agent with
// the given key. The index plays no role. The result is a fresh slice, empty when
// hosts is empty.
func (Rendezvous) Arrange(hosts []string, index int, key string) []string {
	prefix := rendezvousPrefix(key)
	return rank(hosts, func(host string) uint64 { return ^mix64(fnv64(prefix, host)) })
}

// Diff tells how the list got differs from the list want, in words for a log. It
// returns "" when both name the same hosts in the same order. Duplicates in
// either list are dropped first. Two empty lists are equal.
func (Rendezvous) Diff(want, got []string) string { return diffOrder(want, got) }

// ErrHostWeight is wrapped by the errors of [NewWeightedRendezvous].
var ErrHostWeight = errors.New("lb: weight of a host is out of range: want 0 to 256")

// WeightedRendezvous is [Rendezvous] for hosts of unequal size: a host of weight w
// is the first of a share of agents in proportion to w. A weight that changes
// moves agents to or from that host only. Make one with [NewWeightedRendezvous];
// the zero value gives every host the weight 1.
//
// With h the score of a host as Rendezvous defines it, the weighted score is
// -ln((h>>11 + 0.5) / 2^53) / w, and the lowest is first. With equal weights that
// is the order of Rendezvous (but for scores that share their upper 53 bits). The
// logarithm is computed by the package itself, equal to the last bit on all
// machines.
type WeightedRendezvous struct{ weights map[string]int }

// NewWeightedRendezvous returns the order for the given weights by host, 0 to
// MaxWeight. A host that is not in weights has weight 1. A host of weight 0
// stands behind all others, since an agent may still need it. The map is copied.
// The error joins one that wraps [ErrHostWeight] for each weight out of range.
func NewWeightedRendezvous(weights map[string]int) (WeightedRendezvous, error) {
	var faults []error
	for _, host := range slices.Sorted(maps.Keys(weights)) {
		if w := weights[host]; w < 0 || w > MaxWeight {
			faults = append(faults, fmt.Errorf("%w: host %q has weight %d", ErrHostWeight, host, w))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return WeightedRendezvous{}, err
	}
	return WeightedRendezvous{maps.Clone(weights)}, nil
}

// Name returns "weightedrendezvous".
func (WeightedRendezvous) Name() string { return "weightedrendezvous" }

// Arrange drops duplicates and returns the hosts in the order of the agent with
// the given key. The index plays no role. The result is a fresh slice, empty when
// hosts is empty.
func (r WeightedRendezvous) Arrange(hosts []string, index int, key string) []string {
	prefix := rendezvousPrefix(key)
	return rank(hosts, func(host string) float64 {
		w, named := r.weights[host]
		if !named {
			w = 1
		}
		return weightedScore(mix64(fnv64(prefix, host)), w)
	})
}

// Diff tells how the list got differs from the list want, in words for a log. It
// returns "" when both name the same hosts in the same order. Duplicates in
// either list are dropped first. Two empty lists are equal.
func (WeightedRendezvous) Diff(want, got []string) string { return diffOrder(want, got) }

// weightedScore is an exponentially distributed number of rate w: the least of
// several belongs to each in proportion to its rate. It is +Inf for weight 0.
func weightedScore(h uint64, w int) float64 {
	const two53 = 1 << 53
	return -logarithm((float64(h>>11)+0.5)/two53) / float64(w)
}

// rendezvousPrefix is the state of the hash after the key and the zero byte.
func rendezvousPrefix(key string) uint64 { return fnv64(fnv64(fnvStart, key), "\x00") }

// rank returns the hosts without duplicates, the lowest score first.
func rank[S cmp.Ordered](hosts []string, score func(host string) S) []string {
	type scored struct {
		score S
		host  string
	}
	out := distinct(hosts)
	list := make([]scored, len(out))
	for i, h := range out {
		list[i] = scored{score(h), h}
	}
	slices.SortFunc(list, func(a, b scored) int {
		return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.host, b.host))
	})
	for i := range list {
		out[i] = list[i].host
	}
	return out
}
