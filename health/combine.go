package health

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Rule says what several causes mean together.
type Rule uint8

// The rules. A cause knows if it is [Online] or [Offline]. Where no line of a rule
// applies, the result is [Error] if any cause is, else [Unknown].
const (
	// WorstWins: Offline if any cause is. Else Online if any is; those that do not
	// know are left out.
	WorstWins Rule = iota
	// ActiveWins: what the first cause says, if it knows. Else WorstWins of the
	// others.
	ActiveWins
	// AllOf: Offline if any cause is. Online if all are.
	AllOf
	// AnyOf: Online if any cause is. Offline if all are.
	AnyOf
)

// String returns "worst wins", "active wins", "all of" or "any of".
func (r Rule) String() string {
	names := [...]string{"worst wins", "active wins", "all of", "any of"}
	if int(r) < len(names) {
		return names[r]
	}
	return fmt.Sprintf("rule(%d)", uint8(r))
}

// Combination is what several causes say about one target, such as probes, errors of
// real traffic, and the word of an agent on the target. No cause overwrites another;
// each keeps its own verdict with its own lease. It is pure like a [Machine], so it
// must not be used by two goroutines at once. Make one with [NewCombination].
//
// The result is a lease as well, and ends when the verdicts that made it do. Under
// WorstWins the end of an accusation can bring a target back Online, but only by
// another cause that says so at that time.
type Combination struct {
	rule   Rule
	names  []string
	causes []Status

	// The result at the last input; ends of leases since then are not in it.
	state State
	since time.Time
	last  time.Time
}

// NewCombination returns a Combination of the named causes, at least one; the first
// is the active one for [ActiveWins]. Its error joins a *[ConfigError] for each
// fault.
func NewCombination(rule Rule, causes ...string) (*Combination, error) {
	var faults []error
	if rule > AnyOf {
		faults = append(faults, &ConfigError{"", "Rule", rule, "WorstWins, ActiveWins, AllOf or AnyOf"})
	}
	if len(causes) == 0 {
		faults = append(faults, &ConfigError{"", "Causes", causes, "at least one"})
	}
	for i, name := range causes {
		if name == "" || slices.Contains(causes[:i], name) {
			faults = append(faults, &ConfigError{"", "Causes", fmt.Sprintf("%q", causes), "names that are not empty and differ"})
			break
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return &Combination{rule: rule, names: slices.Clone(causes), causes: make([]Status, len(causes))}, nil
}

// Observe takes what a cause says at now. A cause that is not observed is Unknown. The
// error matches [ErrKey] if there is no such cause; then nothing changes. An input
// from before the last one is taken as of the last one.
func (c *Combination) Observe(now time.Time, cause string, s Status) error {
	i := slices.Index(c.names, cause)
	if i < 0 {
		return fmt.Errorf("%w: %q is not among the causes %q", ErrKey, cause, c.names)
	}
	now = latest(now, c.last)
	c.state, c.since = c.walk(now)
	c.causes[i], c.last = s, now
	if state := c.judge(now); state != c.state {
		c.state, c.since = state, now
	}
	return nil
}

// At returns the result now. Its Reason has the code of the first cause that is of
// the resulting state, and names it. At changes nothing.
func (c *Combination) At(now time.Time) Status {
	now = latest(now, c.last)
	var s Status
	s.State, s.Since = c.walk(now)
	for _, end := range c.ends() {
		if s.State != Unknown && now.Before(end) && c.judge(end) != s.State {
			s.ValidUntil = end
			break
		}
	}
	decider := max(0, slices.IndexFunc(c.causes, func(cause Status) bool { return inForce(cause, now) == s.State }))
	s.Reason = c.causes[decider].Reason
	if s.State == Unknown && c.causes[decider].State != Unknown {
		s.Reason.Code = Expired
	}
	if s.Reason.Detail != "" {
		s.Reason.Detail = ": " + s.Reason.Detail
	}
	s.Reason.Detail = "by " + c.names[decider] + s.Reason.Detail
	return s
}

// Causes returns what each cause says now, by name.
func (c *Combination) Causes(now time.Time) map[string]Status {
	all := make(map[string]Status, len(c.names))
	for i, name := range c.names {
		s := c.causes[i]
		if s.State != Unknown && inForce(s, now) == Unknown {
			s = Status{Since: s.ValidUntil, Reason: Reason{Expired, s.Reason.Detail}}
		}
		all[name] = s
	}
	return all
}

// walk returns the result at now and since when, by going from end to end of the
// leases since the last input.
func (c *Combination) walk(now time.Time) (State, time.Time) {
	state, since := c.state, c.since
	for _, end := range c.ends() {
		if end.Before(c.last) || now.Before(end) {
			continue
		}
		if s := c.judge(end); s != state {
			state, since = s, end
		}
	}
	return state, since
}

// ends returns the ends of all leases in order.
func (c *Combination) ends() []time.Time {
	var ends []time.Time
	for _, s := range c.causes {
		if s.State != Unknown {
			ends = append(ends, s.ValidUntil)
		}
	}
	slices.SortFunc(ends, time.Time.Compare)
	return ends
}

// judge applies the rule to what is in force at now.
func (c *Combination) judge(now time.Time) State {
	var count [Error + 1]int
	for _, s := range c.causes {
		count[inForce(s, now)]++
	}
	rule := c.rule
	if rule == ActiveWins {
		if active := inForce(c.causes[0], now); active == Online || active == Offline {
			return active
		}
		rule = WorstWins // the first does not know, so it is left out anyhow
	}
	switch n := len(c.causes); {
	case rule == WorstWins && count[Offline] > 0,
		rule == AllOf && count[Offline] > 0,
		rule == AnyOf && count[Offline] == n:
		return Offline
	case rule == WorstWins && count[Online] > 0,
		rule == AllOf && count[Online] == n,
		rule == AnyOf && count[Online] > 0:
		return Online
	case count[Error] > 0:
		return Error
	}
	return Unknown
}

// inForce returns the state of a status at now.
func inForce(s Status, now time.Time) State {
	if s.State > Error || !now.Before(s.ValidUntil) {
		return Unknown
	}
	return s.State
}

// Admin is what an operator wants with a target. It is an order and no observation,
// so it has no lease, and neither ever overwrites the other: a target that was down
// before maintenance is not up after it, and one that comes up in maintenance is not
// used.
type Admin uint8

// The orders.
const (
	// InService: use the target as far as it is well. It is the zero value.
	InService Admin = iota
	// Drain: give it nothing new. It is probed as before.
	Drain
	// Maintenance: do not use it, nor probe it.
	Maintenance
)

// String returns "in service", "drain" or "maintenance".
func (a Admin) String() string {
	names := [...]string{"in service", "drain", "maintenance"}
	if int(a) < len(names) {
		return names[a]
	}
	return fmt.Sprintf("admin(%d)", uint8(a))
}

// Probe tells whether to probe a target under this order.
func (a Admin) Probe() bool { return a < Maintenance }

// Use tells what a target of this state may be given under this order: new work,
// or at least what it has already.
func (a Admin) Use(s State) (fresh, held bool) {
	up := s == Online
	return up && a == InService, up && a <= Drain
}
