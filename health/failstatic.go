package health

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// FailStaticConfig configures a [FailStatic]. The zero value is complete.
type FailStaticConfig struct {
	// Percent of the targets must turn bad within Window, or rather more than
	// that. Default 50, range 1 to 99.
	Percent int
	// Count is how many of them there must be at least. Default 3, range 1 to
	// 1,000,000.
	Count int
	// Least is of how many targets at least. Of three targets two may well die
	// together, so the guard is not for small sets. Default 5, range 1 to
	// 1,000,000.
	Least int
	// Window is the time in which dead targets are found, see [Machine.Deadline].
	// Default 20 s, range 1 ms to 24 h.
	Window time.Duration
	// Hold is how long a freeze lasts at most. Default 1 min, range 1 ms to 24 h.
	Hold time.Duration
	// Domain names what a target may fail together with, such as its rack; it must
	// always give the same answer. One domain may fail as a whole: whichever is
	// left out, of the rest more than Percent must turn bad too. Default nil: no
	// domains.
	Domain func(key string) string
}

// FailStatic stands between what one observer found out about many targets and
// those who act on it. When too many turn bad at once to believe it, it keeps what
// was known before, marked [Frozen], until somebody has looked after the observer.
// It is pure like a [Machine], so it must not be used by two goroutines at once. Make
// one with [NewFailStatic].
//
// A target turns bad when it was Online and is not any more, be it proven or by the
// end of its lease. The freeze is for those that turned bad within the Window
// before it began or while it lasts; all others are what they are. It is a lease
// too: it ends after Hold, or by [FailStatic.Release], and then all is believed.
// So nobody is called Online for longer than Window plus Hold after it was last
// known to be.
type FailStatic struct {
	config  FailStaticConfig
	targets map[string]*guarded
	domains map[string]*domain
	all     tally
	losses  []loss // counted ones and some that are not any more, oldest first

	from, until time.Time // of the present or last freeze
	detail      string
}

// guarded is a target of the guard.
type guarded struct {
	domain  *domain
	status  Status    // as last observed
	online  bool      // counted in tally.online
	counted bool      // counted in tally.lost
	lost    time.Time // when it last turned bad
	was     time.Time // Since of the status that was lost
	losses  int       // how often it did; tells a loss from one before
}

// tally counts targets.
type tally struct{ online, lost int }

// domain is what some of the targets may fail together with.
type domain struct {
	tally
	name    string
	members int
}

// loss is an entry of the queue that empties as the Window passes.
type loss struct {
	target *guarded
	number int
}

// Freeze tells of a freeze.
type Freeze struct {
	From, Until time.Time // its bounds
	Detail      string    // for people: how many of how many
}

// NewFailStatic returns a guard of no targets. Its error joins a *[ConfigError] for
// each bad field.
func NewFailStatic(config FailStaticConfig) (*FailStatic, error) {
	c := config
	var faults []error
	number := func(field string, n *int, def, most int) {
		if *n == 0 {
			*n = def
		}
		if *n < 1 || *n > most {
			faults = append(faults, &ConfigError{"", field, *n, fmt.Sprintf("1 to %d", most)})
		}
	}
	duration := func(field string, d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
		if *d < time.Millisecond || *d > maxInterval {
			faults = append(faults, &ConfigError{"", field, *d, fmt.Sprintf("1ms to %v", maxInterval)})
		}
	}
	number("Percent", &c.Percent, 50, 99)
	number("Count", &c.Count, 3, 1_000_000)
	number("Least", &c.Least, 5, 1_000_000)
	duration("Window", &c.Window, 20*time.Second)
	duration("Hold", &c.Hold, time.Minute)
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return &FailStatic{config: c, targets: map[string]*guarded{}, domains: map[string]*domain{}}, nil
}

// Observe takes what was found out about a target, at now. A target that is new is
// added.
func (f *FailStatic) Observe(now time.Time, key string, s Status) {
	g := f.targets[key]
	if g == nil {
		name := ""
		if f.config.Domain != nil {
			name = f.config.Domain(key)
		}
		if f.domains[name] == nil {
			f.domains[name] = &domain{name: name}
		}
		g = &guarded{domain: f.domains[name]}
		g.domain.members++
		f.targets[key] = g
	}
	online := s.State == Online && now.Before(s.ValidUntil)
	if g.online && !online {
		f.lose(now, g)
	}
	g.status = s
	if online {
		f.setCounted(g, false)
		f.setOnline(g, true)
	}
	f.judge(now)
}

// Advance notices which leases have ended by now. It looks at all targets. A reader
// does not depend on it: without it an end shows as Unknown and freezes nothing.
func (f *FailStatic) Advance(now time.Time) {
	var ended []*guarded
	for _, g := range f.targets {
		if g.online && !now.Before(g.status.ValidUntil) {
			ended = append(ended, g)
		}
	}
	slices.SortFunc(ended, func(a, b *guarded) int { return a.status.ValidUntil.Compare(b.status.ValidUntil) })
	for i, g := range ended {
		when := g.status.ValidUntil
		f.lose(when, g)
		if i == len(ended)-1 || ended[i+1].status.ValidUntil.After(when) {
			f.judge(when) // of all that ended at one instant together
		}
	}
	f.judge(now)
}

