package lb

import "sync/atomic"

// LeastConn is the [Algorithm] that gives each connection to the backend with the
// fewest open leases in proportion to its weight: the least (open+1)/weight.
// Equals are taken in turn, the one that waits longest first. Of unequal weights
// the heaviest is first while all are idle.
//
// It is exact while picks and ends of leases do not overlap. Picks that do may
// choose the same backend, so its lead over the others is at most the number of
// goroutines that pick at that moment. A pick and the end of a lease cost
// O(log n), a further step of a walk O(n).
//
// Least connections suit long connections of unequal length. Short ones with
// much concurrency are better served by [P2C], which has no common point.
type LeastConn struct{}

// Name returns "leastconn".
func (LeastConn) Name() string { return "leastconn" }

func (LeastConn) traits() traits { return traits{load: true} }
func (LeastConn) fault() string  { return "" }

func (LeastConn) prepare(g *group, old picker, _ func(n uint64) uint64) picker {
	return newTree(g, old)
}

// fan is the number of children of a node. With 8, five levels serve 32,768
// members, and the children of a node share half a cache line.
const fan = 8

// A tree is a tournament among the members. Each node names the best member below
// it, so the root names the best of all. When the load of a member changes, the
// nodes above it are played again.
//
// Nodes are replaced by compare-and-swap, without a lock. A player that read old
// loads must not overwrite the result of one that read newer ones, so each node
// has a version and each replacement raises it, even if the winner stays. Then
// two attempts suffice: when both of mine fail, the second winner began after
// the first one ended, which was after my change, and so has seen it. (This is the
// argument of Jayanti's f-arrays, PODC 2002.) So refresh has no unbounded loop,
// and in the end no node is older than the loads below it.
type tree struct {
	members []member
	// levels begins with the parents of the members; the last one is the root.
	levels [][]atomic.Uint64 // version<<32 | member
}

// A seat is a member's place in a tree.
type seat struct {
	tree *tree
	leaf int
	prev atomic.Pointer[seat] // in the tree before, while that is still in use
}

// newTree returns a tree in which the members take their seats. Until leave, they
// keep the seats in the old tree too: picks use it until the new one is published.
func newTree(g *group, old picker) *tree {
	t := &tree{members: g.members}
	for n := len(g.members); n > 1 || len(t.levels) == 0; {
		n = (n + fan - 1) / fan
		t.levels = append(t.levels, make([]atomic.Uint64, n))
	}
	before, _ := old.(*tree)
	seats := make([]seat, len(g.members))
	for i := range seats {
		s := &seats[i]
		s.tree, s.leaf = t, i
		if o := g.members[i].load.seat.Load(); o != nil && o.tree == before {
			s.prev.Store(o)
		}
		g.members[i].load.seat.Store(s)
	}
	// Only now is every change of a load reported here; so play every match once.
	for depth, level := range t.levels {
		for i := range level {
			t.play(depth, i)
		}
	}
	return t
}

// leave takes the members off their seats in the old tree.
func (t *tree) leave(old picker) {
	for i := range t.members {
		if s := t.members[i].load.seat.Load(); s != nil {
			s.prev.Store(nil)
		}
	}
	if before, ok := old.(*tree); ok {
		for i := range before.members {
			l := before.members[i].load
			if s := l.seat.Load(); s != nil && s.tree == before {
				l.seat.Store(nil)
			}
		}
	}
}

func (t *tree) pick(g *group, _ uint64, tried set) int {
	root := &t.levels[len(t.levels)-1][0]
	i := int(uint32(root.Load()))
	if !g.take(i, tried) {
		// The best is full, then so are all; or it is tried, and the walk is not
		// the tree's to know.
		if i = t.search(g, tried); i == none {
			return none
		}
	}
	l := g.members[i].load
	l.last.Store(g.turn.Add(1))
	if s := l.seat.Load(); s != nil {
		s.refresh(true)
	}
	return i
}

// search takes the best untried member the slow way.
func (t *tree) search(g *group, tried set) int {
	best := none
	for i := range g.members {
		if g.open(i, tried) && (best == none || t.better(i, best)) {
			best = i
		}
	}
	if best == none || !g.take(best, tried) {
		return g.scan(0, tried)
	}
	return best
}

// better tells whether member a should be picked before member b.
func (t *tree) better(a, b int) bool {
	x, y := &t.members[a], &t.members[b]
	m, n := x.load.open.Load(), y.load.open.Load()
	full := func(open uint64, limit uint32) bool { return limit > 0 && open >= uint64(limit) }
	if f := full(m, x.limit); f != full(n, y.limit) {
		return !f
	}
	if p, q := (m+1)*uint64(y.weight), (n+1)*uint64(x.weight); p != q {
		return p < q
	}
	// As a difference, which survives the wrap of the counter.
	if d := int64(x.load.last.Load() - y.load.last.Load()); d != 0 {
		return d < 0
	}
	return a < b
}

// refresh plays the matches of the seat again, in the tree before as well while
// that is in use. After a pick all of them must be played; see tree.refresh.
func (s *seat) refresh(all bool) {
	s.tree.refresh(s.leaf, all)
	if p := s.prev.Load(); p != nil {
		p.tree.refresh(p.leaf, all)
	}
}

// refresh plays the matches above leaf. When a node named another member before,
// and still does, then the change of leaf means nothing further up: who made the
// node name the other one plays on from there, or has done so.
//
// That one may be asleep, however, with a root that still names leaf. All picks
// until it wakes would go there. So a pick, which has seen what the root names,
// plays up to the root.
func (t *tree) refresh(leaf int, all bool) {
	i := leaf
	for depth := range t.levels {
		i /= fan
		was, is, sure := t.play(depth, i)
		if !all && sure && was == is && is != leaf {
			return
		}
	}
}

// play replaces a node by the best of its children and returns the member that it
// named before and names now. It is not sure of them if others replaced it.
func (t *tree) play(depth, i int) (was, is int, sure bool) {
	node := &t.levels[depth][i]
	for range 2 {
		old := node.Load()
		best := t.best(depth, i)
		if node.CompareAndSwap(old, (old>>32+1)<<32|uint64(uint32(best))) {
			return int(uint32(old)), best, true
		}
	}
	return 0, 0, false
}

func (t *tree) best(depth, i int) int {
	first := i * fan
	if depth == 0 {
		best := first
		for c := first + 1; c < min(first+fan, len(t.members)); c++ {
			if t.better(c, best) {
				best = c
			}
		}
		return best
	}
	below := t.levels[depth-1]
	best := int(uint32(below[first].Load()))
	for c := first + 1; c < min(first+fan, len(below)); c++ {
		if m := int(uint32(below[c].Load())); t.better(m, best) {
			best = m
		}
	}
	return best
}
