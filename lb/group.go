package lb

import "math/bits"

// group is the set of backends that a snapshot uses, as an algorithm sees it:
// without their values. Nothing in it changes after the snapshot was published,
// except through the pointers.
type group struct {
	members []member
	keyOf   func(entry uint32) string
	total   uint64 // sum of the weights
	counted bool   // members have loads

	private uint64 // seed of this balancer, for what must differ between instances
	common  uint64 // seed of the fleet, for what must agree

	// turn counts the picks since New. 64 bits and unsigned: at 10^9 picks a
	// second it wraps after 584 years, and then at most one backend is skipped or
	// repeated. It is the only thing that a balancer's picks have in common.
	turn *turn
}

type member struct {
	load   *load  // nil unless the group is counted
	weight uint32 // above 0
	limit  uint32 // open leases, 0 for none
	entry  uint32 // index in the snapshot
}

// A set of members that a walk has tried; nil for a pick.
type set []uint64

func newSet(n int) set { return make(set, (n+63)/64) }

func (s set) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s set) has(i int) bool { return s != nil && s[i/64]>>(i%64)&1 != 0 }

// none is what pick returns when it finds no member.
const none = -1

// take counts a lease on member i, unless it is full or was tried.
func (g *group) take(i int, tried set) bool {
	if tried.has(i) {
		return false
	}
	return !g.counted || g.members[i].load.acquire(g.members[i].limit)
}

// open tells whether take is likely to succeed.
func (g *group) open(i int, tried set) bool {
	if tried.has(i) {
		return false
	}
	m := &g.members[i]
	return m.limit == 0 || m.load.open.Load() < uint64(m.limit)
}

// scan takes the first member from i on that can be taken. It is what a pick ends
// with when a few tries by its own rule found only full ones: complete, and
// bounded by the number of members.
func (g *group) scan(i int, tried set) int {
	for range g.members {
		if g.take(i, tried) {
			return i
		}
		if i++; i == len(g.members) {
			i = 0
		}
	}
	return none
}

// key returns the key of member i.
func (g *group) key(i int) string { return g.keyOf(g.members[i].entry) }

// even tells whether all weights are equal.
func (g *group) even() bool {
	for i := range g.members {
		if g.members[i].weight != g.members[0].weight {
			return false
		}
	}
	return true
}

func (g *group) weights() []int {
	w := make([]int, len(g.members))
	for i := range w {
		w[i] = int(g.members[i].weight)
	}
	return w
}

// random returns the next number of this balancer's own sequence: SplitMix64, with
// the counter of picks as its state. A generator that is one atomic addition
// needs no lock and no generator per goroutine, and an equal seed repeats a run.
func (g *group) random() uint64 {
	return mix64(g.private + g.turn.Add(1)*0x9e3779b97f4a7c15)
}

// scale maps a uniform number to [0, n) by multiplication: unlike a modulo it
// favours no low results (by more than n/2^64).
func scale(random, n uint64) uint64 {
	hi, _ := bits.Mul64(random, n)
	return hi
}

// scale32 is scale for half of a number.
func scale32(random uint32, n int) int { return int(uint64(random) * uint64(n) >> 32) }