// lose notices that a target which was Online turned bad.
func (f *FailStatic) lose(when time.Time, g *guarded) {
	f.setOnline(g, false)
	g.lost, g.was = when, g.status.Since
	g.losses++
	if _, frozen := f.Freeze(when); frozen {
		return // it is in the freeze, and is believed after it
	}
	f.setCounted(g, true)
	f.losses = append(f.losses, loss{g, g.losses})
}

// judge begins a freeze if too many targets have turned bad within the Window
// before when.
func (f *FailStatic) judge(when time.Time) {
	for len(f.losses) > 0 {
		l := f.losses[0]
		current := l.target.counted && l.number == l.target.losses
		if current && when.Sub(l.target.lost) < f.config.Window {
			break
		}
		if current {
			f.setCounted(l.target, false)
		}
		f.losses = f.losses[1:]
	}
	n := f.all.online + f.all.lost
	if f.all.lost < f.config.Count || n < f.config.Least || !f.tooMany(f.all) {
		return
	}
	if len(f.domains) > 1 {
		for _, d := range f.domains {
			if !f.tooMany(tally{f.all.online - d.online, f.all.lost - d.lost}) {
				return // it is this domain
			}
		}
	}
	f.from, f.until = when, when.Add(f.config.Hold)
	f.detail = fmt.Sprintf("%d of %d targets turned bad within %v", f.all.lost, n, f.config.Window)
	f.forgetLosses()
}

func (f *FailStatic) tooMany(t tally) bool {
	return t.lost*100 > f.config.Percent*(t.online+t.lost)
}

func (f *FailStatic) forgetLosses() {
	for _, l := range f.losses {
		f.setCounted(l.target, false)
	}
	f.losses = nil
}

func (f *FailStatic) setOnline(g *guarded, online bool) {
	step := change(g.online, online)
	f.all.online += step
	g.domain.online += step
	g.online = online
}

func (f *FailStatic) setCounted(g *guarded, counted bool) {
	step := change(g.counted, counted)
	f.all.lost += step
	g.domain.lost += step
	g.counted = counted
}

// change is what a count of true values changes by.
func change(before, after bool) int {
	switch {
	case after && !before:
		return 1
	case before && !after:
		return -1
	}
	return 0
}

// At returns what to believe about a target now, and whether there is such a target.
func (f *FailStatic) At(now time.Time, key string) (Status, bool) {
	g := f.targets[key]
	if g == nil {
		return Status{}, false
	}
	s := g.status
	lost, was := g.lost, g.was
	if !s.ValidUntil.IsZero() && !now.Before(s.ValidUntil) {
		if g.online { // not noticed yet
			lost, was = s.ValidUntil, s.Since
		}
		s = Status{Since: s.ValidUntil, Reason: Reason{Expired, s.Reason.Detail}}
	}
	freeze, frozen := f.Freeze(now)
	if !frozen || s.State == Online || lost.IsZero() || freeze.From.Sub(lost) >= f.config.Window {
		return s, true
	}
	return Status{Online, was, freeze.Until, Reason{Frozen, freeze.Detail + "; found is " + s.State.String() + ", " + s.Reason.String()}}, true
}

// Freeze returns the freeze that is in force now, and whether there is one.
func (f *FailStatic) Freeze(now time.Time) (Freeze, bool) {
	if !now.Before(f.until) {
		return Freeze{}, false
	}
	return Freeze{f.from, f.until, f.detail}, true
}

// Release ends a freeze: somebody looked after the observer, say by probing a
// reference that can't fail with the targets, and what it found is true. It tells
// whether there was a freeze. The same losses do not begin another.
func (f *FailStatic) Release(now time.Time) bool {
	_, frozen := f.Freeze(now)
	f.until = earliest(f.until, now)
	f.forgetLosses()
	return frozen
}

// Suspended tells that this machine slept for gap, see [Leases.Suspended]. A freeze
// ends earlier by it, and so does what was known about the targets; what ends by
// that is not a loss that could begin a freeze, but the passing of time.
func (f *FailStatic) Suspended(now time.Time, gap time.Duration) {
	if gap <= 0 {
		return
	}
	f.Advance(now)
	f.until = f.until.Add(-gap)
	for _, g := range f.targets {
		if g.status.ValidUntil.IsZero() {
			continue
		}
		g.status.ValidUntil = g.status.ValidUntil.Add(-gap)
		if g.online && !now.Before(g.status.ValidUntil) {
			f.setOnline(g, false)
			g.status = Status{Since: now, Reason: Reason{Suspended, g.status.Reason.Detail}}
			g.lost = time.Time{} // not in any freeze
		}
	}
}

// Remove ends guarding a target, and tells whether there was one.
func (f *FailStatic) Remove(key string) bool {
	g := f.targets[key]
	if g == nil {
		return false
	}
	f.setOnline(g, false)
	f.setCounted(g, false)
	delete(f.targets, key)
	if g.domain.members--; g.domain.members == 0 {
		delete(f.domains, g.domain.name)
	}
	return true
}
