package lb

import "time"

// rampSteps is the number of steps of a slow start. The first is a tenth: with
// less, a backend among many others may see its window pass without a single
// connection.
const rampSteps = 10

// An instant is the time since the first Advance, in nanoseconds + 1; 0 is none.
type instant int64

func (b *Balancer[T]) instant(t time.Time) instant {
	return instant(t.Sub(b.begin)) + 1
}

// Advance tells the balancer the time, for slow starts and for PeakEWMA. It rebuilds
// the snapshot if a slow start takes its next step; otherwise it costs little.
// Calls that are early, late, repeated or overtaken by a later one do no harm.
//
// A program that uses slow starts calls it before each Set, so that they begin
// with the right time, and at Deadline. Until the first call there are none: the
// backends that a program starts with begin with their whole weight.
func (b *Balancer[T]) Advance(now time.Time) {
	if b.shared.latency {
		b.shared.clock.tick(now)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.now.IsZero() && now.Before(b.now) {
		return
	}
	due := b.deadline()
	if b.now.IsZero() {
		b.begin = now
	}
	b.now = now
	if !due.IsZero() && !now.Before(due) {
		old := b.current.Load()
		b.publish(old, b.Backends(), origin{all: true})
	}
}

// Deadline returns when Advance has the next thing to do: the next step of a slow
// start. It is the zero time when there is none, until the next Set. Only a slow
// start asks for it.
func (b *Balancer[T]) Deadline() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.deadline()
}

func (b *Balancer[T]) deadline() time.Time {
	if b.slow == 0 {
		return time.Time{}
	}
	var first instant
	entries := b.current.Load().entries
	for i := range entries {
		e := &entries[i]
		if e.mark == 0 || e.State == Down {
			continue
		}
		// From the step that the snapshot shows, not from what now would be.
		if due := e.mark + instant(time.Duration(e.step+1)*b.slow/rampSteps); first == 0 || due < first {
			first = due
		}
	}
	if first == 0 {
		return time.Time{}
	}
	return b.begin.Add(time.Duration(first - 1))
}

// ramp sets where in its slow start an entry is. was is the entry before, nil for a
// new one; others tells whether backends were in use.
func (b *Balancer[T]) ramp(e, was *entry[T], others bool) {
	e.step = rampSteps
	switch {
	case e.State == Down:
		if was != nil && was.State == Down {
			e.mark = was.mark
		}
		return
	case b.slow == 0 || b.now.IsZero():
		return
	case was != nil && was.State != Down:
		e.mark = was.mark
	case others && e.State == Up:
		e.mark = b.instant(b.now)
	}
	if e.mark == 0 {
		return
	}
	// A now before the mark can't be: both are times of Advance, which only go forward.
	if passed := time.Duration(b.instant(b.now) - e.mark); passed < b.slow {
		e.step = uint8(max(1, passed*rampSteps/b.slow))
		return
	}
	e.mark = 0
}

// part returns what of a limit of connections may be used at a step.
func part(limit int, step uint8) uint32 {
	return uint32((uint64(limit)*uint64(step) + rampSteps - 1) / rampSteps)
}
