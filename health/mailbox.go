package health

import (
	"context"
	"slices"
	"sync"
)

// mailbox holds at most one event per key until the consumer takes it, so that its
// size is bounded by the number of targets and put never blocks.
type mailbox struct {
	filled chan struct{} // capacity 1: there is something to deliver

	mu      sync.Mutex
	pending map[string]letter
	order   []ticket // oldest first; those of letters that are gone are void
	issued  uint64
}

// letter is an event that waits.
type letter struct {
	Event
	number uint64 // of its ticket
}

// ticket is the place of a letter in the queue.
type ticket struct {
	key    string
	number uint64
}

func newMailbox() mailbox {
	return mailbox{filled: make(chan struct{}, 1), pending: make(map[string]letter)}
}

// put adds a change of state to what the consumer is to be told about key.
func (b *mailbox) put(key string, old State, status Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, waiting := b.pending[key]
	if !waiting {
		b.issued++
		l = letter{Event{Key: key, Old: old}, b.issued}
	}
	l.New = status
	if l.Old == l.New.State {
		delete(b.pending, key) // the consumer has not noticed, and need not
		return
	}
	b.pending[key] = l
	if !waiting {
		b.order = append(b.order, ticket{key, l.number})
		b.tidy()
	}
	select {
	case b.filled <- struct{}{}:
	default:
	}
}

// drop forgets what the consumer was to be told about key.
func (b *mailbox) drop(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pending, key)
}

// tidy removes void tickets, with mu held, when they are the most: targets that come
// and go while the consumer is stuck leave one each time.
func (b *mailbox) tidy() {
	if len(b.order) > 2*len(b.pending)+16 {
		b.order = slices.DeleteFunc(b.order, func(t ticket) bool { return !b.valid(t) })
	}
}

func (b *mailbox) valid(t ticket) bool { return b.pending[t.key].number == t.number }

// take removes the oldest event.
func (b *mailbox) take() (Event, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.order) > 0 {
		t := b.order[0]
		b.order = b.order[1:]
		if b.valid(t) {
			e := b.pending[t.key].Event
			delete(b.pending, t.key)
			return e, true
		}
	}
	return Event{}, false
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
