package timeline

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The picture's measures, in pixels.
const (
	width     = 1200
	margin    = 24
	plotLeft  = 210 // right of the lanes' names
	plotRight = width - margin
	barHeight = 18
	lanePad   = 7
	markSize  = 9 // radius of an event's number
	lineStep  = 19
)

// Colours: dark on light, and told apart by the colour-blind too. A VIP has a
// full colour for the one who holds it and a light one for its client.
var (
	vipColours = []struct{ full, light string }{
		{"#1b63a8", "#bcd7ef"}, // blue
		{"#c2571a", "#f6d3bb"}, // orange
		{"#5b3f99", "#d8cdf0"}, // violet
		{"#2f7d4f", "#c3e4cf"}, // green
	}
	ink, faint, grid, ground = "#1c2530", "#5a6675", "#dde2e8", "#ffffff"
	fault, gapFill           = "#b3161d", "#fbe3e3"
	downFill                 = "#d5d9de"
)

// canvas collects SVG.
type canvas struct{ bytes.Buffer }

func (c *canvas) put(format string, args ...any) { fmt.Fprintf(c, format+"\n", args...) }

// text writes one line of text; attrs are further attributes.
func (c *canvas) text(x, y float64, attrs, s string) {
	c.put(`<text x="%s" y="%s"%s>%s</text>`, px(x), px(y), attrs, escape(s))
}

func (c *canvas) rect(x, y, w, h float64, attrs string) {
	c.put(`<rect x="%s" y="%s" width="%s" height="%s"%s/>`, px(x), px(y), px(w), px(h), attrs)
}

func (c *canvas) line(x1, y1, x2, y2 float64, attrs string) {
	c.put(`<line x1="%s" y1="%s" x2="%s" y2="%s"%s/>`, px(x1), px(y1), px(x2), px(y2), attrs)
}

func fill(colour string) string   { return ` fill="` + colour + `"` }
func stroke(colour string) string { return ` stroke="` + colour + `"` }

// px formats a coordinate with at most one decimal.
func px(v float64) string { return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") }

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder does not fail
	return b.String()
}

// textWidth estimates the width of text in a sans-serif font, rather too wide.
func textWidth(s string, size float64) float64 { return float64(len([]rune(s))) * size * 0.56 }

// brief formats a length of time for a label.
func brief(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// drawing is a run being drawn: its scale, its lanes and its colours.
type drawing struct {
	canvas
	run      Run
	from, to time.Duration
	vips     []string
	lanes    []lane
	marks    []mark
}

// lane is a row: one bar for each VIP that it has to do with.
type lane struct {
	name   string
	vips   []string
	client bool
	y, h   float64
}

// mark is the number of an event above the lanes.
type mark struct {
	Event
	n  int
	x  float64 // of the instant
	at float64 // of the number, moved aside where others stand
}

// WriteSVG draws the run as a picture, 1200 pixels wide.
func (r Run) WriteSVG(w io.Writer) error {
	if err := r.Validate(); err != nil {
		return err
	}
	d := &drawing{run: r, vips: r.vips()}
	d.view()
	d.arrange()
	d.draw()
	_, err := w.Write(d.Bytes())
	return err
}

// view chooses what part of the time is shown.
func (d *drawing) view() {
	d.from, d.to = d.run.ViewFrom, d.run.ViewTo
	if d.from != 0 || d.to != 0 {
		return
	}
	const longest = 20 * time.Second
	first, last := time.Duration(0), time.Duration(0)
	for _, e := range d.run.Events {
		first = min(first, e.At)
		if e.At <= longest {
			last = max(last, e.At)
		}
	}
	for _, c := range d.run.Clients {
		if !c.Open && c.gap() > 0 {
			last = max(last, min(c.GapTo, longest))
		}
	}
	pad := max((last-first)/12, 50*time.Millisecond)
	if first == last {
		pad = time.Second
	}
	d.from, d.to = max(first, -longest)-pad, last+2*pad
}

func (d *drawing) x(t time.Duration) float64 {
	t = min(max(t, d.from), d.to)
	return plotLeft + (plotRight-plotLeft)*float64(t-d.from)/float64(d.to-d.from)
}

func (d *drawing) shown(t time.Duration) bool { return t >= d.from && t <= d.to }

func (d *drawing) colour(vip string) (full, light string) {
	i := slices.Index(d.vips, vip)
	if i < 0 {
		return faint, grid
	}
	c := vipColours[i%len(vipColours)]
	return c.full, c.light
}

// arrange makes the lanes and numbers the events.
func (d *drawing) arrange() {
	names := slices.Clone(d.run.Lanes)
	for _, s := range d.run.Spans {
		if !slices.Contains(names, s.Lane) {
			names = append(names, s.Lane)
		}
	}
	for _, name := range names {
		l := lane{name: name}
		for _, s := range d.run.Spans {
			if s.Lane != name || s.Kind == Down {
				continue
			}
			l.client = l.client || s.Kind == Replies || s.Kind == Gap
			if !slices.Contains(l.vips, s.Label) {
				l.vips = append(l.vips, s.Label)
			}
		}
		// Bars of one VIP stand in the same place in all lanes.
		slices.SortFunc(l.vips, func(a, b string) int { return slices.Index(d.vips, a) - slices.Index(d.vips, b) })
		l.h = float64(max(len(l.vips), 1)*(barHeight+3) - 3 + 2*lanePad)
		d.lanes = append(d.lanes, l)
	}
	for _, e := range d.run.sorted() {
		if e.Kind == Fault && e.At == 0 {
			continue // it has a line of its own
		}
		m := mark{Event: e, n: len(d.marks) + 1, x: d.x(e.At)}
		m.at = m.x
		d.marks = append(d.marks, m)
	}
	d.spread()
}

// spread moves the numbers aside until none covers another: clusters of those
// that touch are laid out evenly around the middle of their instants.
func (d *drawing) spread() {
	const step = 2*markSize + 3
	type cluster struct {
		first, n int
		sum      float64 // of the instants
	}
	start := func(c cluster) float64 {
		at := c.sum/float64(c.n) - step*float64(c.n-1)/2
		return min(max(at, plotLeft), plotRight-step*float64(c.n-1))
	}
	var all []cluster
	for i, m := range d.marks {
		if !d.shown(m.At) {
			continue
		}
		all = append(all, cluster{i, 1, m.x})
		for len(all) > 1 {
			a, b := all[len(all)-2], all[len(all)-1]
			if start(a)+step*float64(a.n) <= start(b) {
				break
			}
			all = append(all[:len(all)-2], cluster{a.first, a.n + b.n, a.sum + b.sum})
		}
	}
	for _, c := range all {
		for k := range c.n {
			d.marks[c.first+k].at = start(c) + step*float64(k)
		}
	}
}
