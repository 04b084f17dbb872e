package lb

import (
	"cmp"
	"slices"

	"github.com/lastbeat/lastbeat/internal/maglev"
)

// spread mixes the caller's key with the seed of the fleet.
func (g *group) spread(key uint64) uint64 { return mix64(key ^ mix64(g.common)) }

// A hashed picks by the bits of a hash. Where its first choice is full or was
// tried, it hashes again, so that the keys of that backend go to all others, and
// not to a neighbour.
type hashed struct {
	choose func(hash uint64) int
}

func (h hashed) pick(g *group, key uint64, tried set) int {
	i := 0
	for hash, try := g.spread(key), 0; try < tries; hash, try = mix64(hash+1), try+1 {
		i = h.choose(hash)
		if g.take(i, tried) {
			return i
		}
	}
	return g.scan(i, tried)
}

// SourceHash is the [Algorithm] that maps each key to a backend in proportion to
// the weights, by the smallest table. When a backend comes or goes, or a weight
// changes, most keys move; [Maglev], [Ring] and [Rendezvous] avoid that.
type SourceHash struct{}

// Name returns "sourcehash".
func (SourceHash) Name() string { return "sourcehash" }

func (SourceHash) traits() traits { return traits{} }
func (SourceHash) fault() string  { return "" }

func (SourceHash) prepare(g *group, _ picker, _ func(n uint64) uint64) picker {
	// The order of the list must not matter, so the table is one of the members in
	// the order of their keys.
	g.sortByKey()
	return hashed{newUrn(g).draw}
}

func (g *group) sortByKey() {
	slices.SortFunc(g.members, func(a, b member) int { return cmp.Compare(g.keyOf(a.entry), g.keyOf(b.entry)) })
}

// Maglev is the [Algorithm] that maps each key to a backend by a lookup table, in
// proportion to the weights. When one of n backends leaves, its keys spread over
// the others, and about one in a hundred of the other keys moves too (with the
// default Size and up to 1000 backends). A pick costs the same for any number of
// backends.
type Maglev struct {
	// Size is the number of slots of the table, 4 bytes each: a prime from 2 to
	// 8,388,608, default 65,537. Shares are even to about n/Size, so a hundred slots
	// for each backend make them even to a hundredth. Balancers that are to agree
	// need the same size. There can't be more backends than slots.
	Size int
}

// Name returns "maglev".
func (Maglev) Name() string { return "maglev" }

func (m Maglev) traits() traits { return traits{most: m.size()} }

func (m Maglev) size() int {
	if m.Size == 0 {
		return 65537
	}
	return m.Size
}

func (m Maglev) fault() string {
	if err := maglev.Check(m.size()); err != nil {
		return "Size: " + err.Error()
	}
	return ""
}

func (m Maglev) prepare(g *group, _ picker, _ func(n uint64) uint64) picker {
	members := make([]maglev.Member, len(g.members))
	for i := range members {
		members[i] = maglev.Member{Key: g.key(i), Weight: g.members[i].weight}
	}
	table := maglev.Build(m.size(), g.common, members)
	return hashed{func(hash uint64) int { return int(table[scale(hash, uint64(len(table)))]) }}
}
