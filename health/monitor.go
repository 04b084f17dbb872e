package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/lastbeat/lastbeat/internal/wheel"
)

// Errors of a [Monitor].
var (
	// ErrKey: the key is empty, or already taken.
	ErrKey = errors.New("health: bad key")
	// ErrNoTarget: there is no target with this key.
	ErrNoTarget = errors.New("health: no such target")
	// ErrRan: Run was called before; a Monitor runs once.
	ErrRan = errors.New("health: the monitor has already been run: make a new one")
)

// Prober makes one probe of one target. *[TCP], *[TLS], *[HTTP], *[UDP],
// *[ICMP], *[Exec], *[Agent] and [Func] are some.
type Prober interface {
	// Probe returns nil when the target answered as it should. Any error means
	// that it did not, unless [Classify] calls it a local error. Probe must return
	// soon after ctx ends: until it does, its target is not probed again, it
	// occupies one of the Monitor's workers, and Run can't return.
	Probe(ctx context.Context) error
}

// Func is a function that serves as [Prober].
type Func func(ctx context.Context) error

// Probe calls f.
func (f Func) Probe(ctx context.Context) error { return f(ctx) }

// Target is something to probe.
type Target struct {
	Key    string // unique in its Monitor, not empty
	Prober Prober
	Config Config
}

// Event is a change of a target's state as the consumer sees it.
type Event struct {
	Key string // of the target
	Old State  // state in the previous event of this key, at first Unknown
	New Status // never of the same state as Old
}

// MonitorConfig configures a [Monitor]. The zero value is usable.
type MonitorConfig struct {
	// Workers is how many probes run at once. More targets that are due wait
	// their turn; Stats tells how late they start. Default 64, range 1 to 100,000.
	Workers int
	// NoSpread starts the first probe of a target as soon as it is added. By
	// default it waits for a part of Interval that depends on its key, so that
	// the probes of many targets do not fall together.
	NoSpread bool
	// Jitter makes each pause between two probes of a target shorter by a part of up
	// to so many percent, which differs from pause to pause. It keeps observers that
	// began together from staying together. No pause is ever longer than Config says,
	// so that what it says about detection and leases holds. Default 0, range 0 to 50.
	Jitter int
	// Seed changes the order in which targets are spread, and their jitter. Observers
	// of the same targets take different ones, such as a hash of their name; the same
	// seed and keys give the same order. Default 0.
	Seed uint64
	// OnEvent is called for each change of state, by one goroutine, one call
	// after the other. It may take its time: probing goes on, and changes of one
	// key meanwhile become one event, or none if the state is back to what it
	// was. It may call any method of the Monitor except Run. When the Monitor
	// ends, events not yet delivered are dropped. Default nil: no events.
	OnEvent func(Event)
}

// Monitor probes many targets. Its methods are safe for use by many goroutines at
// once. Make one with [NewMonitor]; nothing happens until [Monitor.Run].
type Monitor struct {
	config  MonitorConfig
	workers *semaphore.Weighted
	wake    chan struct{} // capacity 1: the scheduler has something new to look at
	mailbox mailbox

	bootAhead func() (time.Duration, error) // BootAhead, except in tests

	mu      sync.Mutex
	naps    SuspendWatch
	ran     bool
	running bool
	origin  time.Time // time 0 of the agenda: the start of Run
	targets map[string]*watched
	entries []*watched    // by their entry in the agenda
	agenda  *wheel.Wheel  // when to look at targets
	wakeAt  time.Duration // when the scheduler looks at the agenda again
	due     []*watched    // targets whose probe waits for a worker, in order
	stats   Stats
}

// watched is a target in the Monitor, guarded by Monitor.mu. There may be very many
// of them.
type watched struct {
	key     string
	prober  Prober
	machine Machine
	probeAt time.Duration // start of the next probe; meaningless while busy

	entry      wheel.ID
	generation uint32 // counts Updates: a result of an older one is dropped
	count      uint32 // probes planned
	late       uint32 // milliseconds by which the last probe began late
	history    history
	told       State // state at the last look, which the mailbox knows
	busy       bool  // the probe waits for a worker or is under way
	probing    bool  // it is under way
	putOff     bool  // it was put off already, see Monitor.putOff
}

// Stats are numbers about a Monitor since it was made.
type Stats struct {
	Targets int // at present
	Probing int // probes under way at present
	Waiting int // probes that are due and have no worker at present

	Probes uint64 // probes completed and taken into account
	// Late counts probes that started after the time at which they were due by
	// more than a tenth of their Interval and 10 ms: there are too few workers, or
	// the process gets too little CPU time. LateBy is the longest delay so far.
	Late   uint64
	LateBy time.Duration
	// Dropped counts probes that were not made at all, one for each whole Interval
	// that passed after a probe was due. They are not made up for.
	Dropped uint64
	// Overrun counts probes that ended long after their timeout, see Monitor.Run.
	Overrun uint64
}

