// Package sim runs protocol machines in virtual time on a network that loses,
// delays, duplicates and cuts. Everything follows from one seed, so that a run
// can be repeated exactly.
//
// A simulation is single-threaded: [World.Run] calls the processes one after the
// other, in the order of their events.
package sim

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// Epoch is when every simulation begins.
var Epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// World is a virtual clock with a queue of events.
type World struct {
	Rand  *rand.Rand // the only source of chance
	now   time.Time
	queue events
	seq   uint64
}

// New returns a world at [Epoch].
func New(seed uint64) *World {
	return &World{Rand: rand.New(rand.NewPCG(seed, 0x6c617374)), now: Epoch}
}

// Now returns the virtual time.
func (w *World) Now() time.Time { return w.now }

// At runs f at t, or at once if t has passed. Events of one instant run in the
// order in which they were asked for.
func (w *World) At(t time.Time, f func()) {
	if t.Before(w.now) {
		t = w.now
	}
	w.seq++
	heap.Push(&w.queue, event{t, w.seq, f})
}

// After runs f after d.
func (w *World) After(d time.Duration, f func()) { w.At(w.now.Add(d), f) }

// Run runs all events up to and including until, and leaves the clock there.
func (w *World) Run(until time.Time) {
	for len(w.queue) > 0 && !w.queue[0].at.After(until) {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.f()
	}
	if w.now.Before(until) {
		w.now = until
	}
}

type event struct {
	at  time.Time
	seq uint64
	f   func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	if q[i].at.Equal(q[j].at) {
		return q[i].seq < q[j].seq
	}
	return q[i].at.Before(q[j].at)
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	e := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return e
}
