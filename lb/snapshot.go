package lb

// snapshot is what a Pick reads. It never changes after it was published.
type snapshot[T any] struct {
	entries []entry[T] // in the caller's order; used or not
	group   group      // those that are used
	picker  picker     // nil without members
	mode    Mode

	// plain is the lap of a round robin as indexes of entries, when nothing is
	// counted: a pick then need not ask anybody. offset is that of the lap.
	plain  []uint32
	offset uint64

	byID map[uint32]uint32 // entries by id, for Sticky; nil without one
}

type entry[T any] struct {
	Backend[T]
	load *load // nil unless something counts
	// mark is when its slow start began, or while it is Down when it ceased to be
	// in use; 0 without.
	mark instant
	id   uint32 // for Sticky
	good bool   // of the last good set, see PolicyFailStatic
	step uint8  // of its slow start, 1 to rampSteps
}

// origin tells where the backends of a list stand in an older snapshot.
type origin struct {
	all   bool    // all at the same place
	index []int32 // otherwise their places, -1 for new ones; nil if all are new
}

// match compares keys. Most lists have the same backends as the one before, and
// then that is all there is to do.
func (s *snapshot[T]) match(backends []Backend[T]) origin {
	same := len(backends) == len(s.entries)
	for i := 0; same && i < len(backends); i++ {
		same = backends[i].Key == s.entries[i].Key
	}
	if same {
		return origin{all: true}
	}
	place := make(map[string]int32, len(s.entries))
	for i := range s.entries {
		place[s.entries[i].Key] = int32(i)
	}
	index := make([]int32, len(backends))
	for i := range backends {
		if at, known := place[backends[i].Key]; known {
			index[i] = at
		} else {
			index[i] = -1
		}
	}
	return origin{index: index}
}

// at returns where backend i stands in the older snapshot, or -1.
func (o origin) at(i int) int {
	switch {
	case o.all:
		return i
	case o.index == nil:
		return -1
	}
	return int(o.index[i])
}

// publish makes the successor of old and lets picks see it. It is called with mu
// held, or from New.
func (b *Balancer[T]) publish(old *snapshot[T], backends []Backend[T], from origin) {
	s := &snapshot[T]{entries: make([]entry[T], len(backends))}
	others := len(old.group.members) > 0
	counted := b.shared.count || b.traits.load || b.traits.total
	ramping := false
	for i := range backends {
		e := &s.entries[i]
		e.Backend = backends[i]
		var was *entry[T]
		if at := from.at(i); at >= 0 {
			was = &old.entries[at]
			e.good, e.load = was.good, was.load
		}
		b.ramp(e, was, others)
		b.newID(e, was)
		counted = counted || e.MaxConns > 0
		ramping = ramping || e.step < rampSteps
	}
	if old.mode == ModeNormal || old.mode == ModeBackup {
		b.forget(s)
	}
	members, mode := choose(s.entries, b.policy)
	s.mode = mode
	if mode == ModeNormal || mode == ModeBackup {
		b.remember(s, members)
	}
	s.count(counted, &b.shared)
	b.fill(s, members, ramping)
	if len(members) > 0 {
		s.picker = b.algorithm.prepare(&s.group, old.picker, b.rand.Uint64N)
		s.inline()
	}
	if b.identify {
		s.index()
	}
	b.current.Store(s)
	if t, ok := s.picker.(*tree); ok {
		t.leave(old.picker)
	}
}

// count gives every entry a load, or takes it away.
func (s *snapshot[T]) count(counted bool, shared *shared) {
	s.group.counted = counted
	for i := range s.entries {
		switch e := &s.entries[i]; {
		case counted && e.load == nil:
			e.load = &load{shared: shared}
		case !counted && e.load != nil:
			e.load = nil
		}
	}
}

// fill describes the members to the algorithm.
func (b *Balancer[T]) fill(s *snapshot[T], members []uint32, ramping bool) {
	g := &s.group
	g.private, g.common, g.turn = b.private, b.common, &b.turn
	g.keyOf = func(entry uint32) string { return s.entries[entry].Key }
	g.members = make([]member, len(members))
	for i, at := range members {
		e := &s.entries[at]
		weight := uint32(e.Weight)
		if b.traits.unweighted {
			weight = 1
		}
		if ramping {
			weight *= uint32(e.step)
		}
		g.members[i] = member{load: e.load, weight: weight, limit: part(e.MaxConns, e.step), entry: at}
		g.total += uint64(weight)
	}
}

// inline sets plain if it may be used.
func (s *snapshot[T]) inline() {
	l, ok := s.picker.(*lap)
	if !ok || s.group.counted {
		return
	}
	s.plain, s.offset = l.turns, l.offset
	if len(s.group.members) < len(s.entries) { // else members are the entries
		s.plain = make([]uint32, len(l.turns))
		for i, m := range l.turns {
			s.plain[i] = s.group.members[m].entry
		}
	}
}
