// Package wheel is a hierarchical timer wheel: an agenda in which setting, moving
// and cancelling an entry takes the same small time however many there are.
//
// It is pure: it reads no clock, starts no goroutine and holds no lock. Times are
// durations since an instant of the caller's choice. Unlike most wheels it is
// exact: an entry is due at its own time, not at the end of a tick. The ticks only
// sort the entries roughly, so that finding the due ones takes no search.
package wheel

import (
	"math/bits"
	"time"
)

// ID names an entry.
type ID uint32

// tick is how finely entries are sorted.
const tick = time.Millisecond

// There are four rings of 256 slots. A slot of the first ring is one tick long, a
// slot of the next as long as the whole ring before: 256 ms, 65 s, 4.6 h, and the
// last ring is 49 days around. What lies further ahead is put off when that is over.
const (
	slotBits = 8
	slots    = 1 << slotBits
	rings    = 4
	heads    = rings * slots
)

// Wheel is an agenda. Make one with [New].
type Wheel struct {
	// nodes are the heads of the slots' circular lists, then the entries. Links are
	// indexes, so that the garbage collector has nothing to follow.
	nodes []node
	used  [rings][slots / 64]uint64 // a bit for each slot that is not empty
	done  uint64                    // the first ring stands at this tick; earlier slots are empty
	free  uint32                    // first of the entries given back, linked by next
	n     int
}

type node struct {
	at         time.Duration
	next, prev uint32 // next is none where the entry is in no list
}

const none = ^uint32(0)

// New returns an empty wheel.
func New() *Wheel {
	w := &Wheel{nodes: make([]node, heads), free: none}
	for i := range uint32(heads) {
		w.nodes[i].next, w.nodes[i].prev = i, i
	}
	return w
}

// Len returns the number of entries that are set.
func (w *Wheel) Len() int { return w.n }

// Add returns a new entry, not set. IDs are small: the lowest that were never given
// out, or were given back.
func (w *Wheel) Add() ID {
	if w.free != none {
		i := w.free
		w.free = w.nodes[i].prev
		return ID(i - heads)
	}
	w.nodes = append(w.nodes, node{next: none})
	return ID(len(w.nodes) - heads - 1)
}

// Drop cancels an entry and gives it back: its ID will name another one.
func (w *Wheel) Drop(id ID) {
	w.Cancel(id)
	i := uint32(id) + heads
	w.nodes[i].prev, w.free = w.free, i
}

// Set makes an entry due at a time, which may have gone by, instead of the one set
// before.
func (w *Wheel) Set(id ID, at time.Duration) {
	w.Cancel(id)
	i := uint32(id) + heads
	w.nodes[i].at = at
	w.link(i)
	w.n++
}

// Cancel makes an entry due at no time.
func (w *Wheel) Cancel(id ID) {
	if i := uint32(id) + heads; w.nodes[i].next != none {
		w.unlink(i)
		w.n--
	}
}

// At returns when an entry is due, and whether it is set.
func (w *Wheel) At(id ID) (time.Duration, bool) {
	n := w.nodes[uint32(id)+heads]
	return n.at, n.next != none
}

// Pop cancels and returns an entry that is due at now, and whether there is one.
// Entries come in the order of their time, to the tick. A now that is earlier than
// one before finds what it would have found then.
func (w *Wheel) Pop(now time.Duration) (ID, bool) {
	for w.n > 0 {
		for head, i := w.now(), w.nodes[w.now()].next; i != head; i = w.nodes[i].next {
			if w.nodes[i].at <= now {
				w.unlink(i)
				w.n--
				return ID(i - heads), true
			}
		}
		next := w.nextTick()
		if next == w.done || next > ticks(now) {
			break
		}
		w.turn(next)
	}
	return 0, false
}

