package health

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// QuorumConfig configures a [Quorum]. Voters has no default.
type QuorumConfig struct {
	// Voters names all that are entitled to vote, alive or not: 1 to 1000, none
	// empty, none twice.
	Voters []string
	// Single permits a list of one voter, whose word is then the verdict.
	Single bool
	// Settle is how long a majority must hold without a gap before it counts.
	// Default 1 s, range 1 ms to 24 h.
	Settle time.Duration
}

// Quorum tells which subjects are down by the votes of several observers. It is
// pure like a [Machine], so it must not be used by two goroutines at once. Make one
// with [NewQuorum].
//
// A subject is Offline when more than half of all entitled voters have said so for
// Settle. Who is missing, whose vote has ended, and who doubts itself counts as not
// down, so with an even number of voters half of them are not enough, and a
// minority that is cut off never accuses the majority. A Quorum says Offline or
// Unknown and never Online: that is for the one who probes.
type Quorum struct {
	settle  time.Duration
	voters  []string           // sorted
	stores  map[string]*Leases // by voter
	ballots map[string]*ballot // by subject
}

// ballot tells of the majority against one subject, as of the last input. Between
// two inputs votes only end, so that the majority holds from since to until exactly.
type ballot struct {
	since, until time.Time // zero without a majority
	ended        time.Time // end of the last Offline
}

// Vote is what one voter says about a subject.
type Vote struct {
	Voter string // who says it
	Down  bool   // counts as down
	// Status is the voter's, Offline if it counts as down. Otherwise its Reason
	// says why not: [Expired], [OwnerEnded] for a voter that is silent or doubts
	// itself, [NeverProbed] for one that never voted, and so on.
	Status Status
}

// Verdict is what the voters say about a subject together.
type Verdict struct {
	Status
	Down  int    // how many say down
	Need  int    // how many are needed: more than half of all
	Votes []Vote // of all entitled voters, by name
}

