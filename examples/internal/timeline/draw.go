package timeline

import (
	"fmt"
	"strings"
	"time"
)

// draw writes the picture from top to bottom.
func (d *drawing) draw() {
	y := d.head(margin + 16)
	y = d.legend(y + 6)
	top := y + 38 // below the fault's label
	marksY := top + markSize + 4
	y = marksY + markSize + 12
	for i := range d.lanes {
		d.lanes[i].y = y
		y += d.lanes[i].h
	}
	bottom := y
	d.axis(marksY+markSize+8, bottom)
	for i := range d.lanes {
		d.lane(&d.lanes[i])
	}
	d.faultLine(top-8, bottom)
	d.numbers(marksY, bottom)
	y = d.list(bottom + 50)
	height := y + margin - 8

	inside := d.canvas // drawn first, because its height was not known
	d.canvas = canvas{}
	d.put(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%s" viewBox="0 0 %d %s" role="img" aria-labelledby="title desc" font-family="Helvetica, Arial, 'DejaVu Sans', sans-serif" font-size="13" fill="%s">`,
		width, px(height), width, px(height), ink)
	d.put(`<title id="title">%s</title>`, escape(d.title()))
	d.put(`<desc id="desc">%s</desc>`, escape(d.description()))
	d.put(`<defs>`)
	for i, c := range vipColours[:min(len(d.vips), len(vipColours))] {
		d.put(`<pattern id="lingers%d" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="7" height="7" fill="%s"/><rect width="3" height="7" fill="%s"/></pattern>`, i, ground, c.full)
	}
	d.put(`</defs>`)
	d.rect(0, 0, width, height, fill(ground))
	d.Write(inside.Bytes())
	d.put(`</svg>`)
}

func (d *drawing) title() string { return d.run.prefix() + d.run.Title }

// description says the whole in words, for those who do not see the picture.
func (d *drawing) description() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. ", d.run.Setup)
	for _, e := range d.run.sorted() {
		fmt.Fprintf(&b, "%s: %s. ", instant(e.At), e.Text)
	}
	for _, c := range d.run.Clients {
		fmt.Fprintf(&b, "%s: %s. ", c.VIP, c.result())
	}
	return strings.TrimSpace(b.String())
}

// head writes the title, the setup and what the clients saw.
func (d *drawing) head(y float64) float64 {
	d.text(margin, y, ` font-size="21" font-weight="bold"`, d.run.Title)
	if d.run.Simulated {
		label := fmt.Sprintf("simulated, seed %d", d.run.Seed)
		w := textWidth(label, 14) + 16
		d.rect(plotRight-w, y-17, w, 24, fmt.Sprintf(` rx="4" fill="%s" stroke="%s"`, "#fff3c4", "#8a6d00"))
		d.text(plotRight-w/2, y, ` font-size="14" font-weight="bold" text-anchor="middle" fill="#5c4900"`, label)
	}
	y += 22
	d.text(margin, y, ` font-size="14"`+fill(faint), d.run.Setup)
	y += 8
	for _, c := range d.run.Clients {
		y += lineStep
		full, _ := d.colour(c.VIP)
		d.rect(margin, y-11, 12, 12, fill(full))
		d.put(`<text x="%d" y="%s" font-size="15"><tspan font-weight="bold">%s</tspan>: %s</text>`, margin+20, px(y), escape(c.VIP), escape(c.plain()))
	}
	return y + 10
}

// plain is the client's result for the picture, without the instants.
func (c Client) plain() string {
	var b strings.Builder
	switch {
	case c.Open:
		b.WriteString("no reply until the end")
	case c.gap() == 0:
		b.WriteString("the client noticed nothing")
	default:
		fmt.Fprintf(&b, "the client got no reply for %s", brief(c.gap()))
	}
	if c.Requests > 0 {
		fmt.Fprintf(&b, "; %d of %d requests failed", c.Failed, c.Requests)
	}
	if c.Cut > 0 {
		fmt.Fprintf(&b, "; %d cut under way", c.Cut)
	}
	if len(c.Dark) > 0 {
		fmt.Fprintf(&b, "; dark again for %s after the takeover", brief(c.Dark[0]))
	}
	return b.String()
}

