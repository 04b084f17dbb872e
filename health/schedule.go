package health

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"sync"
	"time"
)

// Run probes until ctx ends. Then it waits for the probes under way, whose results
// no longer count, and for a running OnEvent, and returns nil. It may be called
// once; a second call returns [ErrRan].
//
// A result that comes long after the probe's timeout, half of the timeout and at
// least 100 ms, counts as a local error whatever it says: a prober that was awake
// would have given up in time, so this process was not. It must not accuse a
// target for that, nor vouch for what it saw before it fell asleep.
//
// Targets whose probe is late by a whole Interval, because the process stood still,
// are not all probed at once afterwards. Each waits for a part of its FastInterval
// that depends on its key, as at the start; see Stats.Dropped.
func (m *Monitor) Run(ctx context.Context) error {
	m.mu.Lock()
	if m.ran {
		m.mu.Unlock()
		return ErrRan
	}
	m.launch(time.Now())
	m.mu.Unlock()

	var all sync.WaitGroup
	if m.config.OnEvent != nil {
		all.Go(func() { m.mailbox.deliver(ctx, m.config.OnEvent) })
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var wait time.Duration
	var start []probe
	for ctx.Err() == nil {
		wait, start = m.advance(time.Now(), start[:0])
		for _, p := range start {
			all.Go(func() { m.work(ctx, p) })
		}
		timer.Reset(wait)
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

// launch plans the first probes.
func (m *Monitor) launch(now time.Time) {
	m.ran, m.running, m.origin = true, true, now
	for _, w := range m.targets {
		m.begin(w, now)
	}
}

// begin plans the first probe of a target.
func (m *Monitor) begin(w *watched, now time.Time) {
	w.probeAt = now.Sub(m.origin)
	if !m.config.NoSpread {
		w.probeAt += m.part(w, w.machine.config.Interval)
	}
	m.look(w, now)
}

// plan plans the next probe of a target.
func (m *Monitor) plan(w *watched, now time.Time) {
	w.count++
	pause := max(0, w.machine.Deadline().Sub(now))
	pause -= m.part(w, pause*time.Duration(m.config.Jitter)/100)
	w.probeAt = now.Sub(m.origin) + pause
}

// part returns a part of d, below d unless that is 0. It depends on the key, on the
// seed and on how many probes there were, and is spread evenly.
func (m *Monitor) part(w *watched, d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(w.key))
	// The last steps of the generator SplitMix64, as FNV alone would give similar
	// results for similar keys.
	x := h.Sum64() ^ m.config.Seed + uint64(w.count)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return time.Duration(x % uint64(d))
}

const (
	// idle is how long the scheduler sleeps when it has nothing to wait for.
	idle = time.Hour
	// pace is how long it sleeps at least: what is due within a millisecond is done at
	// once.
	pace = time.Millisecond
	// crowd is of how many targets due at once on it sleeps for crowdPace. To wake up
	// costs more than to start a probe.
	crowd     = 8
	crowdPace = 5 * time.Millisecond
)

// probe is a probe that is to be made on a worker already acquired.
type probe struct {
	w          *watched
	prober     Prober
	timeout    time.Duration
	generation uint32
}

// advance does all that is due, except the probes, which it appends to start, and
// returns how long there is nothing to do.
func (m *Monitor) advance(now time.Time, start []probe) (time.Duration, []probe) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := now.Sub(m.origin)
	m.wakeAt = at // we are awake
	m.noticeNap(now)
	looks := 0
	for entry, ok := m.agenda.Pop(at); ok; entry, ok = m.agenda.Pop(at) {
		w := m.entries[entry]
		if !w.busy && at >= w.probeAt && !m.putOff(w, at) {
			w.busy = true
			m.due = append(m.due, w)
		}
		m.look(w, now)
		looks++
	}
	for len(m.due) > 0 && m.workers.TryAcquire(1) {
		p, ok := m.next(at)
		if !ok {
			m.workers.Release(1)
			break
		}
		start = append(start, p)
	}
	least := pace
	if looks >= crowd {
		least = crowdPace
	}
	wait := idle
	if next, any := m.agenda.Next(); any {
		wait = min(idle, max(least, next-at))
	}
	m.wakeAt = at + wait
	return wait, start
}

// standstill is how late the scheduler must be at least to say that the process stood
// still.
const standstill = 100 * time.Millisecond

// noticeNap tells all machines if this machine was suspended since the last call.
// Where that can't be found out it does nothing.
func (m *Monitor) noticeNap(now time.Time) {
	ahead, err := m.bootAhead()
	if err != nil {
		return
	}
	gap := m.naps.Observe(ahead)
	if gap == 0 {
		return
	}
	for _, w := range m.targets {
		w.machine.Suspended(now, gap)
		if m.running {
			m.look(w, now)
		}
	}
}

// putOff plans a probe anew that is late by a whole interval, and tells whether it
// did. All others are as late, since nothing but a standstill of this process makes
// the agenda late: at once they would be a burst, and stay in step from then on. No
// probe is put off twice, so that a process that stands still all the time makes some.
func (m *Monitor) putOff(w *watched, at time.Duration) bool {
	late, interval := at-w.probeAt, w.machine.config.Interval
	if late < max(interval, standstill) || w.putOff || m.config.NoSpread {
		w.putOff = false
		return false
	}
	m.stats.Dropped += uint64(late / interval)
	m.stats.LateBy = max(m.stats.LateBy, late)
	w.count++
	w.probeAt = at + m.part(w, w.machine.config.FastInterval)
	w.putOff = true
	return true
}

// removed tells whether w is a target no more.
func (m *Monitor) removed(w *watched) bool { return m.entries[w.entry] != w }

// look notices a change of w's state, also one by expiry, and plans the next look:
// when its probe is due or its verdict ends, whichever is first.
func (m *Monitor) look(w *watched, now time.Time) {
	status := w.machine.At(now)
	if status.State != w.told {
		if m.config.OnEvent != nil {
			m.mailbox.put(w.key, w.told, status)
		}
		w.told = status.State
	}

	lookAt, set := w.probeAt, !w.busy
	if !status.ValidUntil.IsZero() {
		if end := status.ValidUntil.Sub(m.origin); !set || end < lookAt {
			lookAt, set = end, true
		}
	}
	if !set { // busy, and no verdict that could end
		m.agenda.Cancel(w.entry)
		return
	}
	m.agenda.Set(w.entry, lookAt)
	if lookAt < m.wakeAt {
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

// next takes the probe that has waited longest for a worker.
func (m *Monitor) next(at time.Duration) (probe, bool) {
	for len(m.due) > 0 {
		w := m.due[0]
		m.due = m.due[1:]
		if m.removed(w) {
			continue
		}
		c := &w.machine.config
		late := max(0, at-w.probeAt)
		m.stats.LateBy = max(m.stats.LateBy, late)
		if late > c.Interval/10+2*crowdPace {
			m.stats.Late++
		}
		m.stats.Dropped += uint64(late / c.Interval)
		m.stats.Probing++
		w.probing = true
		w.late = uint32(min(late.Milliseconds(), math.MaxUint32))
		return probe{w, w.prober, c.Timeout, w.generation}, true
	}
	return probe{}, false
}

// work makes a probe, and those that wait for a worker meanwhile.
func (m *Monitor) work(ctx context.Context, p probe) {
	for again := true; again; {
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, p.timeout)
		err := p.prober.Probe(limited)
		cancel()
		p, again = m.complete(ctx, p, began, err)
	}
}

// complete takes the result of a probe, and returns another one for the same worker
// if any waits.
func (m *Monitor) complete(ctx context.Context, p probe, began time.Time, err error) (probe, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.stats.Probing--
	p.w.busy, p.w.probing = false, false
	if ctx.Err() != nil { // it failed because we end
		m.workers.Release(1)
		return probe{}, false
	}
	if err != nil {
		m.noticeNap(now) // it may be the network that is not awake yet
	}
	m.take(p, began, now, err)
	following, ok := m.next(now.Sub(m.origin))
	if !ok {
		m.workers.Release(1)
	}
	return following, ok
}

// take takes the result of a probe into account, unless nobody asks any more.
func (m *Monitor) take(p probe, began, now time.Time, err error) {
	w := p.w
	if m.removed(w) {
		return
	}
	if p.generation != w.generation {
		w.probeAt = now.Sub(m.origin)
		m.look(w, now)
		return
	}
	m.stats.Probes++
	result := Result{Outcome: Classify(err)}
	if err != nil {
		result.Detail = err.Error()
	}
	if took := now.Sub(began); took > p.timeout+max(p.timeout/2, 100*time.Millisecond) {
		m.stats.Overrun++
		result = Result{LocalError, fmt.Sprintf("the probe took %v of %v, so this process was not running or its prober ignores the timeout", took, p.timeout)}
	}
	w.machine.Observe(now, result)
	w.history = w.history.add(result.Outcome)
	m.plan(w, now)
	m.look(w, now)
}
