package timeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Report is several runs of the same fault.
type Report struct {
	Fault string // such as "silent"
	Peer  string // whose protocol it was, such as "lastbeat" or "keepalived"
	Runs  []Run
}

// A row is one number over several runs.
type row struct {
	Name   string  `json:"name"`
	VIP    string  `json:"vip,omitempty"`
	Unit   string  `json:"unit"` // "ms" or "requests"
	N      int     `json:"n"`    // the runs that have it
	Min    float64 `json:"min"`
	Median float64 `json:"median"` // the lower of the two in the middle
	Max    float64 `json:"max"`
}

// rows sums up the runs: instants with a key, then gaps and failed requests, in
// the order in which they first appear.
func (r Report) rows() []row {
	type key struct{ name, vip, unit string }
	var order []key
	values := map[key][]float64{}
	add := func(name, vip, unit string, v float64) {
		k := key{name, vip, unit}
		if _, known := values[k]; !known {
			order = append(order, k)
		}
		values[k] = append(values[k], v)
	}
	for _, run := range r.Runs {
		seen := map[key]bool{}
		for _, e := range run.sorted() {
			// The first one of a run counts: announcements are repeated.
			if k := (key{e.Key, e.VIP, "ms"}); e.Key != "" && !seen[k] {
				seen[k] = true
				add(e.Key, e.VIP, "ms", ms(e.At))
			}
		}
	}
	for _, run := range r.Runs {
		for _, c := range run.Clients {
			if !c.Open {
				add("longest gap", c.VIP, "ms", ms(c.gap()))
			}
		}
	}
	for _, run := range r.Runs {
		for _, c := range run.Clients {
			if c.Requests > 0 {
				add("failed requests", c.VIP, "requests", float64(c.Failed))
			}
		}
	}
	var rows []row
	for _, k := range order {
		v := slices.Sorted(slices.Values(values[k]))
		rows = append(rows, row{k.name, k.vip, k.unit, len(v), v[0], v[(len(v)-1)/2], v[len(v)-1]})
	}
	return rows
}

// WriteSummary writes minimum, median and maximum over the runs as a table.
func (r Report) WriteSummary(w io.Writer) error {
	var b strings.Builder
	prefix := simulated(slices.ContainsFunc(r.Runs, func(r Run) bool { return r.Simulated }))
	fmt.Fprintf(&b, "%s%-44s %12s %12s %12s\n", prefix, fmt.Sprintf("%d runs, %s, %s", len(r.Runs), r.Fault, r.Peer), "min", "median", "max")
	for _, x := range r.rows() {
		name := x.Name
		if x.VIP != "" {
			name += ", " + x.VIP
		}
		if x.N < len(r.Runs) {
			name += fmt.Sprintf(" (%d of %d runs)", x.N, len(r.Runs))
		}
		format := func(v float64) string { return fmt.Sprintf("%.0f", v) }
		if x.Unit == "ms" {
			format = func(v float64) string { return fmt.Sprintf("%.3f s", v/1000) }
		}
		fmt.Fprintf(&b, "%s%-44s %12s %12s %12s\n", prefix, name, format(x.Min), format(x.Median), format(x.Max))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

type jsonReport struct {
	Fault   string    `json:"fault"`
	Peer    string    `json:"peer"`
	Runs    []jsonRun `json:"runs"`
	Summary []row     `json:"summary"`
}

type jsonRun struct {
	Run       int          `json:"run"` // counted from 1
	Title     string       `json:"title"`
	Setup     string       `json:"setup"`
	Simulated bool         `json:"simulated"`
	Seed      *uint64      `json:"seed,omitempty"`
	Events    []jsonEvent  `json:"events"`
	Spans     []jsonSpan   `json:"spans"`
	Clients   []jsonClient `json:"clients"`
}

type jsonEvent struct {
	AtMS float64   `json:"at_ms"`
	Kind EventKind `json:"kind"`
	Key  string    `json:"key,omitempty"`
	VIP  string    `json:"vip,omitempty"`
	Lane string    `json:"lane,omitempty"`
	Text string    `json:"text"`
}

type jsonSpan struct {
	Lane   string   `json:"lane"`
	Label  string   `json:"label"`
	Kind   SpanKind `json:"kind"`
	FromMS float64  `json:"from_ms"`
	ToMS   float64  `json:"to_ms"`
}

type jsonClient struct {
	VIP       string    `json:"vip"`
	GapMS     float64   `json:"gap_ms"`
	GapFromMS float64   `json:"gap_from_ms"`
	GapToMS   float64   `json:"gap_to_ms"`
	Open      bool      `json:"open"` // the gap lasted to the end of the run
	Requests  int       `json:"requests"`
	Failed    int       `json:"failed"`
	Cut       int       `json:"cut"`
	DarkMS    []float64 `json:"dark_ms"`
}

// WriteJSON writes the runs and their summary. Times are milliseconds with three
// decimals, relative to the fault of their run.
func (r Report) WriteJSON(w io.Writer) error {
	out := jsonReport{Fault: r.Fault, Peer: r.Peer, Runs: []jsonRun{}, Summary: r.rows()}
	if out.Summary == nil {
		out.Summary = []row{}
	}
	var faults []error
	for i, run := range r.Runs {
		if err := run.Validate(); err != nil {
			faults = append(faults, fmt.Errorf("run %d: %w", i+1, err))
		}
		j := jsonRun{
			Run: i + 1, Title: run.Title, Setup: run.Setup, Simulated: run.Simulated,
			Events: []jsonEvent{}, Spans: []jsonSpan{}, Clients: []jsonClient{},
		}
		if run.Simulated {
			j.Seed = &run.Seed
		}
		for _, e := range run.sorted() {
			j.Events = append(j.Events, jsonEvent{ms(e.At), e.Kind, e.Key, e.VIP, e.Lane, e.Text})
		}
		for _, s := range run.Spans {
			j.Spans = append(j.Spans, jsonSpan{s.Lane, s.Label, s.Kind, ms(s.From), ms(s.To)})
		}
		for _, c := range run.Clients {
			dark := []float64{}
			for _, d := range c.Dark {
				dark = append(dark, ms(d))
			}
			j.Clients = append(j.Clients, jsonClient{c.VIP, ms(c.gap()), ms(c.GapFrom), ms(c.GapTo), c.Open, c.Requests, c.Failed, c.Cut, dark})
		}
		out.Runs = append(out.Runs, j)
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return fmt.Errorf("timeline: %w", err)
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// ms returns milliseconds with three decimals.
func ms(d time.Duration) float64 { return float64(d.Round(time.Microsecond).Microseconds()) / 1000 }
