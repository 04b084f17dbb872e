package timeline

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Line returns an event as one line, without line end.
func (r Run) Line(e Event) string {
	return r.prefix() + fmt.Sprintf("%s  %-8s  %s", instant(e.At), e.Kind, e.Text)
}

// WriteEvents writes all events in the order of their instants.
func (r Run) WriteEvents(w io.Writer) error {
	var b strings.Builder
	for _, e := range r.sorted() {
		b.WriteString(r.Line(e) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// prefix is what every line of a simulated run begins with.
func (r Run) prefix() string {
	if r.Simulated {
		return "simulated  "
	}
	return ""
}

// result is what the client saw, in words.
func (c Client) result() string {
	var b strings.Builder
	switch {
	case c.Open:
		fmt.Fprintf(&b, "no reply from %s on", instant(c.GapFrom))
	case c.gap() == 0:
		b.WriteString("no gap")
	default:
		fmt.Fprintf(&b, "longest gap %s (%s to %s)", seconds(c.gap()), instant(c.GapFrom), instant(c.GapTo))
	}
	if c.Requests > 0 {
		fmt.Fprintf(&b, ", %d of %d requests failed", c.Failed, c.Requests)
	}
	if c.Cut > 0 {
		fmt.Fprintf(&b, ", %d cut under way", c.Cut)
	}
	for i, d := range c.Dark {
		if i == 0 {
			b.WriteString(", dark after the takeover: ")
		} else {
			b.WriteString(" and ")
		}
		b.WriteString(seconds(d))
	}
	return b.String()
}

// instant formats a time relative to the fault, such as "T+ 3.553 s".
func instant(d time.Duration) string {
	sign := "+"
	d = d.Round(time.Millisecond)
	if d < 0 {
		sign, d = "-", -d
	}
	return fmt.Sprintf("T%s%6.3f s", sign, d.Seconds())
}

// seconds formats a length of time.
func seconds(d time.Duration) string {
	return fmt.Sprintf("%.3f s", d.Round(time.Millisecond).Seconds())
}
