package health

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Errors of [Leases].
var (
	// ErrFenced: the report or accusation is about a lease that was replaced: its
	// Epoch or Term is lower than the one in the store. It is a late packet of the
	// past, or its sender does not know yet that it was replaced.
	ErrFenced = errors.New("health: lease was replaced")
	// ErrStale: the lease was already renewed with this or a higher Sequence.
	ErrStale = errors.New("health: lease was renewed since")
	// ErrHeld: another owner holds the lease under the same Term.
	ErrHeld = errors.New("health: lease is held by another owner")
	// ErrPermission: the sender may not do that, by MayHold or MayLower.
	ErrPermission = errors.New("health: not permitted")
	// ErrReport: a field of a report or accusation can't be used.
	ErrReport = errors.New("health: bad report")
)

// Lease says who vouches for something, and for how long.
type Lease struct {
	// Owner names who probes and vouches. Not empty.
	Owner string
	// Epoch is the incarnation of the owner. It grows with each of its starts: a
	// stored counter, or the time of the start.
	Epoch uint64
	// Term orders the owners of one subject. Who hands a subject from one owner to
	// another raises it; where subjects never change hands it stays 0.
	Term uint64
	// Sequence grows with each renewal within an Epoch and a Term. An owner may
	// count per subject, or have one counter for all.
	Sequence uint64
	// Length is how long the lease holds from its arrival. It is the writer's
	// choice, who knows how often it renews: at least three renewals, or the time
	// in which it finds a dead subject plus the worst delay of a report. Range
	// 1 ns to 30,000 h.
	Length time.Duration
}

// Report is what an owner says about a subject. It is to be made when a probe
// completes and not by a timer that runs without probes: a prober that hangs must
// not keep itself alive.
type Report struct {
	Lease
	// Subject is what the report is about. Empty is the owner itself: a report
	// with State [Online] is its heartbeat, and renews the owner lease.
	Subject string
	State   State
	Detail  string // for people
}

// Accusation is what somebody else than the owner says about a subject.
type Accusation struct {
	// By names the accuser.
	By string
	// Lease is the accused lease as the accuser knows it, except for Length, which
	// is how long the accusation holds. A renewal with a higher Sequence refutes
	// the accusation, and while that holds it refutes the others, in whichever
	// order they arrive.
	Lease
	// Subject is as in [Report]. To accuse the owner itself ends all that it
	// vouches for.
	Subject string
	Detail  string // for people
}

// LeasesConfig configures [Leases]. The zero value is usable.
type LeasesConfig struct {
	// NeedOwner makes verdicts count only while their owner has an owner lease.
	// Without it an owner that gives no heartbeat is bound by the leases of its
	// subjects alone.
	NeedOwner bool
	// Hold is how long [Leases.MayAccuse] says no after the first report, and
	// after a suspension. Default 5 s, range 1 ms to 24 h.
	Hold time.Duration
	// MayHold tells whether an owner may report about a subject, which is empty
	// for its own lease. Default nil: each may.
	MayHold func(owner, subject string) bool
	// MayLower tells whether somebody may accuse a subject, which is empty for an
	// owner's own lease. Default nil: nobody may.
	MayLower func(by, subject string) bool
}

// Leases is what one reader knows about the subjects of many owners. It is pure
// like a [Machine], so it must not be used by two goroutines at once. Make one with
// [NewLeases].
//
// A verdict is in force while the lease of its subject and the lease of its owner
// are, whichever ends first. The reader's clock decides alone: a lease holds for
// Length from the arrival of the report, so the clocks of two hosts are never
// compared. The price is known: after the death of an owner its verdicts hold for
// Length from the arrival of its last report, at most, however long that was under
// way; nothing holds longer.
//
// Only the holder of a lease can bring its subject Online. Others, if permitted,
// can take it Offline until the holder renews.
//
// Owners, subjects and their epochs are remembered, also when their leases have
// ended, as that is what fences late packets. [Leases.Forget] and
// [Leases.ForgetOwner] free the memory.
type Leases struct {
	config    LeasesConfig
	owners    map[string]*owner
	subjects  map[string]*claim
	holdUntil time.Time // zero before the first report
}

// owner is what is known about an owner.
type owner struct {
	epoch uint64
	since time.Time // arrival of the first report of the epoch
	own   *claim    // its own lease; nil before the first heartbeat of the epoch
}

