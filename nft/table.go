package nft

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Table is the one table that an owner has in the network namespace of the
// calling thread. Its methods may be called from any goroutine; they run one at
// a time. They block for as long as the kernel takes, starting no goroutine.
//
// Apply, Renew, Verify, Counters and Remove need CAP_NET_ADMIN in the user
// namespace that owns the network namespace, and Linux. A context that has ended
// stops them before the next transaction, not within one; its deadline, or else
// half a minute, bounds the wait for the kernel's answers.
type Table struct {
	opts Options
	k    kernel
	now  func() time.Time

	mu       sync.Mutex
	cfg      Config // a copy of what was applied
	want     layout
	applied  bool
	owned    bool  // the kernel's table of our name is known to be ours
	last     state // what was read last
	replaces bool  // this kernel extends no lifetime: replace elements
	tally    tally

	statusMu sync.Mutex // held for moments only, so that Status waits for no kernel
	verdict  verdict
}

// kernel is what a Table needs from the machine. It is an interface because the
// kernels differ: the tests have one that behaves like those before Linux 6.12.
type kernel interface {
	// read returns the content of our table.
	read(ctx context.Context, want layout) (state, error)
	// capacity returns how many bytes of a transaction of the given size can be
	// sent at once.
	capacity(ctx context.Context, size int) (int, error)
	// commit runs the steps as one transaction. An error that matches
	// errUncertain leaves open whether it was committed, one that matches
	// errStale means that the kernel's content was not as read.
	commit(ctx context.Context, table string, ops []op) error
	// chains lists the base chains of other tables.
	chains(ctx context.Context, table string) ([]baseChain, error)
}

var (
	errUncertain = errors.New("the kernel's answers were lost")
	errStale     = errors.New("the table changed meanwhile")
)

// New validates the options and returns all faults joined. It touches nothing.
func New(opts Options) (*Table, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	return &Table{opts: opts, k: newKernel(), now: time.Now, tally: tally{}}, nil
}

// RenewEvery is how often the owner calls Renew: a third of the timeout, so that
// two calls may be missed.
func (t *Table) RenewEvery() time.Duration { return t.opts.Timeout / 3 }

// Result tells what Apply did.
type Result struct {
	// Rebuilt: table, chains and rules were made anew, because they were missing
	// or not as they should be. Else only elements changed.
	Rebuilt bool
	// Changed is how many elements were added, replaced or removed; each
	// redirect has four. Elements that were right are renewed and not counted.
	Changed int
	// Atomic: all was one transaction. Without the privilege to enlarge socket
	// buffers, as in a user namespace, a large change goes in several, and in
	// between some redirects are as before and others already as wanted.
	Atomic bool
	// Conflicts are chains of other tables that may get in the way. When they
	// could not be listed, ConflictsErr says why; Apply does not fail for it.
	Conflicts    []Conflict
	ConflictsErr error
}

