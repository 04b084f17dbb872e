package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/lastbeat/lastbeat/examples/internal/timeline"
)

// outcome is one run with what it means.
type outcome struct {
	obs     *observation
	Results []result `json:"results"`
	Lost    int      `json:"frames_lost,omitempty"`
	Seed    uint64   `json:"seed,omitempty"`
}

func judge(o *observation) outcome {
	out := outcome{obs: o, Lost: o.Lost, Seed: o.Setup.Seed}
	for _, v := range virtuals {
		out.Results = append(out.Results, o.analyze(v))
	}
	return out
}

var titles = map[string]string{
	"silent":  "%s becomes unreachable, with its API server and router",
	"carrier": "%s loses its cable",
	"kill":    "%s: the daemon alone is killed (SIGKILL); kernel, API server and router live on",
	"term":    "%s: the daemon is asked to end (SIGTERM)",
	"freeze":  "%s: the daemon is frozen for 10 s (SIGSTOP)",
	"backend": "%s: its API server is killed (SIGKILL)",
	"none":    "nothing is broken on %s",
}

func (s setup) title(victim string) string { return fmt.Sprintf(titles[s.FaultKind], victim) }

func (s setup) describe() string {
	who := "lastbeat"
	if s.Peer == "keepalived" {
		who = "keepalived"
	}
	auth := "without authentication"
	if s.Version == 2 {
		auth = "with a password"
	}
	return fmt.Sprintf("%s, VRRPv%d unicast %s, an advert each %v", who, s.Version, auth, s.Interval)
}

// run turns an outcome into what the timeline draws.
func (o outcome) run() timeline.Run {
	s, obs := o.obs.Setup, o.obs
	r := timeline.Run{
		Title: s.title(obs.Victim), Setup: s.describe(), Simulated: s.Simulated, Seed: s.Seed,
		Lanes: nodes,
	}
	add := func(at *ms, kind timeline.EventKind, lane, format string, args ...any) {
		if at != nil {
			r.Events = append(r.Events, timeline.Event{At: time.Duration(*at), Kind: kind, Lane: lane, Text: fmt.Sprintf(format, args...)})
		}
	}
	add(new(ms(0)), timeline.Fault, obs.Victim, "%s", s.title(obs.Victim))
	for i, v := range virtuals {
		p := o.Results[i]
		if p.Claimant != "" {
			add(p.LastAdvert, timeline.Protocol, p.OldHolder, "%s: last advert of %s", v.Name, p.OldHolder)
			add(p.Goodbye, timeline.Protocol, p.OldHolder, "%s: %s says goodbye (priority 0)", v.Name, p.OldHolder)
			add(p.FirstAdvert, timeline.Protocol, p.Claimant, "%s: first advert of %s", v.Name, p.Claimant)
		}
		add(p.FirstGARP, timeline.Announce, p.NewHolder, "%s: %s announces itself (gratuitous ARP)", v.Name, p.NewHolder)
		add(p.FirstReply, timeline.Seen, clientLane(v), "%s: first reply from %s at the client", v.Name, p.NewHolder)
		add(p.LastAnswer, timeline.Seen, p.OldHolder, "%s: the kernel of %s answered a newcomer for the last time", v.Name, p.OldHolder)
		add(p.Refreshed, timeline.Announce, p.NewHolder, "%s: %s announces itself again", v.Name, p.NewHolder)
		add(p.Removed, timeline.Backend, p.holder(), "%s: the balancer of %s takes the dead backend %s out", v.Name, p.holder(), obs.Victim)
		r.Spans = append(r.Spans, obs.holdSpans(v, p)...)
		r.Spans = append(r.Spans, obs.clientSpans(v, p)...)
		r.Clients = append(r.Clients, p.client(v))
	}
	if s.FaultKind == "silent" || s.FaultKind == "carrier" {
		r.Spans = append(r.Spans, timeline.Span{Lane: obs.Victim, Label: "unreachable", From: 0, To: obs.End.Sub(obs.Fault), Kind: timeline.Down})
	}
	return r
}

