package lb

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"sync/atomic"
)

// MaxSticky is the largest size of a [Sticky] table.
const MaxSticky = 1 << 24

// ErrSticky is wrapped by the error of [NewSticky].
var ErrSticky = errors.New("lb: bad size of a sticky table")

// Sticky is a [Balancer] that remembers which backend each key was given, and gives
// it again. Unlike the algorithms by key, it works with any algorithm, and a
// backend that joins takes no keys from others.
//
// What it remembers of a key ends when its backend goes Down, for however short a
// time, when it is removed, or when it was a backup and backends of a lower tier
// are up again. It survives Drain and a weight of 0: those keep new clients away,
// not the old ones. A backend that is full keeps its keys; until it has room they
// are given to others.
//
// The table has a fixed size. When it is full a new key takes the place of another
// one, drawn at random from a few. Two keys may, once in some billions of pairs of
// keys, be taken for the same; then they share a backend.
//
// All methods are safe for use by many goroutines at once.
type Sticky[T any] struct {
	balancer *Balancer[T]
	// slots hold 32 bits of a key's hash, and the id of its backend below. A key may
	// stand in any slot of its bucket.
	slots []atomic.Uint64
}

// ways is the number of slots of a bucket: one cache line has two buckets.
const ways = 4

// NewSticky returns a Sticky that remembers size keys, 1 to MaxSticky, rounded up to
// a multiple of 4; 8 bytes each. The balancer may be used beside it.
func NewSticky[T any](balancer *Balancer[T], size int) (*Sticky[T], error) {
	if size < 1 || size > MaxSticky {
		return nil, fmt.Errorf("%w: %d keys: want 1 to %d", ErrSticky, size, MaxSticky)
	}
	balancer.mu.Lock()
	defer balancer.mu.Unlock()
	if !balancer.identify {
		balancer.identify = true
		balancer.publish(balancer.current.Load(), balancer.Backends(), origin{all: true})
	}
	return &Sticky[T]{balancer, make([]atomic.Uint64, (size+ways-1)/ways*ways)}, nil
}

// newID gives e an id: that of the backend since its key was last added or it
// was last Down. A key that remembers an older id has outlived it.
func (b *Balancer[T]) newID(e, was *entry[T]) {
	if was != nil && was.State != Down && e.State != Down {
		e.id = was.id
		return
	}
	b.ids++
	e.id = b.ids
}

// index makes the ids of the backends that may keep their keys known.
func (s *snapshot[T]) index() {
	tier := uint8(math.MaxUint8)
	if len(s.group.members) > 0 {
		tier = s.entries[s.group.members[0].entry].Tier
	}
	s.byID = make(map[uint32]uint32, len(s.entries))
	for i := range s.entries {
		if e := &s.entries[i]; e.State != Down && e.Tier <= tier {
			s.byID[e.id] = uint32(i)
		}
	}
}

// Pick gives the backend that the key was given before, or else what Balancer.Pick
// gives, and remembers it. Its promises and its errors are those of Balancer.Pick.
func (s *Sticky[T]) Pick(key uint64) (Lease[T], error) {
	now := s.balancer.current.Load()
	place := s.find(now, key)
	if place.known {
		if l, ok := now.again(place.entry); ok {
			return l, nil
		}
	}
	l, err := now.pick(key)
	if err == nil && !place.known {
		s.remember(place, l.entry.id)
	}
	return l, err
}

// Walk yields first what Pick would give and then the others, as Balancer.Walk does,
// and remembers the one at which the caller stops: that is the one that works.
//
// Unlike Pick it may allocate.
func (s *Sticky[T]) Walk(key uint64) iter.Seq[Lease[T]] {
	return func(yield func(Lease[T]) bool) {
		now := s.balancer.current.Load()
		tried := newSet(len(now.group.members))
		if place := s.find(now, key); place.known {
			if l, ok := now.again(place.entry); ok {
				for i := range now.group.members {
					if now.group.members[i].entry == place.entry {
						tried.add(i)
					}
				}
				if !yield(l) {
					return
				}
			}
		}
		for l := range now.walk(key, tried) {
			if !yield(l) {
				// Only now, since others may have used the bucket meanwhile.
				s.remember(s.find(now, key), l.entry.id)
				return
			}
		}
	}
}

// A place is where a key stands, or may be put.
type place struct {
	slot  *atomic.Uint64
	mark  uint64 // upper half: the key's; the lower half is 0
	entry uint32
	known bool
}

// find looks for the key in its bucket. For a key that is not known it finds the
// best slot to take: its own outlived one, a free or an outlived one, any.
func (s *Sticky[T]) find(now *snapshot[T], key uint64) place {
	h := mix64(key ^ s.balancer.private)
	bucket := s.slots[scale(h, uint64(len(s.slots)/ways))*ways:][:ways]
	p := place{mark: h<<32 | 1<<32} // odd, so that a free slot is nobody's
	for i := range bucket {
		v := bucket[i].Load()
		entry, valid := now.byID[uint32(v)]
		if v>>32<<32 == p.mark {
			p.slot, p.entry, p.known = &bucket[i], entry, valid
			return p
		}
		if !valid && p.slot == nil {
			p.slot = &bucket[i]
		}
	}
	if p.slot == nil {
		p.slot = &bucket[mix64(h+s.balancer.turn.Load())%ways]
	}
	return p
}

func (s *Sticky[T]) remember(p place, id uint32) { p.slot.Store(p.mark | uint64(id)) }

// again gives a lease on the entry, which need not be a member, unless it is full.
func (s *snapshot[T]) again(i uint32) (Lease[T], bool) {
	e := &s.entries[i]
	if e.load != nil {
		if !e.load.acquire(part(e.MaxConns, e.step)) {
			return Lease[T]{}, false
		}
		if seat := e.load.seat.Load(); seat != nil {
			seat.refresh(true)
		}
	}
	return Lease[T]{e, e.load, s.mode}, true
}
