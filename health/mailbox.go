package health

import (
	"context"
	"sync"
)

// mailbox holds at most one event per key until the consumer takes it, so that its
// size is bounded by the number of targets and put never blocks.
type mailbox struct {
	filled chan struct{} // capacity 1: there is something to deliver

	mu      sync.Mutex
	pending map[string]Event
	order   []string // keys of pending, oldest first; may hold keys that are gone
}

func newMailbox() mailbox {
	return mailbox{filled: make(chan struct{}, 1), pending: make(map[string]Event)}
}

// put adds a change of state to what the consumer is to be told about key.
func (b *mailbox) put(key string, old State, status Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, waiting := b.pending[key]
	if !waiting {
		e = Event{Key: key, Old: old}
		b.order = append(b.order, key)
	}
	e.New = status
	if e.Old == e.New.State {
		b.forget(key) // the consumer has not noticed, and need not
		return
	}
	b.pending[key] = e
	select {
	case b.filled <- struct{}{}:
	default:
	}
}

// drop forgets what the consumer was to be told about key.
func (b *mailbox) drop(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(key)
}

// forget is drop with mu held. Cleaning order costs a scan, but only when a key is
// dropped that waits, and the list of waiting ones is short unless the consumer is
// stuck.
func (b *mailbox) forget(key string) {
	delete(b.pending, key)
	for i, k := range b.order {
		if k == key {
			b.order = append(b.order[:i], b.order[i+1:]...)
			return
		}
	}
}

// take removes the oldest event.
func (b *mailbox) take() (Event, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.order) == 0 {
		return Event{}, false
	}
	key := b.order[0]
	b.order = b.order[1:]
	e := b.pending[key]
	delete(b.pending, key)
	return e, true
}

// deliver calls consume for each event until ctx ends.
func (b *mailbox) deliver(ctx context.Context, consume func(Event)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.filled:
		}
		for ctx.Err() == nil {
			e, ok := b.take()
			if !ok {
				break
			}
			consume(e)
		}
	}
}
