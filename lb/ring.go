package lb

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// Ring is the [Algorithm] of consistent hashing: each backend has points on a
// circle, and a key belongs to the backend of the next point. When a backend
// leaves, its keys and no others move. With a Bound no backend gets much more than
// its share, however unequal the keys are (Mirrokni, Thorup and Zadimoghaddam,
// 2018): the keys that it can't take go on to the next point.
type Ring struct {
	// Points is the number of points of a backend of average weight, some 16 to
	// 20 bytes each. With 160, the default, the fullest backend has about 1.3 times
	// the mean of equal keys. Range 1 to 10,000.
	Points int
	// Bound is the largest number of open leases of a backend, as a multiple of its
	// share of all open leases, rounded up. Range above 1 to 100, 0 for no bound.
	// 1.25 is common; lower values move more keys. The balancer counts all open
	// leases, also those of backends that left. Backends with a MaxConns below the
	// bound may leave a pick without room (ErrAllFull) before all are full. A walk
	// minds MaxConns only.
	Bound float64
}

// Name returns "ring".
func (Ring) Name() string { return "ring" }

func (r Ring) traits() traits { return traits{load: r.Bound > 0, total: r.Bound > 0} }

func (r Ring) fault() string {
	switch {
	case r.Points < 0 || r.Points > 10_000:
		return fmt.Sprintf("Points %d: want 1 to 10000, or 0 for 160", r.Points)
	case r.Bound != 0 && !(r.Bound > 1 && r.Bound <= 100):
		return fmt.Sprintf("Bound %v: want more than 1 up to 100, or 0 for none", r.Bound)
	}
	return ""
}

func (r Ring) prepare(g *group, _ picker, _ func(n uint64) uint64) picker {
	per := r.Points
	if per == 0 {
		per = 160
	}
	c := &circle{bound: r.Bound}
	c.place(g, per)
	return c
}

// circle picks by the next point.
type circle struct {
	hashes  []uint64 // ascending
	members []uint32
	// begins[b] is the first point whose hash has the upper bits b, or lies beyond.
	// The hashes are uniform, so it is next to the one that is looked for.
	begins []uint32
	shift  int
	bound  float64
}

// points yields the points of all members, per of them for one of average weight.
func (g *group) points(per int, yield func(hash uint64, member int)) {
	mean := float64(g.total) / float64(len(g.members))
	for i := range g.members {
		h := fnv64(mix64(g.common), g.key(i))
		for k := range max(1, int(math.Round(float64(per)*float64(g.members[i].weight)/mean))) {
			yield(mix64(h+mix64(uint64(k))), i)
		}
	}
}

// place sorts the points: each is put down next to where it belongs, which its hash
// tells, and then the few that share a place are sorted. Hashes are cheaper to
// compute three times than to keep in between.
func (c *circle) place(g *group, per int) {
	n := 0
	g.points(per, func(uint64, int) { n++ })
	width := bits.Len(uint(n))
	c.shift = 64 - width
	c.begins = make([]uint32, 1<<width+1)
	g.points(per, func(hash uint64, _ int) { c.begins[hash>>c.shift+1]++ })
	for b := 1; b < len(c.begins); b++ {
		c.begins[b] += c.begins[b-1]
	}
	c.hashes, c.members = make([]uint64, n), make([]uint32, n)
	next := slices.Clone(c.begins)
	g.points(per, func(hash uint64, member int) {
		b := hash >> c.shift
		first, at := c.begins[b], next[b]
		for ; at > first && c.before(g, hash, member, at-1); at-- {
			c.hashes[at], c.members[at] = c.hashes[at-1], c.members[at-1]
		}
		c.hashes[at], c.members[at] = hash, uint32(member)
		next[b]++
	})
}

// before tells whether a point belongs before the one at the given place. Points
// that collide are ordered by their backends' keys.
func (c *circle) before(g *group, hash uint64, member int, at uint32) bool {
	if hash != c.hashes[at] {
		return hash < c.hashes[at]
	}
	return g.key(member) < g.key(int(c.members[at]))
}

// after returns the first point at hash or beyond, across the end of the circle.
func (c *circle) after(hash uint64) int {
	i := int(c.begins[hash>>c.shift])
	for i < len(c.hashes) && c.hashes[i] < hash {
		i++
	}
	if i == len(c.hashes) {
		return 0
	}
	return i
}

// steps is how many points a pick passes before it looks at the members one by
// one: with the bound of 1.1, three are common.
const steps = 64

func (c *circle) pick(g *group, key uint64, tried set) int {
	at := c.after(g.spread(key))
	i := 0
	for range min(steps, len(c.members)) {
		i = int(c.members[at])
		if c.take(g, i, tried) {
			return i
		}
		if at++; at == len(c.members) {
			at = 0
		}
	}
	for range g.members {
		if c.take(g, i, tried) {
			return i
		}
		if i++; i == len(g.members) {
			i = 0
		}
	}
	return none
}

// take is that of the group, with the bound as a second limit.
func (c *circle) take(g *group, i int, tried set) bool {
	if c.bound == 0 || tried != nil {
		return g.take(i, tried) // who walks wants any backend rather than none
	}
	m := &g.members[i]
	all := float64(m.load.shared.open.Load() + 1)
	most := uint32(max(1, math.Ceil(c.bound*all*float64(m.weight)/float64(g.total))))
	if m.limit > 0 {
		most = min(most, m.limit)
	}
	return m.load.acquire(most)
}
