package health

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// PhiConfig configures a [Phi]. The zero value is complete.
type PhiConfig struct {
	// Threshold is the phi at which silence is too long: 8 stands for one wrong
	// suspicion in 10^8 gaps, if gaps were normally distributed, which they are
	// not. Default 8, range 1 to 300.
	Threshold float64
	// Window is how many of the last gaps are remembered. Default 100, range 2 to
	// 10,000.
	Window int
	// MinDeviation is the least standard deviation of the gaps that is assumed, as
	// very regular heartbeats would else make a detector that forgives nothing.
	// Default 100 ms, range 1 µs to 1 h.
	MinDeviation time.Duration
	// Pause is added to the expected gap: a pause of the sender that is no failure,
	// such as a garbage collection. Default 3 s, range 1 ns, for none, to 1 h.
	Pause time.Duration
	// First is the gap that is expected before any was seen. Two gaps, a quarter
	// shorter and a quarter longer, are remembered from the beginning, until
	// Window others have come. Default 1 s, range 1 ms to 1 h.
	First time.Duration
	// Limit is the longest silence, whatever the gaps were like. Default 1 min,
	// range 1 ms to 24 h.
	Limit time.Duration
}

// Phi judges heartbeats by how they usually come, an accrual failure detector in the
// way of Hayashibara and others (2004): phi is -log10 of the probability that a
// sender who is alive is silent for as long as this one. It is pure like a [Machine],
// so it must not be used by two goroutines at once. Make one with [NewPhi].
//
// It is an option for senders whose interval nobody knows. Where it is known, a
// [Lease] says the same more simply. A Phi says [Online] or [Unknown] and never
// Offline, since silence proves nothing; the end of a verdict is the instant at
// which phi will reach Threshold.
type Phi struct {
	config PhiConfig
	z      float64 // the deviations from the mean at which phi is Threshold

	gaps  []time.Duration // ring
	next  int             // place of the oldest once the ring is full
	since time.Time       // first heartbeat of the unbroken row
	last  time.Time       // last heartbeat
	skip  bool            // the next gap is not the sender's
	lost  bool            // the last heartbeat came after Threshold

	mean, deviation float64 // of the gaps, in nanoseconds
}

// NewPhi returns a Phi that heard nothing yet. Its error joins a *[ConfigError] for
// each bad field.
func NewPhi(config PhiConfig) (*Phi, error) {
	c := config
	var faults []error
	fault := func(field string, value any, want string) {
		faults = append(faults, &ConfigError{"", field, value, want})
	}
	duration := func(field string, d *time.Duration, def, least, most time.Duration) {
		if *d == 0 {
			*d = def
		}
		if *d < least || *d > most {
			fault(field, *d, fmt.Sprintf("%v to %v", least, most))
		}
	}
	if c.Threshold == 0 {
		c.Threshold = 8
	}
	if !(c.Threshold >= 1 && c.Threshold <= 300) { // false for NaN too
		fault("Threshold", c.Threshold, "1 to 300")
	}
	if c.Window == 0 {
		c.Window = 100
	}
	if c.Window < 2 || c.Window > 10_000 {
		fault("Window", c.Window, "2 to 10000")
	}
	duration("MinDeviation", &c.MinDeviation, 100*time.Millisecond, time.Microsecond, time.Hour)
	duration("Pause", &c.Pause, 3*time.Second, 1, time.Hour)
	duration("First", &c.First, time.Second, time.Millisecond, time.Hour)
	duration("Limit", &c.Limit, time.Minute, time.Millisecond, maxInterval)
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	// phi grows with z; 40 deviations are beyond the largest Threshold.
	low, high := 0.0, 40.0
	for range 60 {
		if z := (low + high) / 2; phi(z) < c.Threshold {
			low = z
		} else {
			high = z
		}
	}
	p := &Phi{config: c, z: high}
	p.learn(c.First * 3 / 4)
	p.learn(c.First * 5 / 4)
	return p, nil
}

// phi is -log10 of the probability that a normal value is more than z deviations
// above the mean.
func phi(z float64) float64 { return max(0, -math.Log10(math.Erfc(z/math.Sqrt2)/2)) }

// Heartbeat tells that one arrived at now. The gap before it is learnt, unless phi
// had reached Threshold by then: an outage is no example of how heartbeats come. But
// if the gap after that is as long again, that is how they come now. A heartbeat that
// is not after the last is ignored.
func (p *Phi) Heartbeat(now time.Time) {
	if !now.After(p.last) && !p.last.IsZero() {
		return
	}
	gap, lost := now.Sub(p.last), p.At(now).State != Online
	if lost {
		p.since = now
	}
	if !p.last.IsZero() && !p.skip && (!lost || p.lost && gap < p.config.Limit) {
		p.learn(gap)
	}
	p.last, p.skip, p.lost = now, false, lost
}

func (p *Phi) learn(gap time.Duration) {
	if len(p.gaps) < p.config.Window {
		p.gaps = append(p.gaps, gap)
	} else {
		p.gaps[p.next] = gap
		p.next = (p.next + 1) % p.config.Window
	}
	p.measure()
}

// measure computes mean and deviation. They are not kept as running sums, whose
// errors would add up over years.
func (p *Phi) measure() {
	n, sum, squares := float64(len(p.gaps)), 0.0, 0.0
	for _, gap := range p.gaps {
		sum += float64(gap)
	}
	p.mean = sum / n
	for _, gap := range p.gaps {
		d := float64(gap) - p.mean
		squares += d * d
	}
	p.deviation = max(math.Sqrt(squares/n), float64(p.config.MinDeviation))
}

// Phi returns the suspicion at now: 0 for none, Threshold or more for too long a
// silence. It is infinite before the first heartbeat and after Limit.
func (p *Phi) Phi(now time.Time) float64 {
	silence := now.Sub(p.last)
	if p.last.IsZero() || silence >= p.config.Limit {
		return math.Inf(1)
	}
	return phi((float64(silence) - p.mean - float64(p.config.Pause)) / p.deviation)
}

// Deadline returns when phi reaches Threshold if no heartbeat comes; zero before the
// first.
func (p *Phi) Deadline() time.Time {
	if p.last.IsZero() {
		return time.Time{}
	}
	silence := p.mean + float64(p.config.Pause) + p.z*p.deviation
	return p.last.Add(time.Duration(min(silence, float64(p.config.Limit))))
}

// At returns what is known at now. It changes nothing.
func (p *Phi) At(now time.Time) Status {
	end := p.Deadline()
	switch {
	case end.IsZero():
		return Status{Reason: Reason{Code: NeverProbed}}
	case now.Before(end):
		return Status{Online, p.since, end, Reason{Code: Passing}}
	}
	return Status{Since: end, Reason: Reason{Code: Expired}}
}

// Suspended tells that this machine slept for gap: the silence was longer by it than
// the clock says, and is not learnt. A gap of 0 or less is ignored.
func (p *Phi) Suspended(now time.Time, gap time.Duration) {
	if gap <= 0 || p.last.IsZero() {
		return
	}
	if now.Before(p.Deadline()) {
		p.last, p.skip = p.last.Add(-gap), true
	}
}
