package main

import (
	"slices"
	"strconv"
	"time"

	"github.com/lastbeat/lastbeat/examples/internal/load"
)

// observation is what was seen of one run, all instants on one clock: that of the
// capture on the lab's bridge, or of the simulation.
type observation struct {
	Setup    setup
	Fault    time.Time // when the fault was made; zero without one
	Victim   string    // the node it hit
	End      time.Time
	Adverts  []advert      // VRRP, in order
	Garps    []announced   // gratuitous ARP
	Answers  []announced   // ARP replies to a host that asks again and again
	Replies  []reply       // pings answered to the client
	Requests []load.Record // the client's
	Removed  []removal     // backends that a balancer took out
	Lost     int           // frames that the capture missed: the picture has holes
}

// setup is what a run is about.
type setup struct {
	Peer      string        // "lastbeat" or "keepalived"
	FaultKind string        // silent, carrier, kill, term, freeze, backend, none
	Interval  time.Duration // between adverts
	Version   int
	Lifetime  time.Duration // of an address; 0 where it has none
	Simulated bool
	Seed      uint64
}

type advert struct {
	At       time.Time
	Node     string
	VRID     int
	Priority int
}

type announced struct {
	At   time.Time
	Node string
	VIP  string
}

type reply struct {
	At   time.Time
	Node string // who answered
	VIP  string
}

type removal struct {
	At      time.Time
	Node    string // whose balancer
	Backend string // the node that serves it
}

// result is what the observation says about one address.
type result struct {
	VIP       string `json:"vip"`
	OldHolder string `json:"old_holder"`
	NewHolder string `json:"new_holder,omitempty"` // who has it at the end, if not the old one
	Claimant  string `json:"claimant,omitempty"`   // who took over first: the new holder, but for a duel

	// Instants, in milliseconds after the fault; absent when it did not happen.
	LastAdvert  *ms `json:"last_advert_ms,omitempty"`  // of the old holder
	Goodbye     *ms `json:"goodbye_ms,omitempty"`      // its advert of priority 0
	FirstAdvert *ms `json:"first_advert_ms,omitempty"` // of the claimant
	FirstGARP   *ms `json:"first_garp_ms,omitempty"`   // of the new holder
	FirstReply  *ms `json:"first_reply_ms,omitempty"`  // from the new holder at the client
	LastAnswer  *ms `json:"last_answer_ms,omitempty"`  // of the old holder to ARP
	Removed     *ms `json:"removed_ms,omitempty"`      // the dead backend, by the new holder's balancer
	Refreshed   *ms `json:"refreshed_ms,omitempty"`    // first announcement after the opening round

	// Durations in milliseconds.
	Takeover *ms  `json:"takeover_ms,omitempty"` // from the last advert, or the goodbye, to the first
	Limit    *ms  `json:"limit_ms,omitempty"`    // what the protocol allows for it
	Gap      ms   `json:"gap_ms"`                // the longest without a ping answered
	GapFrom  ms   `json:"gap_from_ms"`           // when it began
	GapOpen  bool `json:"gap_open,omitempty"`    // it lasted until the end of the run
	DarkGap  ms   `json:"dark_gap_ms"`           // the longest after the first reply of another than the old holder

	Requests     int  `json:"requests"`
	Failed       int  `json:"failed"`
	Cut          int  `json:"in_flight"`        // of the requests: under way when the fault came
	FailedFlight int  `json:"failed_in_flight"` // of those, failed
	Moved        bool `json:"moved"`            // the address has another holder than before
}

// ms is a duration that is written as milliseconds.
type ms time.Duration

// MarshalJSON writes milliseconds with one decimal.
func (d ms) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(d)/1e6, 'f', 1, 64), nil
}

// darkGap is how long a client may be without an answer after it has had one from
// a successor; a longer one counts as dark.
const darkGap = 500 * time.Millisecond

// settled is how far from the first announcement the opening round reaches.
const settled = 6 * time.Second

// virtual is one of the lab's addresses.
type virtual struct {
	Name   string
	Addr   string
	VRID   int
	Target string // of the client's requests
}

var virtuals = []virtual{
	{Name: "API", Addr: "192.168.37.201", VRID: 206, Target: "API"},
	{Name: "ingress", Addr: "192.168.37.202", VRID: 45, Target: "ingress"},
}