// claim is a lease with what it vouches for.
type claim struct {
	Lease
	subject    string
	state      State
	since      time.Time // start of state, if it is in force
	validUntil time.Time
	detail     string
	lowered    bool      // state is by an accuser
	refuted    uint64    // the last renewal that the accuser knew
	suspended  bool      // validUntil was reached in a suspension
	told       time.Time // the end that Expire told of; another may follow when the owner is back
}

// NewLeases returns an empty store. Its error joins a *[ConfigError] for each bad
// field.
func NewLeases(config LeasesConfig) (*Leases, error) {
	if config.Hold == 0 {
		config.Hold = 5 * time.Second
	}
	if config.Hold < time.Millisecond || config.Hold > maxInterval {
		return nil, &ConfigError{"", "Hold", config.Hold, fmt.Sprintf("1ms to %v", maxInterval)}
	}
	return &Leases{config: config, owners: map[string]*owner{}, subjects: map[string]*claim{}}, nil
}

// Apply takes a report that arrived at now. A report with a higher Epoch than any
// before tells that its owner has restarted: all that it vouched for before is
// Unknown from now on, except for what this report says. A report with a higher
// Term takes its subject over.
//
// Errors match [ErrReport], [ErrPermission], [ErrFenced], [ErrHeld] or [ErrStale];
// then nothing changes.
func (l *Leases) Apply(now time.Time, r Report) error {
	if err := r.Lease.check(r.Subject); err != nil {
		return err
	}
	if r.State > Error {
		return fmt.Errorf("%w: %s: State is %v: want one of the states", ErrReport, r.Lease.of(r.Subject), r.State)
	}
	if l.config.MayHold != nil && !l.config.MayHold(r.Owner, r.Subject) {
		return fmt.Errorf("%w: %s: MayHold refuses", ErrPermission, r.Lease.of(r.Subject))
	}
	o, c := l.owners[r.Owner], l.claim(r.Owner, r.Subject)
	if o != nil && r.Epoch < o.epoch {
		return fmt.Errorf("%w: %s: epoch %d is before %d", ErrFenced, r.Lease.of(r.Subject), r.Epoch, o.epoch)
	}
	// A stream is what its Sequence counts in.
	sameStream := false
	if c != nil {
		switch {
		case r.Term < c.Term:
			return fmt.Errorf("%w: %s: term %d is before %d of %q", ErrFenced, r.Lease.of(r.Subject), r.Term, c.Term, c.Owner)
		case r.Term == c.Term && r.Owner != c.Owner:
			return fmt.Errorf("%w: %s: %q has term %d: a take-over needs a higher one", ErrHeld, r.Lease.of(r.Subject), c.Owner, c.Term)
		}
		sameStream = r.Term == c.Term && r.Epoch == c.Epoch
		last := c.Sequence
		if c.lowered && now.Before(c.validUntil) {
			last = max(last, c.refuted) // also what was under way when it was refuted
		}
		if sameStream && r.Sequence <= last {
			return fmt.Errorf("%w: %s: sequence %d is not after %d", ErrStale, r.Lease.of(r.Subject), r.Sequence, last)
		}
	}

	if o == nil {
		o = &owner{}
		l.owners[r.Owner] = o
	}
	if o.since.IsZero() || r.Epoch > o.epoch {
		*o = owner{epoch: r.Epoch, since: now}
	}
	next := &claim{Lease: r.Lease, subject: r.Subject, state: r.State, since: now, validUntil: now.Add(r.Length), detail: r.Detail}
	if sameStream && !c.lowered && c.state == r.State && now.Before(c.validUntil) {
		next.since = c.since
	}
	if r.Subject == "" {
		o.own = next
	} else {
		l.subjects[r.Subject] = next
	}
	if l.holdUntil.IsZero() {
		l.holdUntil = now.Add(l.config.Hold)
	}
	return nil
}