// Apply makes the kernel's table what cfg says and reads it back. It changes
// only what differs: repeated, it renews and keeps all counters; after somebody
// else has changed the table, it repairs it. When nothing could be written the
// error tells and the old state stays whole, unless Result.Atomic would be false.
//
// A structural repair replaces the table in one transaction. Open connections
// survive that, and chains of other tables at the same priority change places
// with ours.
//
// It fails with an error that matches [ErrConfig] or [ErrForeign], with a
// [MismatchError] when the kernel does not keep what was written, or with the
// kernel's refusal.
func (t *Table) Apply(ctx context.Context, cfg Config) (Result, error) {
	if err := cfg.Validate(); err != nil {
		return Result{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	cfg.Redirects = append([]Redirect(nil), cfg.Redirects...)
	want := newLayout(t.opts, cfg)
	// A table that an earlier process left has counted already; that is kept.
	t.tally.add(want)
	res, start, have, err := t.reconcile(ctx, want, t.replaces)
	if err != nil {
		t.tally.keep(t.want)
		return res, err
	}
	t.tally.keep(want)
	t.cfg, t.want, t.applied = cfg, want, true
	t.settle(start, have, Applied)

	chains, err := t.k.chains(ctx, t.opts.Table)
	res.Conflicts, res.ConflictsErr = findConflicts(t.opts.Priority, chains), err
	return res, nil
}

// attempts bounds how often a change is planned again because another writer,
// or an expiring element, came between reading and writing.
const attempts = 3

// reconcile brings the kernel to want and returns the state read back and an
// instant before the transaction that renewed it.
func (t *Table) reconcile(ctx context.Context, want layout, replaceSame bool) (res Result, start time.Time, have state, err error) {
	for range attempts {
		if have, err = t.readTwice(ctx, want); err != nil {
			return res, start, have, err
		}
		if !t.owned && have.present && have.foreign(want) {
			return res, start, have, fmt.Errorf("%w (%q)", ErrForeign, t.opts.Table)
		}
		p := newPlan(t.opts, want, have, replaceSame)
		res.Rebuilt, res.Changed = p.rebuild, p.changed
		start = t.now()
		res.Atomic, err = t.commit(ctx, p.ops)
		switch {
		case errors.Is(err, errStale):
			continue
		case err != nil && !errors.Is(err, errUncertain):
			return res, start, have, err
		}
		t.owned = true
		// Whether a commit reported success or lost its answers, only the
		// kernel's content counts.
		if have, err = t.read(ctx, want); err != nil {
			return res, start, have, err
		}
		diffs := diff(t.opts, want, have)
		if len(diffs) == 0 {
			return res, start, have, nil
		}
		err = &MismatchError{t.opts.Table, diffs}
	}
	return res, start, have, err
}

// readTwice reads again when something seems wrong with the structure: a listing
// that another writer's commit interrupts can miss things that are there, and
// making base chains anew without need would change their place among others.
func (t *Table) readTwice(ctx context.Context, want layout) (state, error) {
	have, err := t.read(ctx, want)
	if err == nil && len(structureDiff(want, have)) > 0 {
		have, err = t.read(ctx, want)
	}
	return have, err
}

// Renew starts the lifetime of every redirect again and reads the whole table
// back. The owner calls it every [Table.RenewEvery]; when it stops, the kernel
// stops redirecting by itself. It brings back elements that have expired, but
// changes nothing else.
//
// It fails with [ErrNotApplied], or with a [MismatchError] when the kernel's
// content is not what was applied; Apply repairs that.
func (t *Table) Renew(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.applied {
		return ErrNotApplied
	}
	if t.replaces {
		return t.renewByReplacing(ctx)
	}
	start, ops := t.now(), renewal(t.opts, t.want, t.last)
	_, sendErr := t.commit(ctx, ops)
	if sendErr != nil && !errors.Is(sendErr, errUncertain) && !errors.Is(sendErr, errStale) {
		return sendErr
	}
	have, diffs, err := t.check(ctx)
	switch {
	case err != nil:
		return err
	case len(diffs) > 0:
		return t.mismatch(diffs)
	case errors.Is(sendErr, errStale):
		return sendErr
	case !extended(t.opts, ops, have):
		// Kernels before about 6.12 take a repeated element and leave the old
		// one as it is.
		if err := t.renewByReplacing(ctx); err != nil {
			return err
		}
		t.replaces = sendErr == nil
		return nil
	}
	t.settle(start, have, Renewed)
	return nil
}

func (t *Table) renewByReplacing(ctx context.Context) error {
	have, diffs, err := t.check(ctx)
	if err != nil {
		return err
	}
	if len(structureDiff(t.want, have)) > 0 {
		return t.mismatch(diffs)
	}
	_, start, have, err := t.reconcile(ctx, t.want, true)
	if err != nil {
		return err
	}
	t.settle(start, have, Renewed)
	return nil
}

// Verify compares the kernel's content with what was applied: the table and its
// flags, every chain with its hook, priority and policy, every rule, every
// element with its value and timeout, and that there is none more. It is nil
// when all is as applied, and a [MismatchError] that names what differs
// otherwise. It changes nothing and extends no lifetime.
func (t *Table) Verify(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.applied {
		return ErrNotApplied
	}
	start := t.now()
	have, diffs, err := t.check(ctx)
	if err != nil {
		return err
	}
	if len(diffs) > 0 {
		return t.mismatch(diffs)
	}
	t.settle(start, have, Verified)
	return nil
}

// check reads and compares. A difference must show twice, for the reason that
// readTwice gives.
func (t *Table) check(ctx context.Context) (have state, diffs []Difference, err error) {
	for range 2 {
		if have, err = t.read(ctx, t.want); err != nil {
			return have, nil, err
		}
		if diffs = diff(t.opts, t.want, have); len(diffs) == 0 {
			break
		}
	}
	return have, diffs, nil
}

// Counters returns the counters of the applied redirects, in the order of
// [Config.Redirects]. It fails with [ErrNotApplied].
func (t *Table) Counters(ctx context.Context) ([]Counters, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.applied {
		return nil, ErrNotApplied
	}
	if _, err := t.read(ctx, t.want); err != nil {
		return nil, err
	}
	return t.tally.counters(t.cfg.Redirects), nil
}

// Remove deletes the table and all that is in it, and checks that it is gone.
// It is no error when it was gone already. Where no other table keeps
// connection tracking and rewriting alive, connections that were redirected are
// reset; to let them end first, Apply an empty [Config] and Remove later.
//
// It fails with an error that matches [ErrForeign], leaving that table alone.
func (t *Table) Remove(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	want := newLayout(t.opts, Config{})
	have, err := t.k.read(ctx, want)
	if err != nil {
		return err
	}
	if !t.owned && have.present && have.foreign(want) {
		return fmt.Errorf("%w (%q)", ErrForeign, t.opts.Table)
	}
	start := t.now()
	// Deleting what is not there fails; adding first makes it idempotent.
	err = t.k.commit(ctx, t.opts.Table, []op{{addTable: true}, {delTable: true}})
	if err != nil && !errors.Is(err, errUncertain) {
		return err
	}
	if have, err = t.k.read(ctx, want); err != nil {
		return err
	}
	if have.present {
		return &MismatchError{t.opts.Table, []Difference{{Object: "table", Got: "present after it was deleted"}}}
	}
	t.applied, t.owned, t.tally = false, false, tally{}
	t.cfg, t.want, t.last = Config{}, layout{}, state{}
	t.decide(start, Removed, start.Add(t.opts.Timeout), Withdrawn)
	return nil
}

// Status returns the last verdict, or Unknown when it has not been renewed in
// time. It asks nobody.
func (t *Table) Status() Status {
	t.statusMu.Lock()
	defer t.statusMu.Unlock()
	return t.verdict.at(t.now())
}

func (t *Table) read(ctx context.Context, want layout) (state, error) {
	have, err := t.k.read(ctx, want)
	if err == nil {
		t.last = have
		t.tally.observe(have)
	}
	return have, err
}

// commit runs the steps in as few transactions as the socket takes.
func (t *Table) commit(ctx context.Context, ops []op) (atomic bool, err error) {
	if len(ops) == 0 {
		return true, nil
	}
	limit, err := t.k.capacity(ctx, sizeOf(ops))
	if err != nil {
		return false, err
	}
	parts := split(ops, limit)
	var uncertain error
	for _, part := range parts {
		err := t.k.commit(ctx, t.opts.Table, part)
		if errors.Is(err, errUncertain) {
			uncertain = err
			continue
		}
		if err != nil {
			return len(parts) == 1, err
		}
		t.tally.restarted(part)
	}
	return len(parts) == 1, uncertain
}

// settle records that the kernel held what was applied. The lifetimes that were
// read bound the verdict from an instant before they were read, so that it never
// outlives them.
func (t *Table) settle(start time.Time, have state, why Reason) {
	left, ok := have.firstExpiry()
	if !ok || left > t.opts.Timeout {
		left = t.opts.Timeout
	}
	t.decide(start, Installed, start.Add(left), why)
}

func (t *Table) decide(now time.Time, s State, until time.Time, why Reason) {
	t.statusMu.Lock()
	defer t.statusMu.Unlock()
	t.verdict.set(now, s, until, why)
}

func (t *Table) mismatch(diffs []Difference) error {
	now := t.now()
	t.decide(now, Faulty, now.Add(t.opts.Timeout), Mismatch)
	return &MismatchError{t.opts.Table, diffs}
}