// legend explains what occurs in this picture, and nothing else.
func (d *drawing) legend(y float64) float64 {
	has := map[SpanKind]bool{}
	for _, s := range d.run.Spans {
		has[s.Kind] = true
	}
	x := float64(margin)
	y += 14
	// A sample has a part in the colour of each VIP.
	item := func(text string, attrs ...string) {
		w := 28 / float64(len(attrs))
		for i, a := range attrs {
			d.rect(x+float64(i)*w, y-11, w, 13, a)
		}
		d.text(x+35, y, ` font-size="12.5"`, text)
		x += 35 + textWidth(text, 12.5) + 14
	}
	var lingers, replies []string
	for i, vip := range d.vips {
		full, light := d.colour(vip)
		item("holds the "+vip, fill(full))
		lingers = append(lingers, fill(fmt.Sprintf("url(#lingers%d)", i%len(vipColours)))+stroke(full))
		replies = append(replies, fill(light))
	}
	if has[Lingers] {
		item("left behind, until its lifetime ends", lingers...)
	}
	if has[Down] {
		item("node in trouble", fill(downFill))
	}
	if has[Replies] {
		item("client gets replies", replies...)
	}
	if has[Gap] {
		item("client gets none", fill(gapFill)+stroke(fault))
	}
	return y
}

// axis draws the grid and the instants below the lanes.
func (d *drawing) axis(top, bottom float64) {
	step := tick(d.to - d.from)
	for t := d.from.Truncate(step) - step; t <= d.to; t += step {
		if t < d.from {
			continue
		}
		x := d.x(t)
		d.line(x, top, x, bottom+5, stroke(grid))
		var label string
		switch {
		case t == 0:
			label = "0"
		case step < 100*time.Millisecond:
			label = fmt.Sprintf("%+d ms", t.Milliseconds())
		case step < time.Second:
			label = fmt.Sprintf("%+.1f s", t.Seconds())
		default:
			label = fmt.Sprintf("%+.0f s", t.Seconds())
		}
		anchor := "middle"
		if x > plotRight-25 {
			anchor = "end"
		}
		d.text(x, bottom+19, fmt.Sprintf(` font-size="12" text-anchor="%s"`, anchor)+fill(faint), label)
	}
	d.text(plotLeft-30, bottom+19, ` font-size="12" text-anchor="end"`+fill(faint), "time since the fault")
}

// tick chooses a round step for up to 12 ticks.
func tick(view time.Duration) time.Duration {
	for _, step := range []time.Duration{10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000} {
		if view <= 12*step*time.Millisecond {
			return step * time.Millisecond
		}
	}
	return time.Minute
}

func (d *drawing) lane(l *lane) {
	d.line(margin, l.y, plotRight, l.y, stroke(grid))
	d.text(margin, l.y+l.h/2+5, ` font-size="14" font-weight="bold"`, l.name)
	for _, s := range d.run.Spans {
		if s.Lane != l.name || s.Kind != Down || s.To < d.from || s.From > d.to {
			continue
		}
		x := d.x(s.From)
		d.rect(x, l.y+1, d.x(s.To)-x, l.h-2, fill(downFill))
	}
	for _, s := range d.run.Spans {
		if s.Lane == l.name && s.Kind != Down && s.To >= d.from && s.From <= d.to {
			d.bar(l, s)
		}
	}
	// What is wrong stands where no bar is, or not at all.
	for _, s := range d.run.Spans {
		if s.Lane != l.name || s.Kind != Down || s.To < d.from || s.From > d.to {
			continue
		}
		left, right := d.x(s.From), d.x(s.To)
		for _, o := range d.run.Spans {
			if o.Lane == l.name && o.Kind != Down && o.To > s.From && o.From < s.To && d.x(o.To) > left {
				left = d.x(o.To)
			}
		}
		if right-left > textWidth(s.Label, 13)+8 {
			d.text((left+right)/2, l.y+l.h/2+5, ` text-anchor="middle"`+fill(ink), s.Label)
		}
	}
}