// Lower takes an accusation that arrived at now: its subject is Offline for Length,
// or until the holder renews, whichever is first. After that it is Unknown, not what
// it was before. The owner lease plays no part, as it is not the owner who says so.
//
// Errors match [ErrReport], [ErrPermission], [ErrNoTarget] if there never was such
// a lease, [ErrFenced] if the accused lease is not the one in the store, or
// [ErrStale] if its holder has renewed since; then nothing changes.
func (l *Leases) Lower(now time.Time, a Accusation) error {
	if err := a.Lease.check(a.Subject); err != nil {
		return err
	}
	if l.config.MayLower == nil || !l.config.MayLower(a.By, a.Subject) {
		return fmt.Errorf("%w: %s: MayLower does not permit %q to accuse it", ErrPermission, a.Lease.of(a.Subject), a.By)
	}
	c := l.claim(a.Owner, a.Subject)
	switch {
	case c == nil:
		return fmt.Errorf("%w: %s", ErrNoTarget, a.Lease.of(a.Subject))
	case a.Owner != c.Owner || a.Term != c.Term || a.Epoch != c.Epoch || a.Epoch != l.owners[c.Owner].epoch:
		return fmt.Errorf("%w: %s: epoch %d, term %d are accused, but epoch %d, term %d of %q are the present ones",
			ErrFenced, a.Lease.of(a.Subject), a.Epoch, a.Term, l.owners[c.Owner].epoch, c.Term, c.Owner)
	case a.Sequence < c.Sequence:
		return fmt.Errorf("%w: %s: sequence %d is accused, but is %d by now", ErrStale, a.Lease.of(a.Subject), a.Sequence, c.Sequence)
	}
	until := now.Add(a.Length)
	if c.lowered && now.Before(c.validUntil) {
		until = latest(until, c.validUntil)
		c.refuted = max(c.refuted, a.Sequence)
	} else {
		c.since, c.refuted = now, a.Sequence
	}
	c.state, c.validUntil, c.lowered, c.suspended = Offline, until, true, false
	c.detail = "by " + a.By
	if a.Detail != "" {
		c.detail += ": " + a.Detail
	}
	return nil
}

// At returns what is known about a subject now, and whether there ever was a report
// about it.
func (l *Leases) At(now time.Time, subject string) (Status, bool) {
	c := l.subjects[subject]
	if c == nil {
		return Status{}, false
	}
	return l.status(now, c), true
}

// Owner returns whether an owner has a lease now, which is State Online unless it
// says otherwise of itself, and whether there ever was a report of it.
func (l *Leases) Owner(now time.Time, name string) (Status, bool) {
	o := l.owners[name]
	if o == nil {
		return Status{}, false
	}
	if o.own == nil {
		return Status{Since: o.since, Reason: Reason{Code: OwnerRestarted, Detail: "no heartbeat yet"}}, true
	}
	return l.status(now, o.own), true
}

// Snapshot returns what is known about all subjects now.
func (l *Leases) Snapshot(now time.Time) map[string]Status {
	all := make(map[string]Status, len(l.subjects))
	for subject, c := range l.subjects {
		all[subject] = l.status(now, c)
	}
	return all
}

// status is At for a claim of a subject or an owner.
func (l *Leases) status(now time.Time, c *claim) Status {
	end, since, code := l.bounds(c)
	if !now.Before(end) {
		return Status{Since: end, Reason: Reason{code, c.detail}}
	}
	if c.state == Unknown {
		return Status{Since: since, Reason: Reason{Reported, c.detail}}
	}
	status := Status{c.state, since, end, Reason{Reported, c.detail}}
	if c.lowered {
		status.Reason.Code = Lowered
	}
	return status
}

// bounds returns when a claim ends or has ended, since when it is in force if it is,
// and the reason that there will be for its end.
func (l *Leases) bounds(c *claim) (end, since time.Time, code Code) {
	end, since, code = c.validUntil, c.since, Expired
	if c.suspended {
		code = Suspended
	}
	if c.lowered || c.subject == "" {
		return end, since, code
	}
	o := l.owners[c.Owner]
	switch {
	case c.Epoch < o.epoch:
		if o.since.Before(end) {
			end, code = o.since, OwnerRestarted
		}
	case o.own != nil:
		ownerEnd := o.own.validUntil
		if o.own.state != Online {
			ownerEnd = o.own.since
		}
		if ownerEnd.Before(end) {
			end, code = ownerEnd, OwnerEnded
			if o.own.suspended {
				code = Suspended
			}
		}
		since = latest(since, o.own.since)
	case l.config.NeedOwner:
		if o.since.Before(end) {
			end, code = o.since, OwnerEnded
		}
	}
	return end, since, code
}