// NewQuorum returns a Quorum of the given voters. Its error joins a *[ConfigError]
// for each fault.
func NewQuorum(config QuorumConfig) (*Quorum, error) {
	var faults []error
	fault := func(field string, value any, want string) {
		faults = append(faults, &ConfigError{"", field, value, want})
	}
	if config.Settle == 0 {
		config.Settle = time.Second
	}
	if config.Settle < time.Millisecond || config.Settle > maxInterval {
		fault("Settle", config.Settle, fmt.Sprintf("1ms to %v", maxInterval))
	}
	q := &Quorum{
		settle:  config.Settle,
		voters:  slices.Sorted(slices.Values(config.Voters)),
		stores:  make(map[string]*Leases, len(config.Voters)),
		ballots: map[string]*ballot{},
	}
	for i, v := range q.voters {
		switch {
		case v == "":
			fault("Voters", fmt.Sprintf("%q", config.Voters), "a name for each")
		case i > 0 && v == q.voters[i-1]:
			fault("Voters", fmt.Sprintf("%q", config.Voters), fmt.Sprintf("each voter once, but %q is there again", v))
		}
		store, err := NewLeases(LeasesConfig{})
		if err != nil {
			return nil, err
		}
		q.stores[v] = store
	}
	switch n := len(q.voters); {
	case n == 0 || n > 1000:
		fault("Voters", fmt.Sprintf("a list of %d", n), "1 to 1000 voters")
	case n == 1 && !config.Single:
		fault("Voters", fmt.Sprintf("%q", config.Voters), "two or more voters, or Single for the word of one")
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return q, nil
}

// need is the least number that is more than half.
func (q *Quorum) need() int { return len(q.voters)/2 + 1 }

// Report takes the report of a voter, its Owner, that arrived at now: a vote for
// down if its State is Offline. Error is what a voter reports that could not look,
// and Unknown one that has not decided. With an empty Subject it is about the voter
// itself, as in [Leases]: from its first heartbeat on its votes count only while
// the last heartbeat holds and says Online. Term has no meaning here.
//
// Each voter has one vote, its last. Errors match [ErrReport], [ErrPermission] if
// Owner is not entitled, [ErrFenced] or [ErrStale]; then nothing changes.
func (q *Quorum) Report(now time.Time, r Report) error {
	r.Term = 0
	if err := r.Lease.check(r.Subject); err != nil {
		return err
	}
	store := q.stores[r.Owner]
	if store == nil {
		return fmt.Errorf("%w: %s: the owner is not among the voters %q", ErrPermission, r.Lease.of(r.Subject), q.voters)
	}
	known := store.owners[r.Owner]
	wide := r.Subject == "" || known != nil && r.Epoch > known.epoch // about all its votes
	if err := store.Apply(now, r); err != nil {
		return err
	}
	if r.Subject != "" && q.ballots[r.Subject] == nil {
		q.ballots[r.Subject] = &ballot{}
	}
	for subject, b := range q.ballots {
		if wide || subject == r.Subject {
			q.count(now, subject, b)
		}
	}
	return nil
}

// count finds the majority anew, after an input at now.
func (q *Quorum) count(now time.Time, subject string, b *ballot) {
	if !b.since.IsZero() && !now.Before(b.until) {
		q.lapse(b, b.until)
	}
	var ends []time.Time
	for _, store := range q.stores {
		if s, _ := store.At(now, subject); s.State == Offline {
			ends = append(ends, s.ValidUntil)
		}
	}
	if len(ends) < q.need() {
		q.lapse(b, now)
		return
	}
	if b.since.IsZero() {
		b.since = now
	}
	slices.SortFunc(ends, time.Time.Compare)
	b.until = ends[len(ends)-q.need()] // then one less than needed is left
}

// lapse ends the majority if there is one.
func (q *Quorum) lapse(b *ballot, when time.Time) {
	if !b.since.IsZero() && when.After(b.since.Add(q.settle)) {
		b.ended = when
	}
	b.since, b.until = time.Time{}, time.Time{}
}

// At returns the verdict about a subject now.
func (q *Quorum) At(now time.Time, subject string) Verdict {
	v := Verdict{Need: q.need(), Votes: make([]Vote, 0, len(q.voters))}
	for _, voter := range q.voters {
		s, _ := q.stores[voter].At(now, subject)
		v.Votes = append(v.Votes, Vote{voter, s.State == Offline, s})
		if s.State == Offline {
			v.Down++
		}
	}
	v.Reason = Reason{NoMajority, fmt.Sprintf("%d of %d voters say down, %d needed", v.Down, len(q.voters), v.Need)}
	b := q.ballots[subject]
	if b == nil {
		return v
	}
	v.Since = b.ended
	if b.since.IsZero() {
		return v
	}
	settled := b.since.Add(q.settle)
	switch {
	case !now.Before(b.until):
		if b.until.After(settled) {
			v.Since = b.until
		}
	case now.Before(settled):
		v.Reason.Code = Settling
	default:
		v.State, v.Since, v.ValidUntil, v.Reason.Code = Offline, settled, b.until, Majority
	}
	return v
}

// Deadline returns when a verdict will change next after now if nobody reports;
// zero if none will. It looks at all subjects.
func (q *Quorum) Deadline(now time.Time) time.Time {
	var first time.Time
	for _, b := range q.ballots {
		next := b.since.Add(q.settle)
		if !next.Before(b.until) {
			continue // there is no majority, or it will not settle
		}
		if !now.Before(next) {
			next = b.until
		}
		if now.Before(next) && (first.IsZero() || next.Before(first)) {
			first = next
		}
	}
	return first
}

// Suspended tells that this machine slept for gap, see [Leases.Suspended]. Votes end
// earlier by it, and what majority is left has to settle again.
func (q *Quorum) Suspended(now time.Time, gap time.Duration) {
	if gap <= 0 {
		return
	}
	for _, store := range q.stores {
		store.Suspended(now, gap)
	}
	for subject, b := range q.ballots {
		q.lapse(b, earliest(now, b.until))
		q.count(now, subject, b)
	}
}

// Forget removes a subject with all votes about it, and tells whether there was one.
func (q *Quorum) Forget(subject string) bool {
	_, there := q.ballots[subject]
	delete(q.ballots, subject)
	for _, store := range q.stores {
		store.Forget(subject)
	}
	return there
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
