package health

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
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

	mu      sync.Mutex
	ran     bool
	running bool
	targets map[string]*watched
	agenda  agenda     // targets that want to be looked at later
	due     []*watched // targets whose probe waits for a worker, in order
	stats   Stats
}

// watched is a target in the Monitor, guarded by Monitor.mu.
type watched struct {
	Target
	machine    *Machine
	generation int // counts Updates: a result of an older one is dropped
	removed    bool

	probeAt time.Time // start of the next probe; meaningless while busy
	busy    bool      // the probe waits for a worker or is under way
	told    State     // state at the last look, which the mailbox knows

	lookAt time.Time // key in the agenda
	index  int       // place in the agenda, -1 when it is not there
}

// Stats are numbers about a Monitor since it was made.
type Stats struct {
	Targets int // at present
	Probing int // probes under way at present
	Waiting int // probes that are due and have no worker at present

	Probes uint64 // probes completed and taken into account
	// Late counts probes that started after the time at which they were due by
	// more than a tenth of their Interval: there are too few workers, or the
	// process gets too little CPU time. LateBy is the longest delay so far.
	Late   uint64
	LateBy time.Duration
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
	m := &Monitor{
		config:  config,
		workers: semaphore.NewWeighted(int64(config.Workers)),
		wake:    make(chan struct{}, 1),
		mailbox: newMailbox(),
		targets: make(map[string]*watched, len(targets)),
	}
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
	w := &watched{Target: t, machine: &Machine{config: config}, index: -1}
	m.targets[t.Key] = w
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
	w.Target = t
	w.generation++
	if m.running && !w.busy {
		now := time.Now()
		w.probeAt = latest(now, w.machine.Deadline())
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
	w.removed = true
	if w.index >= 0 {
		heap.Remove(&m.agenda, w.index)
	}
	m.mailbox.drop(key)
	return true
}

// Status returns what is known about a target now, and whether there is such a
// target. It is right also when Run hangs, has ended or was never called.
func (m *Monitor) Status(key string) (Status, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.targets[key]
	if w == nil {
		return Status{}, false
	}
	return w.machine.At(time.Now()), true
}

// Snapshot returns what is known about all targets now, by key.
func (m *Monitor) Snapshot() map[string]Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	all := make(map[string]Status, len(m.targets))
	for key, w := range m.targets {
		all[key] = w.machine.At(now)
	}
	return all
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

// Run probes until ctx ends. Then it waits for the probes under way, whose results
// no longer count, and for a running OnEvent, and returns nil. It may be called
// once; a second call returns [ErrRan].
//
// A result that comes long after the probe's timeout, half of the timeout and at
// least 100 ms, counts as a local error whatever it says: a prober that was awake
// would have given up in time, so this process was not. It must not accuse a
// target for that, nor vouch for what it saw before it fell asleep.
func (m *Monitor) Run(ctx context.Context) error {
	m.mu.Lock()
	if m.ran {
		m.mu.Unlock()
		return ErrRan
	}
	m.ran, m.running = true, true
	now := time.Now()
	for _, w := range m.targets {
		m.begin(w, now)
	}
	m.mu.Unlock()

	var all sync.WaitGroup
	if m.config.OnEvent != nil {
		all.Go(func() { m.mailbox.deliver(ctx, m.config.OnEvent) })
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		timer.Reset(m.advance(ctx, &all))
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-timer.C:
		}
	}
	m.mu.Lock()
	m.running = false
	m.mu.Unlock()
	all.Wait()
	return nil
}

// begin plans the first probe of a target.
func (m *Monitor) begin(w *watched, now time.Time) {
	w.probeAt = now
	if !m.config.NoSpread {
		h := fnv.New64a()
		h.Write([]byte(w.Key))
		w.probeAt = now.Add(time.Duration(h.Sum64() % uint64(w.machine.Config().Interval)))
	}
	m.look(w, now)
}

// idle is how long the scheduler sleeps when it has nothing to wait for.
const idle = time.Hour