// NewMonitor returns a Monitor of the given targets, of which there may be none. Its
// error joins all faults of the config and of the targets.
func NewMonitor(config MonitorConfig, targets ...Target) (*Monitor, error) {
	if config.Workers == 0 {
		config.Workers = 64
	}
	var faults []error
	if config.Workers < 1 || config.Workers > 100_000 {
		faults = append(faults, &ConfigError{"", "Workers", config.Workers, "1 to 100000"})
	}
	if config.Jitter < 0 || config.Jitter > 50 {
		faults = append(faults, &ConfigError{"", "Jitter", config.Jitter, "0 to 50 percent"})
	}
	m := &Monitor{
		config:  config,
		agenda:  wheel.New(),
		workers: semaphore.NewWeighted(int64(config.Workers)),
		wake:    make(chan struct{}, 1),
		mailbox: newMailbox(),
		targets: make(map[string]*watched, len(targets)),

		bootAhead: BootAhead,
	}
	m.noticeNap(time.Now()) // naps before do not matter
	for _, t := range targets {
		faults = append(faults, m.Add(t))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return m, nil
}

// Add begins to watch a target, at present or once Run is called. On error nothing
// changes.
func (m *Monitor) Add(t Target) error {
	if t.Key == "" {
		return fmt.Errorf("%w: it is empty: give each target one", ErrKey)
	}
	if t.Prober == nil {
		return &ConfigError{t.Key, "Prober", nil, "one"}
	}
	config, err := t.Config.complete(t.Key)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.targets[t.Key] != nil {
		return fmt.Errorf("%w: %q is already taken: use Update, or Remove it first", ErrKey, t.Key)
	}
	w := &watched{key: t.Key, prober: t.Prober, machine: Machine{config: config}, entry: m.agenda.Add()}
	if int(w.entry) == len(m.entries) {
		m.entries = append(m.entries, nil)
	}
	m.targets[t.Key], m.entries[w.entry] = w, w
	if m.running {
		m.begin(w, time.Now())
	}
	return nil
}

// Update gives the target with t's key another prober and other settings. What is
// known about it stays known until its lease ends, so that a change of settings
// does not take a healthy target away; [Monitor.Remove] and [Monitor.Add] start
// from Unknown. A probe under way is not taken into account. On error nothing
// changes.
func (m *Monitor) Update(t Target) error {
	if t.Prober == nil {
		return &ConfigError{t.Key, "Prober", nil, "one"}
	}
	config, err := t.Config.complete(t.Key)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.targets[t.Key]
	if w == nil {
		return fmt.Errorf("%w: %q", ErrNoTarget, t.Key)
	}
	w.machine.config = config
	w.prober = t.Prober
	w.generation++
	if m.running && !w.busy {
		now := time.Now()
		m.plan(w, now)
		m.look(w, now)
	}
	return nil
}

// Remove ends watching a target, and tells whether there was one. Its events that
// are not yet delivered are dropped; one may be in delivery. Its probe under way
// is not waited for.
func (m *Monitor) Remove(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.targets[key]
	if w == nil {
		return false
	}
	delete(m.targets, key)
	m.entries[w.entry] = nil
	m.agenda.Drop(w.entry)
	m.mailbox.drop(key)
	return true
}

// Status returns what is known about a target now, and whether there is such a
// target. It is right also when Run hangs, has ended or was never called, and on Linux
// when the machine was suspended meanwhile: then what is known ends earlier by that
// time, see [Machine.Suspended].
func (m *Monitor) Status(key string) (Status, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.targets[key]
	if w == nil {
		return Status{}, false
	}
	now := time.Now()
	m.noticeNap(now)
	return w.machine.At(now), true
}

// Snapshot returns what is known about all targets now, by key.
func (m *Monitor) Snapshot() map[string]Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.noticeNap(now)
	all := make(map[string]Status, len(m.targets))
	for key, w := range m.targets {
		all[key] = w.machine.At(now)
	}
	return all
}

// Explain tells a person why a target is in its state now: what [Machine.Explain] says
// of its probes, and what the Monitor knows of their making. It returns nil if there
// is no such target.
func (m *Monitor) Explain(key string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.targets[key]
	if w == nil {
		return nil
	}
	now := time.Now()
	m.noticeNap(now)
	return m.explain(w, now)
}

// Export returns the verdicts in force, by key, for [Monitor.Import] in the process
// that takes over. It is right also when Run has ended.
func (m *Monitor) Export() []Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.noticeNap(now)
	all := make([]Record, 0, len(m.targets))
	for key, w := range m.targets {
		if r, ok := w.machine.record(key, now); ok {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b Record) int { return cmp.Compare(a.Key, b.Key) })
	return all
}

// Import takes over what another Monitor has exported, age ago, and returns for how
// many targets it did. So a restart need not begin with everything unknown, and does
// not begin with everything online either. A verdict goes on to the end that it had,
// never longer than the target's own Lease, and then is Unknown unless a probe of
// this Monitor has renewed it. Not taken over are records that are too old, of keys
// that are no targets here, and of targets of which a probe has completed.
//
// The age is for the caller to know, and must be counted by a clock that goes on
// while the machine sleeps. Whoever does not know it had better not import. The error
// joins a *[ConfigError] for each fault of the records; then nothing has changed.
func (m *Monitor) Import(records []Record, age time.Duration) (int, error) {
	var faults []error
	if age < 0 {
		faults = append(faults, &ConfigError{"", "age", age, "0 or more"})
	}
	seen := make(map[string]bool, len(records))
	for _, r := range records {
		faults = append(faults, r.check())
		if seen[r.Key] {
			faults = append(faults, &ConfigError{r.Key, "Record.Key", fmt.Sprintf("%q", r.Key), "no other record of this key"})
		}
		seen[r.Key] = true
	}
	if err := errors.Join(faults...); err != nil {
		return 0, err
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	loaded := 0
	for _, r := range records {
		w := m.targets[r.Key]
		if w == nil || !w.machine.load(now, r, age) {
			continue
		}
		loaded++
		if m.running {
			m.look(w, now)
		}
	}
	return loaded, nil
}

// Stats returns the Monitor's numbers.
func (m *Monitor) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stats
	s.Targets = len(m.targets)
	s.Waiting = len(m.due)
	return s
}