// client is what the client of an address saw.
func (p result) client(v virtual) timeline.Client {
	c := timeline.Client{
		VIP: v.Name, GapFrom: time.Duration(p.GapFrom), GapTo: time.Duration(p.GapFrom + p.Gap),
		Open: p.GapOpen, Requests: p.Requests - p.Cut, Failed: p.Failed - p.FailedFlight, Cut: p.Cut,
	}
	if time.Duration(p.DarkGap) > darkGap {
		c.Dark = []time.Duration{time.Duration(p.DarkGap)}
	}
	return c
}

// holdSpans are the times in which nodes claimed an address, by their adverts.
func (o *observation) holdSpans(v virtual, p result) []timeline.Span {
	var spans []timeline.Span
	open := map[string]*timeline.Span{}
	end := o.End.Sub(o.Fault)
	for _, a := range o.Adverts {
		if a.VRID != v.VRID {
			continue
		}
		at := a.At.Sub(o.Fault)
		s := open[a.Node]
		switch {
		case a.Priority == 0 && s != nil:
			s.To = at
			spans, open[a.Node] = append(spans, *s), nil
		case a.Priority > 0 && s == nil:
			open[a.Node] = &timeline.Span{Lane: a.Node, Label: v.Name, From: at, To: at, Kind: timeline.Holds}
		case a.Priority > 0:
			s.To = at
		}
	}
	for _, n := range nodes {
		s := open[n]
		if s == nil {
			continue
		}
		switch {
		case n == p.OldHolder && p.Moved:
			s.To = max(s.To, 0) // what comes after is drawn apart
			if p.LastAnswer != nil && time.Duration(*p.LastAnswer) > s.To {
				spans = append(spans, timeline.Span{Lane: n, Label: v.Name, From: s.To, To: time.Duration(*p.LastAnswer), Kind: timeline.Lingers})
			}
		case end-s.To < 3*o.Setup.Interval:
			s.To = end // its next advert is not due yet
		}
		spans = append(spans, *s)
	}
	return spans
}

func clientLane(v virtual) string { return "client " + v.Name }

// clientSpans are the client's replies and its gap.
func (o *observation) clientSpans(v virtual, p result) []timeline.Span {
	lane := clientLane(v)
	from, to := time.Duration(p.GapFrom), time.Duration(p.GapFrom+p.Gap)
	begin, end := -time.Second, o.End.Sub(o.Fault)
	spans := []timeline.Span{
		{Lane: lane, Label: v.Name, From: begin, To: from, Kind: timeline.Replies},
		{Lane: lane, Label: v.Name, From: from, To: to, Kind: timeline.Gap},
		{Lane: lane, Label: v.Name, From: to, To: end, Kind: timeline.Replies},
	}
	return slices.DeleteFunc(spans, func(s timeline.Span) bool { return s.To <= s.From })
}