// advance does all that is due, and returns how long there is nothing to do.
func (m *Monitor) advance(ctx context.Context, all *sync.WaitGroup) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for len(m.agenda) > 0 && !now.Before(m.agenda[0].lookAt) {
		w := m.agenda[0]
		if !w.busy && !now.Before(w.probeAt) {
			w.busy = true
			m.due = append(m.due, w)
		}
		m.look(w, now)
	}
	for len(m.due) > 0 && m.workers.TryAcquire(1) {
		w := m.due[0]
		m.due = m.due[1:]
		if w.removed {
			m.workers.Release(1)
			continue
		}
		m.start(ctx, all, w, now)
	}
	if len(m.agenda) == 0 {
		return idle
	}
	return min(idle, m.agenda[0].lookAt.Sub(now))
}

// look notices a change of w's state, also one by expiry, and plans the next look:
// when its probe is due or its verdict ends, whichever is first.
func (m *Monitor) look(w *watched, now time.Time) {
	status := w.machine.At(now)
	if status.State != w.told {
		if m.config.OnEvent != nil {
			m.mailbox.put(w.Key, w.told, status)
		}
		w.told = status.State
	}

	w.lookAt = status.ValidUntil
	if !w.busy && (w.lookAt.IsZero() || w.probeAt.Before(w.lookAt)) {
		w.lookAt = w.probeAt
	}
	switch {
	case w.lookAt.IsZero(): // busy, and no verdict that could end
		if w.index >= 0 {
			heap.Remove(&m.agenda, w.index)
		}
	case w.index >= 0:
		heap.Fix(&m.agenda, w.index)
	default:
		heap.Push(&m.agenda, w)
	}
	if w.index == 0 {
		m.kick()
	}
}

// kick makes the scheduler look again.
func (m *Monitor) kick() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// start begins a probe on a worker already acquired.
func (m *Monitor) start(ctx context.Context, all *sync.WaitGroup, w *watched, now time.Time) {
	if late := now.Sub(w.probeAt); late > 0 {
		m.stats.LateBy = max(m.stats.LateBy, late)
		if late > w.machine.Config().Interval/10 {
			m.stats.Late++
		}
	}
	m.stats.Probing++
	prober, timeout, generation := w.Prober, w.machine.Config().Timeout, w.generation
	all.Go(func() {
		began := time.Now()
		probe, cancel := context.WithTimeout(ctx, timeout)
		err := prober.Probe(probe)
		cancel()
		m.complete(ctx, w, generation, began, timeout, err)
		m.workers.Release(1)
		m.kick() // a probe may be waiting for the worker
	})
}

// complete takes the result of a probe.
func (m *Monitor) complete(ctx context.Context, w *watched, generation int, began time.Time, timeout time.Duration, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.stats.Probing--
	w.busy = false
	if w.removed || ctx.Err() != nil {
		return // nobody asks, or it failed because we end
	}
	if generation != w.generation {
		w.probeAt = now
		m.look(w, now)
		return
	}
	m.stats.Probes++
	result := Result{Outcome: Classify(err)}
	if err != nil {
		result.Detail = err.Error()
	}
	if took := now.Sub(began); took > timeout+max(timeout/2, 100*time.Millisecond) {
		m.stats.Overrun++
		result = Result{LocalError, fmt.Sprintf("the probe took %v of %v, so this process was not running or its prober ignores the timeout", took, timeout)}
	}
	w.machine.Observe(now, result)
	w.probeAt = w.machine.Deadline()
	m.look(w, now)
}

// agenda is a heap of targets by lookAt, for container/heap.
type agenda []*watched

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].lookAt.Before(a[j].lookAt) }
func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].index, a[j].index = i, j
}

func (a *agenda) Push(x any) {
	w := x.(*watched)
	w.index = len(*a)
	*a = append(*a, w)
}

func (a *agenda) Pop() any {
	old := *a
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*a = old[:len(old)-1]
	w.index = -1
	return w
}
