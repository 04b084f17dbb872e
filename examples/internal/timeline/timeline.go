// Package timeline shows what happened around a fault: as lines for a terminal,
// and as a picture of who held what.
//
// The caller fills in a [Run] with what it measured, all instants relative to
// the fault:
//
//   - [Run.Line] is one event as a line, for printing while it happens.
//   - [Run.WriteEvents] prints all of them in the order of their instants.
//   - [Run.WriteSVG] draws one run.
//
// Every line of a simulated run says "simulated". The package reads no clock and
// measures nothing; equal input gives equal output, byte by byte.
package timeline

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Run is one fault and what followed.
type Run struct {
	// Title tells what was done, such as "master2 becomes unreachable".
	Title string
	// Setup tells with what, such as "vrrp v2 unicast, adverts every 1 s".
	Setup string
	// Simulated says that no packet was sent: virtual time, Seed.
	Simulated bool
	Seed      uint64

	// Lanes are the rows of the picture from top to bottom. Lanes that only
	// spans name follow in the order in which they appear.
	Lanes   []string
	Spans   []Span
	Events  []Event // in any order
	Clients []Client

	// ViewFrom and ViewTo bound the picture. Both zero means from a little before
	// the first event to a little after the last one, but not beyond 20 s; what
	// comes later is listed below the picture.
	ViewFrom, ViewTo time.Duration
}

// Span is a state that lasted. From and To are relative to the fault.
type Span struct {
	Lane     string // whose: a node or a client
	Label    string // the VIP, by one name everywhere; of Down: what is wrong
	From, To time.Duration
	Kind     SpanKind
}

// SpanKind is what a span means.
type SpanKind string

// The kinds of spans.
const (
	Holds   SpanKind = "holds"   // the node has the VIP
	Lingers SpanKind = "lingers" // a node that lost the VIP, or cannot be reached, still has it
	Down    SpanKind = "down"    // the node is broken
	Replies SpanKind = "replies" // the client gets replies
	Gap     SpanKind = "gap"     // the client gets none
)

var spanKinds = []SpanKind{Holds, Lingers, Down, Replies, Gap}

// Event is an instant.
type Event struct {
	At   time.Duration // relative to the fault, negative before it
	Text string        // a sentence without full stop
	Kind EventKind
	Lane string // where it happened, if in one row of the picture
}

// EventKind says which part of the system an event belongs to.
type EventKind string

// The kinds of events.
const (
	Fault    EventKind = "fault"    // what the example did
	Protocol EventKind = "vrrp"     // an advert, a transition
	Announce EventKind = "announce" // a gratuitous ARP
	Backend  EventKind = "backend"  // a balancer's verdict on a backend
	Seen     EventKind = "client"   // something that a client saw
	Note     EventKind = "note"     // anything else
)

var eventKinds = []EventKind{Fault, Protocol, Announce, Backend, Seen, Note}

// Client is what the client of one VIP saw.
type Client struct {
	VIP string
	// GapFrom and GapTo bound the longest time without a reply: the last reply
	// before and the first one after. Equal means that there was no gap.
	GapFrom, GapTo time.Duration
	// Open says that the gap had not ended when the run did.
	Open bool
	// Requests were begun, each on a connection of its own; Failed of them got
	// no answer. Cut counts those under way at the fault, apart from both.
	Requests, Failed, Cut int
	// Dark are the gaps after the first reply of the new holder, each longer
	// than the caller's limit.
	Dark []time.Duration
}

func (c Client) gap() time.Duration { return c.GapTo - c.GapFrom }

// Validate reports all that makes no sense in a run.
func (r Run) Validate() error {
	var faults []error
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf("timeline: "+format, args...)) }
	for _, s := range r.Spans {
		if s.To < s.From {
			bad("%s of %q on %s ends at %v, before it begins at %v", s.Kind, s.Label, s.Lane, s.To, s.From)
		}
		if !slices.Contains(spanKinds, s.Kind) {
			bad("span of %q on %s has the unknown kind %q", s.Label, s.Lane, s.Kind)
		}
		if s.Lane == "" {
			bad("%s of %q has no lane", s.Kind, s.Label)
		}
	}
	for _, e := range r.Events {
		if !slices.Contains(eventKinds, e.Kind) {
			bad("event %q has the unknown kind %q", e.Text, e.Kind)
		}
	}
	for _, c := range r.Clients {
		if c.GapTo < c.GapFrom {
			bad("the gap of %s ends at %v, before it begins at %v", c.VIP, c.GapTo, c.GapFrom)
		}
		if c.Failed > c.Requests {
			bad("%s: %d of %d requests failed", c.VIP, c.Failed, c.Requests)
		}
	}
	if r.ViewTo < r.ViewFrom {
		bad("the view ends at %v, before it begins at %v", r.ViewTo, r.ViewFrom)
	}
	return errors.Join(faults...)
}

// sorted returns the events in the order of their instants; equal ones stay as
// the caller gave them.
func (r Run) sorted() []Event {
	events := slices.Clone(r.Events)
	slices.SortStableFunc(events, func(a, b Event) int {
		switch {
		case a.At < b.At:
			return -1
		case a.At > b.At:
			return 1
		}
		return 0
	})
	return events
}

// vips returns the VIPs of a run in the order in which they appear.
func (r Run) vips() []string {
	var all []string
	add := func(name string) {
		if name != "" && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	for _, s := range r.Spans {
		if s.Kind != Down {
			add(s.Label)
		}
	}
	for _, c := range r.Clients {
		add(c.VIP)
	}
	return all
}
