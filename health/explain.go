package health

import (
	"fmt"
	"strings"
	"time"
)

// Explain tells a person at now why [Machine.At] says what it says: the state and how
// long it holds, its reason, and what led there, each a line of its own. The wording
// may change; programs use At.
func (m *Machine) Explain(now time.Time) []string {
	s := m.At(now)
	var lines []string
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }

	switch {
	case !s.ValidUntil.IsZero():
		say("%v for %v, and for %v more unless a probe renews it", s.State, span(now, s.Since), span(s.ValidUntil, now))
	case !s.Since.IsZero():
		say("%v for %v", s.State, span(now, s.Since))
	default:
		say("%v from the start", s.State)
	}
	say("because: %v", s.Reason)

	fresh := now.Before(m.validUntil)
	switch {
	case fresh:
		lines = append(lines, m.explainCounts()...)
	case m.verdict != Unknown:
		say("it was %v until its lease of %v ended: no probe has found out anything since then", m.verdict, m.config.Lease)
	case !m.validUntil.IsZero():
		say("the probes before do not count any more: their lease of %v ended %v ago", m.config.Lease, span(now, m.validUntil))
	}
	if now.Before(m.errUntil) && s.State != Error {
		say("probes could not be made for %v, which renews nothing: %s", span(now, m.errSince), m.errDetail)
	}
	if now.Before(m.holdUntil) {
		say("this machine was suspended: for %v more a bad probe counts as one that could not be made", span(m.holdUntil, now))
	}
	if !m.last.IsZero() {
		say("the last probe ended %v ago", span(now, m.last))
	}
	return lines
}

// explainCounts tells how the counts stand against rise and fall.
func (m *Machine) explainCounts() []string {
	var lines []string
	say := func(n int, kind string, decisive bool, effect string, need int) {
		if n == 0 {
			return
		}
		line := fmt.Sprintf("%d %s probes", n, kind)
		switch {
		case n == 1:
			line = "1 " + kind + " probe"
		case n >= maxCount:
			line = "at least " + line
		}
		if n > 1 && m.config.Counting == Consecutive {
			line += " in a row"
		}
		if decisive {
			line += fmt.Sprintf(", of %d that %s", need, effect)
		}
		lines = append(lines, line)
	}
	say(m.good, "good", m.verdict != Online, "bring it online", m.config.Rise)
	say(m.bad, "bad", m.verdict != Offline, "take it offline", m.config.Fall)
	return lines
}

// span returns the time from one instant to a later one, as precise as people want it.
func span(later, earlier time.Time) time.Duration { return later.Sub(earlier).Round(time.Millisecond) }

// history is the outcomes of the last 16 probes, two bits each, the newest lowest.
type history uint32

const outcomeBits = 2

// add returns the history with one more outcome.
func (h history) add(o Outcome) history { return h<<outcomeBits | history(o+1) }

// String returns the outcomes, the newest first.
func (h history) String() string {
	var words []string
	for ; h != 0; h >>= outcomeBits {
		words = append(words, Outcome(h&(1<<outcomeBits-1)-1).String())
	}
	return strings.Join(words, ", ")
}

// explain adds to the machine's explanation what the scheduler knows. It is called
// with Monitor.mu held.
func (m *Monitor) explain(w *watched, now time.Time) []string {
	lines := w.machine.Explain(now)
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if w.history != 0 {
		say("outcomes of probes, the newest first: %v", w.history)
	}
	if w.late > 0 {
		say("the last one began %v late", time.Duration(w.late)*time.Millisecond)
	}
	at := now.Sub(m.origin)
	switch {
	case !m.ran:
		say("nobody probes: the monitor has not been run yet")
	case !m.running:
		say("nobody probes: the monitor has ended")
	case w.probing:
		say("a probe is under way, with a timeout of %v", w.machine.config.Timeout)
	case w.busy:
		say("a probe waits for a worker for %v: all %d are busy, and %d probes wait", (at - w.probeAt).Round(time.Millisecond), m.config.Workers, len(m.due))
	case at > w.probeAt:
		say("the next probe is %v late: this process does not get to run", (at - w.probeAt).Round(time.Millisecond))
	default:
		say("the next probe begins in %v", (w.probeAt - at).Round(time.Millisecond))
	}
	if s := m.stats; s.Late+s.Dropped+s.Overrun > 0 {
		say("of all targets here %d probes were late, by up to %v, %d were dropped, %d ended too late to count",
			s.Late, s.LateBy.Round(time.Millisecond), s.Dropped, s.Overrun)
	}
	return lines
}