// Next returns a time before which no entry is due, and whether any is set. It is
// the time of the first entry if that is less than a ring's slot ahead, otherwise
// the time at which to look again.
func (w *Wheel) Next() (time.Duration, bool) {
	if w.n == 0 {
		return 0, false
	}
	t := w.nextTick()
	head := uint32(t % slots)
	i := w.nodes[head].next
	if t >= w.done+slots || i == head {
		return time.Duration(t) * tick, true
	}
	first := w.nodes[i].at
	for ; i != head; i = w.nodes[i].next {
		first = min(first, w.nodes[i].at)
	}
	// A further ring may have to be emptied into the first one at this tick.
	if start := time.Duration(t) * tick; t > w.done && t%slots == 0 {
		first = min(first, start)
	}
	return first, true
}

// now returns the head of the slot at which the first ring stands.
func (w *Wheel) now() uint32 { return uint32(w.done % slots) }

// ticks returns the tick that a time falls into; times before 0 are in the first.
func ticks(at time.Duration) uint64 { return uint64(max(at, 0) / tick) }

// link puts an entry at the end of the list of its slot: in the innermost ring that
// reaches as far as its time.
func (w *Wheel) link(i uint32) {
	t := max(ticks(w.nodes[i].at), w.done)
	ring := 0
	for ring < rings-1 && (t-w.done)>>(slotBits*(ring+1)) != 0 {
		ring++
	}
	const furthest = (slots - 1) << (slotBits * (rings - 1))
	t = min(t, w.done+furthest)
	slot := uint32(t>>(slotBits*ring)) % slots
	head := uint32(ring)*slots + slot
	last := w.nodes[head].prev
	w.nodes[i].next, w.nodes[i].prev = head, last
	w.nodes[last].next, w.nodes[head].prev = i, i
	w.used[ring][slot/64] |= 1 << (slot % 64)
}

// unlink takes an entry out of its list.
func (w *Wheel) unlink(i uint32) {
	next, prev := w.nodes[i].next, w.nodes[i].prev
	w.nodes[next].prev, w.nodes[prev].next = prev, next
	w.nodes[i].next = none
	if next == prev && next < heads { // the head alone is left
		w.used[next/slots][next%slots/64] &^= 1 << (next % 64)
	}
}

// nextTick returns the first tick, from the present one on, at which a slot of any
// ring that is not empty begins. There must be an entry.
func (w *Wheel) nextTick() uint64 {
	first := ^uint64(0)
	for ring := range rings {
		shift := slotBits * ring
		base := w.done >> shift
		if ring > 0 {
			base++ // the present slot of a further ring is empty, or a whole turn ahead
		}
		if d, ok := w.firstUsed(ring, uint32(base%slots)); ok {
			first = min(first, (base+uint64(d))<<shift)
		}
	}
	return first
}

// firstUsed returns how many slots after start, around the ring, the first one
// stands that is not empty.
func (w *Wheel) firstUsed(ring int, start uint32) (uint32, bool) {
	const words = slots / 64
	used := &w.used[ring]
	// The word of start is looked at twice: its high bits first, its low ones last.
	for k := range uint32(words + 1) {
		word := (start/64 + k) % words
		b := used[word]
		switch k {
		case 0:
			b &= ^uint64(0) << (start % 64)
		case words:
			b &= 1<<(start%64) - 1
		}
		if b != 0 {
			slot := word*64 + uint32(bits.TrailingZeros64(b))
			return (slot - start) % slots, true
		}
	}
	return 0, false
}

// turn moves on to tick t, at or before which no entry may be left behind, and
// empties the slots of the further rings that begin there into the nearer ones.
func (w *Wheel) turn(t uint64) {
	w.done = t
	for ring := rings - 1; ring > 0; ring-- {
		if t&(1<<(slotBits*ring)-1) != 0 {
			continue
		}
		head := uint32(ring)*slots + uint32(t>>(slotBits*ring))%slots
		// Take the list as a whole: what lies beyond the last ring comes back here.
		i := w.nodes[head].next
		w.nodes[w.nodes[head].prev].next = none
		w.nodes[head].next, w.nodes[head].prev = head, head
		w.used[ring][head%slots/64] &^= 1 << (head % 64)
		for i != head && i != none {
			next := w.nodes[i].next
			w.link(i)
			i = next
		}
	}
}
