package tcpproxy

import (
	"container/list"
	"context"
	"errors"
	"sync"
)

// Why a connection that found every backend full was not served.
var (
	errQueueFull    = errors.New("every backend is full, and so is the queue")
	errQueueTimeout = errors.New("no backend had room for as long as a connection may wait")
)

// queue is where connections wait for a backend that has room, in the order in which
// they came. Only the first one looks for a backend, when it is woken: at a thousand
// that wait, the end of a connection costs one look and not a thousand.
//
// No wake-up gets lost: whoever becomes the first looks once, so that it does not
// matter whether what it waits for happened just before.
type queue struct {
	limit int

	mu      sync.Mutex
	waiting list.List // of chan struct{}, capacity 1: it is your turn to look
}

// place is a place in the queue.
type place struct {
	queue   *queue
	element *list.Element
	turn    chan struct{}
}

// join takes a place, or returns nil if there is none.
func (q *queue) join() *place {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting.Len() >= q.limit {
		return nil
	}
	p := &place{queue: q, turn: make(chan struct{}, 1)}
	p.element = q.waiting.PushBack(p.turn)
	if q.waiting.Len() == 1 {
		q.wakeFirst()
	}
	return p
}

// leave gives the place up, and lets the next one look. It may be called again.
func (p *place) leave() {
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	if p.element == nil {
		return
	}
	p.queue.waiting.Remove(p.element)
	p.element = nil
	p.queue.wakeFirst()
}

// wait returns when it is time to look, or the cause why ctx ended.
func (p *place) wait(ctx context.Context) error {
	select {
	case <-p.turn:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// wake makes the first one look.
func (q *queue) wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wakeFirst()
}

func (q *queue) wakeFirst() {
	first := q.waiting.Front()
	if first == nil {
		return
	}
	select {
	case first.Value.(chan struct{}) <- struct{}{}:
	default: // it will look anyway
	}
}

func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting.Len()
}
