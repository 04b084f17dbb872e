package health

import "time"

// Machine judges the probes of one target. It is pure: it reads no clock, starts
// no goroutine and holds no lock, so it must not be used by two goroutines at
// once. Make one with [NewMachine]. A copy of a Machine is an independent machine
// with the same past.
//
// A caller that drives it from a loop of its own probes when [Machine.Deadline] is
// reached, tells [Machine.Observe] the result when the probe completes, and asks
// [Machine.At] whenever it wants to know.
type Machine struct {
	config Config

	verdict State // Unknown, Online or Offline; holds until validUntil
	since   time.Time
	reason  Reason
	decided bool // there has been a verdict, so Initial is over

	// good and bad count probes: the last in a row, so that at most one of them is
	// above 0, or if they accumulate those since one of them reached its number. A
	// local failure leaves both alone.
	good, bad int

	last       time.Time // last observation of any outcome
	validUntil time.Time // end of the lease that the last good or bad probe gave

	// The present run of local failures; errUntil is zero when there is none.
	errSince, errUntil time.Time
	errDetail          string

	suspended bool      // validUntil was reached in a suspension
	holdUntil time.Time // bad probes before this instant may be our fault
}

// NewMachine returns a machine that knows nothing. Its error joins a *[ConfigError]
// for each bad field.
func NewMachine(config Config) (*Machine, error) {
	c, err := config.complete("")
	if err != nil {
		return nil, err
	}
	return &Machine{config: c}, nil
}

// Config returns the machine's settings, defaults filled in.
func (m *Machine) Config() Config { return m.config }

// Reconfigure changes the settings. What is known stays known until the end of
// the lease it already has. On error nothing changes.
func (m *Machine) Reconfigure(config Config) error {
	c, err := config.complete("")
	if err != nil {
		return err
	}
	m.config = c
	return nil
}

// Observe takes the result of a probe that completed at now. It returns the
// transition, and whether there is one, between what At(now) said before and says
// after. A result older than one already taken is ignored.
//
// A good or bad result renews the verdict, also when it contradicts it: the target
// stays Online through Fall-1 bad probes, and the observer evidently is at work. A
// local error renews nothing and counts for nothing. The verdict in force stays so
// until its own lease ends; then, or at once if there is none, the state is Error.
func (m *Machine) Observe(now time.Time, r Result) (Transition, bool) {
	if now.Before(m.last) {
		return Transition{}, false
	}
	m.last = now
	before := m.At(now).State
	if r.Outcome == Bad && now.Before(m.holdUntil) {
		r = Result{LocalError, "just after a suspension: " + r.Detail}
	}
	switch r.Outcome {
	case Good:
		m.renew(now)
		m.count(&m.good, &m.bad)
		m.decide(now, Online, m.good, m.config.Rise, r)
	case Bad:
		m.renew(now)
		m.count(&m.bad, &m.good)
		m.decide(now, Offline, m.bad, m.config.Fall, r)
	default:
		if !now.Before(m.errUntil) {
			m.errSince = now
		}
		m.errUntil = now.Add(m.config.Lease)
		m.errDetail = r.Detail
	}
	after := m.At(now)
	return Transition{From: before, To: after}, before != after.State
}

// renew begins a new lease at now. What had ended by then is forgotten, the counts
// as well as the verdict: evidence expires too.
func (m *Machine) renew(now time.Time) {
	switch before := m.At(now); before.State {
	case Unknown:
		m.verdict, m.since = Unknown, before.Since
	case Error:
		m.verdict, m.since = Unknown, now
	}
	if !now.Before(m.validUntil) {
		m.good, m.bad = 0, 0
	}
	m.validUntil, m.suspended = now.Add(m.config.Lease), false
	m.errSince, m.errUntil, m.errDetail = time.Time{}, time.Time{}, ""
}

