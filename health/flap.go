package health

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// FlapConfig configures a [Flap]. The zero value is complete. Penalties are pure
// numbers; only their ratios matter.
type FlapConfig struct {
	// Penalty is added each time that the target goes down. Default 1000, range
	// 1 to 1,000,000.
	Penalty int
	// Suppress is the sum above which the target is suppressed. Default 2000: the
	// third fall in a row. Range 1 to 1,000,000.
	Suppress int
	// Reuse is the sum at which it is let in again. Default 750, range 1 to
	// Suppress.
	Reuse int
	// HalfLife is the time in which the sum halves. Default 15 s, range 1 ms to
	// 24 h.
	HalfLife time.Duration
	// Limit is the longest that one suppression lasts, however often the target
	// falls meanwhile. Default four times HalfLife, range 1 ms to 96 h.
	Limit time.Duration
}

// Flap damps a target that goes up and down all the time, in the way of route flap
// damping (RFC 2439, Section 4.2): each fall adds a penalty, which decays. It is pure
// like a [Machine], so it must not be used by two goroutines at once. Make one with
// [NewFlap].
//
// It only holds an Online target back, and never for longer than Limit at a time,
// so that no target stays away for a reason that only grows.
type Flap struct {
	config FlapConfig
	up     bool // the last state that said something was Online

	penalty float64 // at when; later it is less
	when    time.Time

	since, until time.Time // of the present or last suppression
}

// FlapStatus is the penalty of a target.
type FlapStatus struct {
	Penalty    float64 // decayed until now
	Suppressed bool    // it is kept out
	// Since and Until are the bounds of the suppression, zero if there is none.
	Since, Until time.Time
}

// NewFlap returns a Flap of a target without a past. Its error joins a
// *[ConfigError] for each bad field.
func NewFlap(config FlapConfig) (*Flap, error) {
	c := config
	var faults []error
	number := func(field string, n *int, def, most int, want string) {
		if *n == 0 {
			*n = def
		}
		if *n < 1 || *n > most {
			faults = append(faults, &ConfigError{"", field, *n, want})
		}
	}
	duration := func(field string, d *time.Duration, def, most time.Duration) {
		if *d == 0 {
			*d = def
		}
		if *d < time.Millisecond || *d > most {
			faults = append(faults, &ConfigError{"", field, *d, fmt.Sprintf("1ms to %v", most)})
		}
	}
	const most = 1_000_000
	number("Penalty", &c.Penalty, 1000, most, "1 to 1000000")
	number("Suppress", &c.Suppress, 2000, most, "1 to 1000000")
	if len(faults) == 0 {
		number("Reuse", &c.Reuse, min(750, c.Suppress), c.Suppress, fmt.Sprintf("1 to %d, which is Suppress", c.Suppress))
	}
	duration("HalfLife", &c.HalfLife, 15*time.Second, maxInterval)
	if c.HalfLife >= time.Millisecond && c.HalfLife <= maxInterval { // a bad one is reported once
		duration("Limit", &c.Limit, 4*c.HalfLife, 4*maxInterval)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return &Flap{config: c}, nil
}

// Observe tells the state of the target at now. A fall is Offline after Online, also
// with [Unknown] or [Error] between, which say nothing about the target themselves.
// A state from before the last fall is ignored.
func (f *Flap) Observe(now time.Time, s State) {
	if now.Before(f.when) {
		return
	}
	switch {
	case s == Online:
		f.up = true
	case s == Offline && f.up:
		f.up = false
		f.fall(now)
	}
}

func (f *Flap) fall(now time.Time) {
	before := f.At(now)
	f.penalty, f.when = before.Penalty+float64(f.config.Penalty), now
	if !before.Suppressed {
		if f.penalty <= float64(f.config.Suppress) {
			return
		}
		f.since = now
	}
	// The time in which the penalty decays to Reuse.
	halves := math.Log2(f.penalty / float64(f.config.Reuse))
	decayed := now.Add(time.Duration(math.Ceil(halves * float64(f.config.HalfLife))))
	f.until = earliest(decayed, f.since.Add(f.config.Limit))
}

// At returns the penalty now. It changes nothing.
func (f *Flap) At(now time.Time) FlapStatus {
	if now.Before(f.until) {
		return FlapStatus{f.decayed(f.penalty, now.Sub(f.when)), true, f.since, f.until}
	}
	if f.until.After(f.when) {
		// A suppression has ended since, be it by Limit, so the sum was Reuse then.
		return FlapStatus{Penalty: f.decayed(float64(f.config.Reuse), now.Sub(f.until))}
	}
	return FlapStatus{Penalty: f.decayed(f.penalty, now.Sub(f.when))}
}

func (f *Flap) decayed(penalty float64, age time.Duration) float64 {
	return penalty * math.Exp2(-float64(max(age, 0))/float64(f.config.HalfLife))
}

// Damp returns what to make of a status of the target now: the same, but Offline
// for [Damped] in place of Online while the target is suppressed.
func (f *Flap) Damp(now time.Time, s Status) Status {
	flap := f.At(now)
	if s.State != Online || !flap.Suppressed {
		return s
	}
	reason := Reason{Damped, fmt.Sprintf("penalty %.0f, let in again at %d or after %v", flap.Penalty, f.config.Reuse, flap.Until.Sub(now).Round(time.Millisecond))}
	return Status{Offline, latest(s.Since, flap.Since), earliest(s.ValidUntil, flap.Until), reason}
}