// writeResults prints what the protocol did and the client saw.
func (o outcome) writeResults(w io.Writer) error {
	prefix := ""
	if o.obs.Setup.Simulated {
		prefix = "simulated: "
	}
	for i, v := range virtuals {
		p := o.Results[i]
		line := fmt.Sprintf("%s%-8s stays on %s", prefix, v.Name, p.OldHolder)
		switch {
		case p.Moved:
			line = fmt.Sprintf("%s%-8s %s to %s", prefix, v.Name, p.OldHolder, p.NewHolder)
		case p.Claimant != "":
			line = fmt.Sprintf("%s%-8s %s to %s and back", prefix, v.Name, p.OldHolder, p.Claimant)
		}
		if p.Takeover != nil {
			after := "last advert"
			if p.Goodbye != nil {
				after = "goodbye"
			}
			line += fmt.Sprintf(", taken over %v after the %s (the protocol allows %v)", round(*p.Takeover), after, round(*p.Limit))
		}
		if p.Moved && p.Claimant != p.NewHolder {
			line += fmt.Sprintf(", first by %s", p.Claimant)
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
		dark := "no dark gap afterwards"
		if time.Duration(p.DarkGap) > darkGap {
			dark = fmt.Sprintf("DARK GAP of %v afterwards", round(p.DarkGap))
		}
		gap := round(p.Gap).String()
		if p.GapOpen {
			gap += " and not over"
		}
		_, err := fmt.Fprintf(w, "%s         longest gap at the client %s, %s; requests: %d, failed %d, under way at the fault %d of which failed %d\n",
			prefix, gap, dark, p.Requests-p.Cut, p.Failed-p.FailedFlight, p.Cut, p.FailedFlight)
		if err != nil {
			return err
		}
		if p.LastAnswer != nil {
			ends := fmt.Sprintf("lifetime of an address: %v", o.obs.Setup.Lifetime)
			if o.obs.Setup.Lifetime == 0 {
				ends = "addresses have no lifetime"
			}
			_, err = fmt.Fprintf(w, "%s         the old kernel answered a newcomer until %v after the fault (%s)\n",
				prefix, round(*p.LastAnswer), ends)
			if err != nil {
				return err
			}
		}
	}
	if o.Lost > 0 {
		_, err := fmt.Fprintf(w, "the capture lost %d frames: these figures have holes\n", o.Lost)
		return err
	}
	return nil
}

func round(d ms) time.Duration { return time.Duration(d).Round(time.Millisecond) }

// summary is the spread of a figure over the runs.
type summary struct {
	N   int `json:"n"`
	Min ms  `json:"min_ms"`
	Med ms  `json:"med_ms"`
	Max ms  `json:"max_ms"`
}

func summarize(values []ms) summary {
	slices.Sort(values)
	return summary{len(values), values[0], values[(len(values)-1)/2], values[len(values)-1]}
}

// figures are what is compared over runs and peers.
var figures = []struct {
	name string
	of   func(r result) *ms
}{
	{"takeover", func(r result) *ms { return r.Takeover }},
	{"gap", func(r result) *ms { return &r.Gap }},
	{"dark_gap", func(r result) *ms { return &r.DarkGap }},
	{"first_reply", func(r result) *ms { return r.FirstReply }},
	{"removed", func(r result) *ms { return r.Removed }},
	{"last_answer", func(r result) *ms { return r.LastAnswer }},
}

// summaries returns the figures that there are, by name and address.
func summaries(runs []outcome) map[string]summary {
	out := map[string]summary{}
	for i, v := range virtuals {
		for _, f := range figures {
			var values []ms
			for _, r := range runs {
				if x := f.of(r.Results[i]); x != nil {
					values = append(values, *x)
				}
			}
			if len(values) > 0 {
				out[v.Name+" "+f.name] = summarize(values)
			}
		}
	}
	return out
}

func writeSummary(w io.Writer, runs []outcome, prefix string) error {
	sums := summaries(runs)
	names := make([]string, 0, len(sums))
	for n := range sums {
		names = append(names, n)
	}
	slices.SortFunc(names, cmp.Compare)
	if _, err := fmt.Fprintf(w, "%s%-24s %4s %9s %9s %9s\n", prefix, "over all runs", "n", "min", "median", "max"); err != nil {
		return err
	}
	for _, n := range names {
		s := sums[n]
		if _, err := fmt.Fprintf(w, "%s%-24s %4d %9v %9v %9v\n", prefix, n, s.N, round(s.Min), round(s.Med), round(s.Max)); err != nil {
			return err
		}
	}
	return nil
}

// writeJSON writes all figures for programs.
func writeJSON(w io.Writer, s setup, runs []outcome) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(map[string]any{
		"fault": s.FaultKind, "peer": s.Peer, "version": s.Version, "interval_ms": ms(s.Interval),
		"simulated": s.Simulated, "runs": runs, "summary": summaries(runs),
	})
}
