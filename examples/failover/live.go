package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/lastbeat/lastbeat/examples/internal/timeline"
)

// live prints what happens while it happens. It only looks for the first of each
// kind; the results are computed from everything at the end.
type live struct {
	run   timeline.Run
	shown []string
}

// frame is a run without events, for single lines.
func (o outcome) frame() timeline.Run {
	s := o.obs.Setup
	return timeline.Run{Title: s.title(o.obs.Victim), Setup: s.describe(), Simulated: s.Simulated, Seed: s.Seed}
}

func (l *live) print(o *observation, at time.Time, kind timeline.EventKind, text string) {
	fmt.Println(l.run.Line(timeline.Event{At: at.Sub(o.Fault), Kind: kind, Text: text}))
}

// once prints a text the first time that its key comes.
func (l *live) once(o *observation, key string, at time.Time, kind timeline.EventKind, text string) {
	if o.Fault.IsZero() || slices.Contains(l.shown, key) {
		return
	}
	l.shown = append(l.shown, key)
	l.print(o, at, kind, text)
}

func (l *live) fault(o *observation) {
	for _, v := range virtuals {
		for i := len(o.Adverts) - 1; i >= 0; i-- {
			if a := o.Adverts[i]; a.VRID == v.VRID {
				l.print(o, a.At, timeline.Protocol, fmt.Sprintf("%s: last advert of %s before the fault", v.Name, a.Node))
				break
			}
		}
	}
	l.print(o, o.Fault, timeline.Fault, l.run.Title)
}

func byVRID(vrid int) string {
	for _, v := range virtuals {
		if v.VRID == vrid {
			return v.Name
		}
	}
	return "?"
}

func byVIP(addr string) string {
	for _, v := range virtuals {
		if v.Addr == addr {
			return v.Name
		}
	}
	return addr
}

func (l *live) advert(o *observation, a advert) {
	name := byVRID(a.VRID)
	switch {
	case a.Node == firstHolder && a.Priority == 0:
		l.once(o, name+" goodbye", a.At, timeline.Protocol, fmt.Sprintf("%s: %s says goodbye (priority 0)", name, a.Node))
	case a.Node != firstHolder && a.Priority > 0:
		l.once(o, name+" advert "+a.Node, a.At, timeline.Protocol, fmt.Sprintf("%s: first advert of %s, priority %d", name, a.Node, a.Priority))
	}
}

func (l *live) garp(o *observation, g announced) {
	if g.Node == firstHolder {
		return
	}
	name := byVIP(g.VIP)
	l.once(o, name+" garp "+g.Node, g.At, timeline.Announce, fmt.Sprintf("%s: %s announces itself (gratuitous ARP)", name, g.Node))
	if !o.Fault.IsZero() && g.At.Sub(o.Fault) > 50*time.Second {
		l.once(o, name+" refresh", g.At, timeline.Announce, fmt.Sprintf("%s: %s announces itself again", name, g.Node))
	}
}

func (l *live) reply(o *observation, r reply) {
	if r.Node != firstHolder {
		name := byVIP(r.VIP)
		l.once(o, name+" reply", r.At, timeline.Seen, fmt.Sprintf("%s: first reply from %s at the client", name, r.Node))
	}
}

func (l *live) removed(o *observation, r removal) {
	if !o.Fault.IsZero() {
		l.print(o, r.At, timeline.Backend, fmt.Sprintf("API: the balancer of %s takes the backend %s out", r.Node, r.Backend))
	}
}
