package vrrp

import (
	"slices"
	"sync"
)

// holderMailbox carries events to a consumer that may be slow. It keeps the
// latest event of each kind, in the order of their happening, so that it never
// grows, never blocks the sender, and never loses the final state.
type holderMailbox struct {
	mu     sync.Mutex
	queue  []HolderEvent
	closed bool
	ready  chan struct{} // holds a token while there is something to do
}

func newHolderMailbox() *holderMailbox {
	return &holderMailbox{ready: make(chan struct{}, 1)}
}

// put adds an event, in place of an older one of its kind.
func (b *holderMailbox) put(e HolderEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.IndexFunc(b.queue, func(o HolderEvent) bool { return o.Kind == e.Kind }); i >= 0 {
		e.Missed += b.queue[i].Missed + 1
		b.queue = slices.Delete(b.queue, i, i+1)
	}
	b.queue = append(b.queue, e)
	b.signal()
}

// close lets dispatch end when the queue is empty.
func (b *holderMailbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.signal()
}

func (b *holderMailbox) signal() {
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// dispatch hands the events to f one at a time, until close.
func (b *holderMailbox) dispatch(f func(HolderEvent)) {
	for range b.ready {
		for {
			e, ok, closed := b.take()
			if ok {
				f(e)
				continue
			}
			if closed {
				return
			}
			break
		}
	}
}

func (b *holderMailbox) take() (e HolderEvent, ok, closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		return e, false, b.closed
	}
	e = b.queue[0]
	b.queue = slices.Delete(b.queue, 0, 1)
	return e, true, b.closed
}
