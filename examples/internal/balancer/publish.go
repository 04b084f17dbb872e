package balancer

import (
	"context"
	"sync"
	"time"

	"github.com/lastbeat/lastbeat/examples/internal/tcpproxy"
	"github.com/lastbeat/lastbeat/health"
	"github.com/lastbeat/lastbeat/lb"
)

// tick is how long verdicts are collected before they take effect together. When a
// switch dies a thousand servers go down at once, and each rebuild looks at all.
const tick = 5 * time.Millisecond

// changes collects the last event of each server. Its size is bounded by their
// number, however slow the one is who takes them.
type changes struct {
	filled chan struct{} // capacity 1

	mu     sync.Mutex
	events map[string]health.Event
	order  []string // keys of events, in the order of their first one
}

func newChanges() *changes {
	return &changes{filled: make(chan struct{}, 1), events: map[string]health.Event{}}
}

func (c *changes) put(e health.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, waits := c.events[e.Key]; !waits {
		c.order = append(c.order, e.Key)
	}
	c.events[e.Key] = e
	signal(c.filled)
}

func (c *changes) take() []health.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]health.Event, 0, len(c.order))
	for _, key := range c.order {
		all = append(all, c.events[key])
	}
	clear(c.events)
	c.order = nil
	select {
	case <-c.filled: // by one of these
	default:
	}
	return all
}

// signal fills a channel of capacity 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// drive applies the monitor's verdicts and the steps of slow starts until ctx ends.
func (b *B) drive(ctx context.Context) error {
	step := time.NewTimer(time.Hour)
	defer step.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.changes.filled:
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(tick):
			}
			b.apply(b.changes.take())
		case <-b.published: // by somebody else
		case <-step.C:
			b.backends.Advance(time.Now())
			b.proxy.Wake() // limits rise, too
		}
		next := time.Hour
		if deadline := b.backends.Deadline(); !deadline.IsZero() {
			next = time.Until(deadline)
		}
		step.Reset(next)
	}
}

// apply publishes once, and then tells about each event: whoever hears of it finds
// it in effect.
func (b *B) apply(events []health.Event) {
	b.mu.Lock()
	err := b.publish()
	onEvent, log := b.config.OnEvent, b.config.Log
	b.mu.Unlock()
	if err != nil {
		log.Error("verdicts not applied", "err", err)
	}
	if onEvent == nil {
		return
	}
	for _, e := range events {
		onEvent(Event{
			Backend: e.Key, Up: e.New.State == health.Online, State: e.New.State,
			At: e.New.Since, Reason: e.New.Reason.String(),
		})
	}
}

// publish hands the present verdicts to the balancer. It looks at all of them, so
// that it does not matter which event led to it. b.mu is held, but in New.
func (b *B) publish() error {
	verdicts := b.monitor.Snapshot()
	list := make([]lb.Backend[tcpproxy.Server], 0, len(b.config.Backends))
	known := true
	for _, s := range b.config.Backends {
		v := verdicts[s.Name]
		known = known && (v.State != health.Unknown || v.Reason.Code == health.Expired)
		entry := b.wishes[s.Name].present(s, v.State)
		if b.traffic[s.Name] == nil {
			b.traffic[s.Name] = new(tcpproxy.Traffic)
		}
		entry.Value.Traffic = b.traffic[s.Name]
		list = append(list, entry)
	}
	// Slow starts are for servers that come to a running balancer. Those that it
	// starts with begin whole, although their verdicts come one after the other: so
	// the time is told only when there was a verdict about each.
	if b.judged {
		b.backends.Advance(time.Now())
	}
	b.judged = b.judged || known
	err := b.backends.Set(list...)
	b.rebuilds++
	b.proxy.Wake()
	signal(b.published)
	return err
}