// LeaseEvent tells of the end of a verdict.
type LeaseEvent struct {
	Owner   string // who vouched for it
	Subject string // empty: the owner's own lease
	Old     State  // the verdict that ended
	New     Status // Unknown, with the reason
}

// Expire returns the verdicts that have ended since it was last called, in the order
// of their ends, then by owner and subject. It only announces: a reader does not
// depend on it, and a verdict that was renewed before it was called is not told of.
// It looks at all leases.
func (l *Leases) Expire(now time.Time) []LeaseEvent {
	var events []LeaseEvent
	for c := range l.claims {
		if c.state == Unknown {
			continue
		}
		if s := l.status(now, c); s.State == Unknown && s.Since != c.told {
			c.told = s.Since
			events = append(events, LeaseEvent{c.Owner, c.subject, c.state, s})
		}
	}
	slices.SortFunc(events, func(a, b LeaseEvent) int {
		return cmp.Or(a.New.Since.Compare(b.New.Since), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Subject, b.Subject))
	})
	return events
}

// Deadline returns when Expire will have something to announce if nothing is
// renewed; zero if never. It looks at all leases.
func (l *Leases) Deadline() time.Time {
	var first time.Time
	for c := range l.claims {
		if c.state == Unknown {
			continue
		}
		if end, _, _ := l.bounds(c); end != c.told && (first.IsZero() || end.Before(first)) {
			first = end
		}
	}
	return first
}

// Suspended tells that this machine slept for gap, in which its monotonic clock
// stood still; now is after it. All leases end earlier by gap, those with less than
// that left end now, and MayAccuse says no for Hold.
//
// It is to be called before what arrived meanwhile is applied: that would otherwise
// be taken for fresh. A gap of 0 or less is ignored.
func (l *Leases) Suspended(now time.Time, gap time.Duration) {
	if gap <= 0 {
		return
	}
	for c := range l.claims {
		if !now.Before(c.validUntil) {
			continue
		}
		c.validUntil = c.validUntil.Add(-gap)
		if !now.Before(c.validUntil) {
			c.validUntil, c.suspended = now, true
		}
	}
	l.holdUntil = latest(l.holdUntil, now.Add(l.config.Hold))
}

// MayAccuse tells whether silence is evidence. Before the first report, for Hold
// after it, and for Hold after a suspension it says more about this reader than
// about anybody else: the reader should announce nothing and accuse nobody.
func (l *Leases) MayAccuse(now time.Time) bool {
	return !l.holdUntil.IsZero() && !now.Before(l.holdUntil)
}

// Forget removes a subject, and tells whether there was one. Any owner may hold it
// next, under any Term; late packets of the last holder are not fenced any more.
func (l *Leases) Forget(subject string) bool {
	_, there := l.subjects[subject]
	delete(l.subjects, subject)
	return there
}

// ForgetOwner removes an owner with all subjects that it holds, and tells whether
// there was one. Late packets of it are not fenced any more.
func (l *Leases) ForgetOwner(name string) bool {
	_, there := l.owners[name]
	delete(l.owners, name)
	for subject, c := range l.subjects {
		if c.Owner == name {
			delete(l.subjects, subject)
		}
	}
	return there
}

// claim returns the lease of a subject, or of the owner itself if subject is empty.
func (l *Leases) claim(name, subject string) *claim {
	if subject != "" {
		return l.subjects[subject]
	}
	if o := l.owners[name]; o != nil {
		return o.own
	}
	return nil
}

// claims iterates over the leases of owners and subjects.
func (l *Leases) claims(yield func(*claim) bool) {
	for _, o := range l.owners {
		if o.own != nil && !yield(o.own) {
			return
		}
	}
	for _, c := range l.subjects {
		if !yield(c) {
			return
		}
	}
}

// check returns what makes the lease of a subject unusable.
func (l Lease) check(subject string) error {
	if l.Owner == "" {
		return fmt.Errorf("%w: %s: Owner is empty: want a name", ErrReport, l.of(subject))
	}
	if l.Length < 1 || l.Length > maxLease {
		return fmt.Errorf("%w: %s: Length is %v: want 1ns to %v", ErrReport, l.of(subject), l.Length, maxLease)
	}
	return nil
}

// of names the lease in an error.
func (l Lease) of(subject string) string {
	if subject == "" {
		return fmt.Sprintf("owner %q", l.Owner)
	}
	return fmt.Sprintf("%q of %q", subject, l.Owner)
}