// count counts one more probe of a kind.
func (m *Machine) count(kind, other *int) {
	*kind = min(*kind+1, maxCount)
	if m.config.Counting == Consecutive {
		*other = 0
	}
}

// decide takes one more probe in favour of state, the run-th of need.
func (m *Machine) decide(now time.Time, state State, run, need int, r Result) {
	if !m.decided && m.config.Initial == InitialFirst {
		need = 1
	}
	if run >= need {
		if m.verdict != state {
			m.verdict, m.since, m.decided = state, now, true
		}
		if m.config.Counting == Accumulating {
			m.good, m.bad = 0, 0
		}
	}
	m.reason = Reason{Detail: r.Detail}
	switch {
	case m.verdict == Unknown:
		m.reason.Code = Undecided
	case m.verdict == Online && r.Outcome == Good:
		m.reason.Code = Passing
	case m.verdict == Online:
		m.reason.Code = Failing
	case r.Outcome == Bad:
		m.reason.Code = Failed
	default:
		m.reason.Code = Recovering
	}
}

// At returns what is known at now. It changes nothing, so it may be asked early,
// late, and as often as wanted.
func (m *Machine) At(now time.Time) Status {
	fresh := now.Before(m.validUntil)
	if fresh && m.verdict != Unknown {
		return Status{m.verdict, m.since, m.validUntil, m.reason}
	}

	// No verdict is in force. ended is since when.
	ended := m.since
	if m.verdict != Unknown {
		ended = m.validUntil
	}
	if now.Before(m.errUntil) {
		return Status{Error, latest(ended, m.errSince), m.errUntil, Reason{LocalFailure, m.errDetail}}
	}
	status := Status{State: Unknown, Since: latest(ended, m.errUntil), Reason: Reason{Code: Expired, Detail: m.reason.Detail}}
	switch {
	case fresh:
		status.Reason = m.reason // Undecided
	case m.last.IsZero():
		status.Reason = Reason{Code: NeverProbed}
	case m.validUntil.IsZero():
		status.Reason.Detail = m.errDetail // only local failures so far, the last long ago
	case m.suspended:
		status.Reason.Code = Suspended
	}
	return status
}

// Suspended tells that this machine slept for gap, in which its monotonic clock stood
// still; now is after it, and before the results of probes that were under way. What
// is known ends earlier by gap, so a verdict with less than that left ends now. The
// bad probes before it are forgotten, and those within the next Interval count as
// local errors: the network may need time to come back, and the target must not be
// accused for that. A gap of 0 or less is ignored.
func (m *Machine) Suspended(now time.Time, gap time.Duration) {
	if gap <= 0 {
		return
	}
	if now.Before(m.validUntil) {
		m.validUntil = latest(now, m.validUntil.Add(-gap))
		m.suspended = !now.Before(m.validUntil)
	}
	if now.Before(m.errUntil) {
		m.errUntil = latest(now, m.errUntil.Add(-gap))
	}
	m.bad = 0
	m.holdUntil = latest(m.holdUntil, now.Add(m.config.Interval))
}

// Deadline returns when to start the next probe. Before the first result it is the
// zero time: at once. Later it is the interval of the moment after the last result,
// so a slow probe delays the next one and a target is never probed twice at once. It
// does not pass while a probe is under way; the caller starts none until it has
// observed the result of the one before.
//
// A target that turns silent is found Offline after Fall*Timeout + (Fall-1)*Interval
// plus the rest of the interval in which it died: 13 to 18 s with the defaults, 10
// to 15 s when it refuses instead.
func (m *Machine) Deadline() time.Time {
	if m.last.IsZero() {
		return time.Time{}
	}
	switch {
	case m.verdict == Online && m.bad > 0,
		m.verdict == Offline && m.good > 0,
		m.verdict == Unknown && m.good+m.bad > 0:
		return m.last.Add(m.config.FastInterval)
	case m.verdict == Offline:
		return m.last.Add(m.config.DownInterval)
	}
	return m.last.Add(m.config.Interval)
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
