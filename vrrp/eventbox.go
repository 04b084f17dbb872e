package vrrp

import "sync"

// eventBoxSize is how many events wait for a slow consumer before the newest are
// merged.
const eventBoxSize = 16

// eventBox carries an instance's events to a consumer that may be slow. When it
// is full the last event takes in the new one, so that the final state is never
// lost and the box never grows.
type eventBox struct {
	mu     sync.Mutex
	cond   *sync.Cond
	queue  []Event
	closed bool
}

func newEventBox() *eventBox {
	b := &eventBox{}
	b.cond = sync.NewCond(&b.mu)
	return b
}

func (b *eventBox) put(e Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.queue); n == eventBoxSize {
		last := b.queue[n-1]
		e.From, e.Missed = last.From, last.Missed+1
		b.queue = b.queue[:n-1]
	}
	b.queue = append(b.queue, e)
	b.cond.Signal()
}

// close lets dispatch end when the queue is empty.
func (b *eventBox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.cond.Signal()
}

// dispatch hands the events to f one at a time, until close.
func (b *eventBox) dispatch(f func(Event)) {
	for {
		b.mu.Lock()
		for len(b.queue) == 0 && !b.closed {
			b.cond.Wait()
		}
		if len(b.queue) == 0 {
			b.mu.Unlock()
			return
		}
		e := b.queue[0]
		b.queue = append(b.queue[:0], b.queue[1:]...)
		b.mu.Unlock()
		if f != nil {
			f(e)
		}
	}
}