// analyze tells what happened to an address.
func (o *observation) analyze(v virtual) result {
	r := result{VIP: v.Addr}
	at := func(t time.Time) *ms { return new(ms(t.Sub(o.Fault))) }
	adverts := slices.DeleteFunc(slices.Clone(o.Adverts), func(a advert) bool { return a.VRID != v.VRID })

	// Before: who advertised last. After: who first, that was not him.
	var last, first *advert
	for i := range adverts {
		a := &adverts[i]
		switch {
		case a.At.Before(o.Fault):
			if a.Priority > 0 {
				r.OldHolder, last = a.Node, a
			}
		case first != nil || a.Node != r.OldHolder && a.Priority == 0:
		case a.Node != r.OldHolder:
			first = a
		case a.Priority > 0:
			last = a
		default:
			r.Goodbye = at(a.At)
		}
	}
	if last != nil {
		r.LastAdvert = at(last.At)
	}
	if first != nil {
		r.FirstAdvert, r.Claimant = at(first.At), first.Node
		r.Takeover, r.Limit = o.takeover(last, r.Goodbye, first)
		if final := o.finalHolder(adverts, first.Node); final != r.OldHolder {
			r.NewHolder, r.Moved = final, true
		}
	}
	o.analyzeARP(&r, v, at)
	o.analyzeReplies(&r, v, at)
	o.analyzeRequests(&r, v)
	if v.Name == "API" { // the ingress address leads to the router itself
		for _, b := range o.Removed {
			if b.Backend == o.Victim && b.Node == r.holder() && r.Removed == nil && !b.At.Before(o.Fault) {
				r.Removed = at(b.At)
			}
		}
	}
	return r
}

// holder has the address at the end.
func (p result) holder() string {
	if p.Moved {
		return p.NewHolder
	}
	return p.OldHolder
}

// finalHolder is who advertises last: after a duel, the winner.
func (o *observation) finalHolder(adverts []advert, holder string) string {
	for _, a := range adverts {
		if !a.At.Before(o.Fault) && a.Priority > 0 {
			holder = a.Node
		}
	}
	return holder
}

// takeover is how long the claimant waited, and how long it may: three
// intervals and its skew after the last advert, or the skew after a goodbye.
func (o *observation) takeover(last *advert, goodbye *ms, first *advert) (took, limit *ms) {
	if last == nil {
		return nil, nil
	}
	unit := o.Setup.Interval
	if o.Setup.Version == 2 {
		unit = time.Second
	}
	skew := time.Duration(256-first.Priority) * unit / 256
	if goodbye != nil {
		return new(ms(first.At.Sub(o.Fault)) - *goodbye), new(ms(skew))
	}
	return new(ms(first.At.Sub(last.At))), new(ms(3*o.Setup.Interval + skew))
}

func (o *observation) analyzeARP(r *result, v virtual, at func(time.Time) *ms) {
	var begun time.Time
	for _, g := range o.Garps {
		if g.VIP != v.Addr || g.Node != r.NewHolder || g.At.Before(o.Fault) || !r.Moved {
			continue
		}
		if r.FirstGARP == nil {
			r.FirstGARP, begun = at(g.At), g.At
		} else if r.Refreshed == nil && g.At.Sub(begun) > settled {
			r.Refreshed = at(g.At)
		}
	}
	for _, a := range o.Answers {
		if a.VIP == v.Addr && a.Node == r.OldHolder && r.Moved && a.At.After(o.Fault) {
			r.LastAnswer = at(a.At)
		}
	}
}

func (o *observation) analyzeReplies(r *result, v virtual, at func(time.Time) *ms) {
	from := o.Fault.Add(-time.Second)
	prev := from
	var back time.Time // the first reply of a successor, be it the loser of a duel
	gap := func(until time.Time) {
		if d := ms(until.Sub(prev)); d > r.Gap {
			r.Gap, r.GapFrom = d, *at(prev)
			r.GapOpen = until.Equal(o.End)
		}
		if !back.IsZero() {
			r.DarkGap = max(r.DarkGap, ms(until.Sub(prev)))
		}
	}
	for _, p := range o.Replies {
		if p.VIP != v.Addr || p.At.Before(from) {
			continue
		}
		gap(p.At)
		prev = p.At
		if p.At.Before(o.Fault) || p.Node == r.OldHolder {
			continue
		}
		if back.IsZero() {
			back = p.At
		}
		if p.Node == r.NewHolder && r.FirstReply == nil {
			r.FirstReply = at(p.At)
		}
	}
	if o.End.After(prev) {
		gap(o.End)
	}
}

func (o *observation) analyzeRequests(r *result, v virtual) {
	for _, q := range o.Requests {
		if q.Target != v.Target || q.Scheduled.Before(o.Fault.Add(-time.Second)) {
			continue
		}
		cut := q.InFlight(o.Fault)
		r.Requests++
		if cut {
			r.Cut++
		}
		if q.Error != "" {
			r.Failed++
			if cut {
				r.FailedFlight++
			}
		}
	}
}
