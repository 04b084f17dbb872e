package lb

import (
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ErrEmpty is returned by [Balancer.Pick] when no backend may take a connection.
var ErrEmpty = errors.New("lb: no backend may take the connection: wait until one is up, or choose another policy")

// ErrConfig is wrapped by the errors of [New] about the Config.
var ErrConfig = errors.New("lb: bad config")

// Policy says what a balancer does while no backend is Up with a weight above 0.
type Policy uint8

// The policies.
const (
	// PolicyEmpty gives no connection to anybody: Pick returns ErrEmpty.
	PolicyEmpty Policy = iota
	// PolicyPanic uses the backends in state Down whose weight is above 0, in the
	// belief that the judgement is wrong rather than that all of them are dead.
	// Drained backends stay out of it.
	PolicyPanic
)

// Mode tells on which ground backends are used at present.
type Mode uint8

// The modes.
const (
	// ModeNormal: the backends are up.
	ModeNormal Mode = iota
	// ModePanic: none is up and PolicyPanic uses those that are down.
	ModePanic
	// ModeEmpty: no backend may be used. No lease has this mode.
	ModeEmpty
)

// String returns "normal", "panic" or "empty".
func (m Mode) String() string {
	switch m {
	case ModeNormal:
		return "normal"
	case ModePanic:
		return "panic"
	case ModeEmpty:
		return "empty"
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// Config configures a [Balancer]. The zero value is a round robin that refuses
// connections while no backend is up.
type Config struct {
	// Algorithm is the sequence of picks; nil means RoundRobin{}.
	Algorithm Algorithm
	// Policy is used while no backend is up. Default PolicyEmpty.
	Policy Policy
	// Count makes the balancer count leases, see Balancer.Counts. It costs one
	// more atomic addition per Pick. Default off.
	Count bool
	// Rand draws the starting point and roundings. It is used inside New, Set
	// and Update only, and must not be used by others meanwhile. nil means a
	// generator of its own, seeded by crypto/rand; give one only to repeat a run,
	// as equal seeds send a whole fleet to the same backend at once.
	Rand *rand.Rand
}

// Balancer gives connections to backends. Make one with [New]. All methods are
// safe for use by many goroutines at once.
type Balancer[T any] struct {
	algorithm Algorithm
	policy    Policy
	count     bool

	mu   sync.Mutex // serialises writers; Pick never takes it
	rand *rand.Rand // guarded by mu

	current atomic.Pointer[snapshot[T]]
	_       [64]byte // every Pick writes turn; keep the line of current clean

	// turn counts the picks since New. 64 bits and unsigned: at 10^9 picks a
	// second it wraps after 584 years, and then at most one backend is skipped or
	// repeated.
	turn atomic.Uint64
}

// snapshot is what a Pick reads. It never changes after it was published.
type snapshot[T any] struct {
	entries []entry[T] // in the caller's order; eligible or not
	lap     []uint32   // sequence of turns, indexes into entries
	offset  uint64     // added to turn to give the position in the lap
	use     int        // number of entries that occur in lap
	mode    Mode
}

type entry[T any] struct {
	Backend[T]
	mode   Mode
	counts *counters // nil unless Config.Count
}

// counters is shared by the snapshots in which the backend stays. The padding
// keeps two backends from sharing a cache line.
type counters struct {
	open, finished, failed atomic.Uint64
	_                      [64 - 3*8]byte
}

// New returns a balancer over the given backends, of which there may be none. It
// reports all faults at once: an error that wraps ErrConfig for the Config, a
// *[BackendError] for each bad backend.
func New[T any](config Config, backends ...Backend[T]) (*Balancer[T], error) {
	var faults []error
	if config.Policy > PolicyPanic {
		faults = append(faults, fmt.Errorf("%w: policy %d: want PolicyEmpty or PolicyPanic", ErrConfig, config.Policy))
	}
	if err := check(backends); err != nil {
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	b := &Balancer[T]{
		algorithm: config.Algorithm,
		policy:    config.Policy,
		count:     config.Count,
		rand:      config.Rand,
	}
	if b.algorithm == nil {
		b.algorithm = RoundRobin{}
	}
	if b.rand == nil {
		var seed [16]byte
		crand.Read(seed[:]) // never fails, by its documentation
		b.rand = rand.New(rand.NewPCG(binary.LittleEndian.Uint64(seed[:8]), binary.LittleEndian.Uint64(seed[8:])))
	}
	b.current.Store(b.build(&snapshot[T]{}, slices.Clone(backends)))
	return b, nil
}

// Set replaces all backends. On error, which joins a *[BackendError] for each bad
// backend, nothing changes. The position in the lap is kept, and so are the
// counts of backends whose key stays.
//
// Two goroutines that each read, change and Set the list undo each other's work;
// they want [Balancer.Update].
func (b *Balancer[T]) Set(backends ...Backend[T]) error {
	return b.Update(func([]Backend[T]) []Backend[T] { return backends })
}

// Update replaces all backends by what edit makes of a copy of the present ones.
// Updates run one at a time, so that none is lost. A caller with many changes
// makes them in one Update. edit must not call the balancer's Set or Update. The
// errors are those of Set.
func (b *Balancer[T]) Update(edit func(backends []Backend[T]) []Backend[T]) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	// The clone guards the snapshot against a caller that changes its slice later.
	backends := slices.Clone(edit(b.Backends()))
	if err := check(backends); err != nil {
		return err
	}
	b.current.Store(b.build(b.current.Load(), backends))
	return nil
}

// build makes the successor of old. It is called with mu held, or from New.
func (b *Balancer[T]) build(old *snapshot[T], backends []Backend[T]) *snapshot[T] {
	s := &snapshot[T]{entries: make([]entry[T], len(backends))}
	state := Up
	members := eligible(backends, Up)
	if len(members) == 0 && b.policy == PolicyPanic {
		state = Down
		members = eligible(backends, Down)
	}
	switch {
	case len(members) == 0:
		s.mode = ModeEmpty
	case state == Down:
		s.mode = ModePanic
	}

	for i, be := range backends {
		s.entries[i] = entry[T]{Backend: be, mode: s.mode}
	}
	if b.count {
		s.keepCounts(old)
	}

	weights := make([]int, len(members))
	for i, m := range members {
		weights[i] = backends[m].Weight
	}
	s.use = len(members)
	s.lap = b.algorithm.schedule(weights)
	for i, m := range s.lap {
		s.lap[i] = members[m]
	}
	if len(s.lap) > 0 {
		s.offset = b.place(old, uint64(len(s.lap)))
	}
	return s
}

// keepCounts takes the counters of backends whose key stays over from old.
func (s *snapshot[T]) keepCounts(old *snapshot[T]) {
	kept := make(map[string]*counters, len(old.entries))
	for i := range old.entries {
		kept[old.entries[i].Key] = old.entries[i].counts
	}
	for i := range s.entries {
		e := &s.entries[i]
		if e.counts = kept[e.Key]; e.counts == nil {
			e.counts = new(counters)
		}
	}
}

// place returns the offset at which a lap of n turns continues where old's is.
func (b *Balancer[T]) place(old *snapshot[T], n uint64) uint64 {
	turn := b.turn.Load()
	var pos uint64
	if from := uint64(len(old.lap)); from > 0 {
		pos = rescale((turn+old.offset)%from, from, n, b.rand.Uint64N)
	} else {
		// The first lap, or the first after nobody was up. A random start keeps a
		// fleet that comes back together from meeting at one backend.
		pos = b.rand.Uint64N(n)
	}
	return (pos + n - turn%n) % n
}

// eligible returns the indexes of the backends in state want that have a weight.
func eligible[T any](backends []Backend[T], want State) []uint32 {
	var members []uint32
	for i, be := range backends {
		if be.State == want && be.Weight > 0 {
			members = append(members, uint32(i))
		}
	}
	return members
}

// Pick gives the next connection to a backend, or returns [ErrEmpty]. It takes no
// lock, never blocks and does not allocate. The key belongs to the connection,
// such as a hash of its client's address; RoundRobin and WeightedRoundRobin do
// not use it.
func (b *Balancer[T]) Pick(key uint64) (Lease[T], error) {
	s := b.current.Load()
	n := uint64(len(s.lap))
	if n == 0 {
		return Lease[T]{}, ErrEmpty
	}
	return s.lease(s.lap[(b.turn.Add(1)-1+s.offset)%n]), nil
}

// Walk yields leases on all backends that may take the connection, each backend
// once, for a caller who tries the next one when connecting fails. The first is
// what Pick would have given; so is each further one, unless it was already
// tried. A walk over no backends yields nothing. It sees the backends as they
// were when it began. Every lease is the caller's to finish. The key is that of
// Pick.
//
// Unlike Pick it may allocate.
func (b *Balancer[T]) Walk(key uint64) iter.Seq[Lease[T]] {
	return func(yield func(Lease[T]) bool) {
		s := b.current.Load()
		tried := make(map[uint32]struct{}, s.use)
		n := uint64(len(s.lap))
		for len(tried) < s.use {
			// Each try takes a turn of its own. Trying the neighbour of the failed
			// one instead would give the neighbour a double share.
			pos := (b.turn.Add(1) - 1 + s.offset) % n
			for step := range n { // a lap holds all, so it holds an untried one
				i := s.lap[(pos+step)%n]
				if _, seen := tried[i]; seen {
					continue
				}
				tried[i] = struct{}{}
				if !yield(s.lease(i)) {
					return
				}
				break
			}
		}
	}
}

func (s *snapshot[T]) lease(i uint32) Lease[T] {
	e := &s.entries[i]
	if e.counts != nil {
		e.counts.open.Add(1)
	}
	return Lease[T]{entry: e, counts: e.counts}
}

// Backends returns a copy of the present backends, in the order in which they were
// set.
func (b *Balancer[T]) Backends() []Backend[T] {
	s := b.current.Load()
	out := make([]Backend[T], len(s.entries))
	for i := range s.entries {
		out[i] = s.entries[i].Backend
	}
	return out
}

// Mode tells on which ground Pick gives backends at present.
func (b *Balancer[T]) Mode() Mode { return b.current.Load().mode }

// Counts are numbers of leases of one backend since its key was last added.
type Counts struct {
	Open     uint64 // given and not yet finished by Done
	Finished uint64 // finished by Done
	Failed   uint64 // those of Finished whose Result said Failed
}

// Counts returns the numbers of the backend with the given key. It returns false
// when there is no such backend or Config.Count is off. The three numbers are read
// one after the other while others may count on.
func (b *Balancer[T]) Counts(key string) (Counts, bool) {
	s := b.current.Load()
	for i := range s.entries {
		if e := &s.entries[i]; e.Key == key && e.counts != nil {
			return Counts{e.counts.open.Load(), e.counts.finished.Load(), e.counts.failed.Load()}, true
		}
	}
	return Counts{}, false
}

// Lease is the permission to use a backend for one connection. It stays usable
// when the backend is removed meanwhile. The zero Lease is what Pick returns with
// an error: its Value, Key and Mode are zero and its Done does nothing.
type Lease[T any] struct {
	entry  *entry[T]
	counts *counters // nil when not counted, or done
}

// Value returns the backend's value.
func (l Lease[T]) Value() T {
	if l.entry == nil {
		var zero T
		return zero
	}
	return l.entry.Value
}

// Key returns the backend's key.
func (l Lease[T]) Key() string {
	if l.entry == nil {
		return ""
	}
	return l.entry.Key
}

// Mode tells on which ground the backend was given: ModeNormal or ModePanic.
func (l Lease[T]) Mode() Mode {
	if l.entry == nil {
		return ModeNormal
	}
	return l.entry.mode
}

// Result is how a connection went.
type Result struct {
	// Failed is set when the backend is to blame: it refused, timed out, broke
	// off. A client that left early is not a failure.
	Failed bool
}

// Done says that the connection ended, at now and with which result. It counts
// once per lease variable; do not copy a lease and finish both. Algorithms that
// weigh neither load nor latency, as all present ones, ignore now; callers give
// it all the same, to be able to change the algorithm.
func (l *Lease[T]) Done(now time.Time, result Result) {
	c := l.counts
	if c == nil {
		return
	}
	l.counts = nil
	c.finished.Add(1)
	if result.Failed {
		c.failed.Add(1)
	}
	c.open.Add(^uint64(0))
}