// bar draws one span.
func (d *drawing) bar(l *lane, s Span) {
	row := 0
	for i, vip := range l.vips {
		if vip == s.Label {
			row = i
		}
	}
	x, y := d.x(s.From), l.y+lanePad+float64(row)*(barHeight+3)
	w := max(d.x(s.To)-x, 1.5)
	full, light := d.colour(s.Label)
	label, attrs, ink := s.Label, "", ink
	switch s.Kind {
	case Holds:
		attrs, ink = fill(full), ground
	case Lingers:
		label = ""
		attrs = fmt.Sprintf(` fill="url(#lingers%d)" stroke="%s"`, d.index(s.Label), full)
	case Replies:
		label = ""
		attrs = fill(light)
	case Gap:
		label, ink = "no reply for "+brief(s.To-s.From), fault
		attrs = fill(gapFill) + stroke(fault)
	}
	d.rect(x, y, w, barHeight, attrs)
	switch need := textWidth(label, 12) + 8; {
	case label == "":
	case w >= need:
		d.text(x+w/2, y+13.5, ` font-size="12" font-weight="bold" text-anchor="middle"`+fill(ink), label)
	case s.Kind == Gap && x+w+need < plotRight:
		d.text(x+w+5, y+13.5, ` font-size="12" font-weight="bold"`+fill(ink), label)
	}
}

func (d *drawing) index(vip string) int {
	for i, v := range d.vips {
		if v == vip {
			return i % len(vipColours)
		}
	}
	return 0
}

func (d *drawing) faultLine(top, bottom float64) {
	label := ""
	for _, e := range d.run.Events {
		if e.Kind == Fault && e.At == 0 {
			label = "fault: " + e.Text
		}
	}
	if label == "" || !d.shown(0) {
		return
	}
	x := d.x(0)
	d.line(x, top+4, x, bottom, fmt.Sprintf(` stroke="%s" stroke-width="2" stroke-dasharray="6 3"`, fault))
	anchor, at := "start", x-4
	if at+textWidth(label, 13) > plotRight {
		anchor, at = "end", plotRight
	}
	d.text(at, top, fmt.Sprintf(` font-weight="bold" text-anchor="%s" fill="%s"`, anchor, fault), label)
}

// numbers draws the events' numbers and lines down to their instants.
func (d *drawing) numbers(y, bottom float64) {
	lanesTop := y + markSize + 12
	for _, m := range d.marks {
		if !d.shown(m.At) {
			continue
		}
		end := bottom
		for _, l := range d.lanes {
			if l.name == m.Lane && m.Lane != "" {
				end = l.y + l.h
			}
		}
		d.put(`<path d="M%s %sL%s %sL%s %s" fill="none" stroke="%s" stroke-width="1"/>`,
			px(m.at), px(y+markSize), px(m.x), px(lanesTop), px(m.x), px(end), ink)
	}
	for _, m := range d.marks {
		if d.shown(m.At) {
			d.number(m.at, y, m.n)
		}
	}
}

func (d *drawing) number(x, y float64, n int) {
	d.put(`<circle cx="%s" cy="%s" r="%d" fill="%s"/>`, px(x), px(y), markSize, ink)
	d.text(x, y+4, ` font-size="11" font-weight="bold" text-anchor="middle"`+fill(ground), fmt.Sprint(n))
}

// list explains the numbers, and names what happened beyond the picture.
func (d *drawing) list(y float64) float64 {
	for _, m := range d.marks {
		d.number(margin+markSize, y-4, m.n)
		d.put(`<text x="%d" y="%s" xml:space="preserve"><tspan font-weight="bold">%s</tspan></text>`, margin+30, px(y), instant(m.At))
		text := m.Text
		if !d.shown(m.At) {
			text += " (beyond the picture)"
		}
		d.text(margin+130, y, "", text)
		y += lineStep + 2
	}
	return y
}
