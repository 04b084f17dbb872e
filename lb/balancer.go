package lb

import (
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// ErrEmpty is returned by [Balancer.Pick] when no backend may take a connection.
var ErrEmpty = errors.New("lb: no backend may take the connection: wait until one is up, or choose another policy")

// ErrAllFull is returned by [Balancer.Pick] when every backend that may take the
// connection has as many open leases as its MaxConns allows.
var ErrAllFull = errors.New("lb: every backend is full: wait until a connection ends, or raise MaxConns")

// ErrConfig is wrapped by the errors of [New] about the Config.
var ErrConfig = errors.New("lb: bad config")

// Config configures a [Balancer]. The zero value is a round robin that refuses
// connections while no backend is up.
type Config struct {
	// Algorithm is the sequence of picks; nil means RoundRobin{}.
	Algorithm Algorithm
	// Policy is used while no backend is up. Default PolicyEmpty.
	Policy Policy
	// FailStaticWindow is how long before the last backend went down another one
	// may have done so and still belong to the last good set. Checks that fail
	// for a common reason seldom do so at once, and without a window everything
	// goes to the backend whose check happened to be the last. It needs Advance
	// before each Set. Range 0, the default, to 24 h.
	FailStaticWindow time.Duration
	// Count makes the balancer count leases, see Balancer.Counts. It costs one
	// more atomic addition per Pick. Default off.
	Count bool
	// HashSeed is the seed of the algorithms that map keys to backends: Maglev,
	// Ring, SourceHash, Rendezvous. Balancers that share it, the algorithm and the
	// backends send a key to the same backend, whatever the order of their
	// lists; so a fleet shares it. Any value is good, also 0.
	HashSeed uint64
	// SlowStart is the window in which a backend that was Down, or is new, rises
	// from a tenth of its weight and of its MaxConns to all of it, in ten steps.
	// It needs Advance. A backend that comes while no other is in use starts
	// whole. Range 1 s to 24 h, default 0, which is off.
	//
	// Meanwhile RoundRobin follows the rising weights, Random too, and Shuffle
	// draws as Random does; Static knows no weights. Laps are up to ten times as
	// long, and the algorithms by key move keys to the backend with each step.
	SlowStart time.Duration
	// Rand draws what must not be equal in a fleet: the starting point, the seed
	// of random picks, roundings. It is used by whatever builds a snapshot (New,
	// Set, Update, Advance, NewSticky), never by picks, and must not be used by
	// others meanwhile. nil means a generator of its own, seeded by crypto/rand;
	// give one only to repeat a run, as equal seeds send a whole fleet to the same
	// backend at once.
	Rand *rand.Rand
}

// Balancer gives connections to backends. Make one with [New]. All methods are
// safe for use by many goroutines at once.
type Balancer[T any] struct {
	algorithm Algorithm
	traits    traits
	policy    Policy
	slow      time.Duration
	window    time.Duration
	private   uint64 // seeds, see group
	common    uint64
	shared    shared

	mu         sync.Mutex // serialises writers; Pick never takes it
	rand       *rand.Rand // this and the rest up to current are guarded by mu
	begin, now time.Time  // of the first and the latest Advance, zero before
	identify   bool       // there is a Sticky
	ids        uint32     // the last one given

	current atomic.Pointer[snapshot[T]]
	turn    turn
}

// turn is a counter alone on its cache line: every Pick writes it, and others read
// what stands beside it.
type turn struct {
	_ [64]byte
	atomic.Uint64
	_ [56]byte
}

// New returns a balancer over the given backends, of which there may be none. It
// reports all faults at once: an error that wraps ErrConfig for each fault of the
// Config, a *[BackendError] for each bad backend.
func New[T any](config Config, backends ...Backend[T]) (*Balancer[T], error) {
	b := &Balancer[T]{
		algorithm: config.Algorithm,
		policy:    config.Policy,
		slow:      config.SlowStart,
		window:    config.FailStaticWindow,
		common:    config.HashSeed,
	}
	if b.algorithm == nil {
		b.algorithm = RoundRobin{}
	}
	var faults []error
	if config.Policy > PolicyFailStatic {
		faults = append(faults, fmt.Errorf("%w: policy %d: want PolicyEmpty, PolicyPanic or PolicyFailStatic", ErrConfig, config.Policy))
	}
	if slow := config.SlowStart; slow != 0 && (slow < time.Second || slow > 24*time.Hour) {
		faults = append(faults, fmt.Errorf("%w: SlowStart %v: want 1s to 24h, or 0 for none", ErrConfig, slow))
	}
	if w := config.FailStaticWindow; w < 0 || w > 24*time.Hour {
		faults = append(faults, fmt.Errorf("%w: FailStaticWindow %v: want 0 to 24h", ErrConfig, w))
	}
	if fault := b.algorithm.fault(); fault != "" {
		faults = append(faults, fmt.Errorf("%w: algorithm %s: %s", ErrConfig, b.algorithm.Name(), fault))
	} else if err := b.tooMany(len(backends)); err != nil {
		faults = append(faults, err)
	}
	if err := check(backends, false); err != nil {
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}

	b.traits = b.algorithm.traits()
	b.shared.count, b.shared.total = config.Count, b.traits.total
	if peak := b.traits.latency; peak.Decay > 0 {
		b.shared.latency = true
		b.shared.clock.init(peak)
	}
	b.rand = generator(config.Rand)
	b.private = b.rand.Uint64()
	b.publish(&snapshot[T]{}, backends, origin{})
	return b, nil
}

// generator returns r, or if that is nil a generator seeded by the system.
func generator(r *rand.Rand) *rand.Rand {
	if r != nil {
		return r
	}
	var seed [16]byte
	crand.Read(seed[:]) // never fails, by its documentation
	return rand.New(rand.NewPCG(binary.LittleEndian.Uint64(seed[:8]), binary.LittleEndian.Uint64(seed[8:])))
}

// tooMany returns an error when the algorithm can't serve n backends.
func (b *Balancer[T]) tooMany(n int) error {
	if most := b.algorithm.traits().most; most > 0 && n > most {
		return fmt.Errorf("%w: algorithm %s: %d backends for a table of %d slots: choose a larger size", ErrConfig, b.algorithm.Name(), n, most)
	}
	return nil
}

// Set replaces all backends. On error, which joins a *[BackendError] for each bad
// backend, nothing changes. The position in the lap is kept, and so is what is
// known about the backends whose key stays: counts, open leases, latencies.
//
// Each Set builds one snapshot, whatever the number of changes in it; a caller
// with many changes makes them in one Set. Two goroutines that each read, change
// and Set the list undo each other's work; they want [Balancer.Update].
func (b *Balancer[T]) Set(backends ...Backend[T]) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.set(backends)
}

// Update replaces all backends by what edit makes of a copy of the present ones.
// Updates run one at a time, so that none is lost. A caller with many changes
// makes them in one Update. edit must not call Set, Update, Advance or Deadline of
// the balancer. The errors are those of Set.
func (b *Balancer[T]) Update(edit func(backends []Backend[T]) []Backend[T]) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.set(edit(b.Backends()))
}

// set is called with mu held.
func (b *Balancer[T]) set(backends []Backend[T]) error {
	old := b.current.Load()
	from := old.match(backends)
	err := check(backends, from.all) // keys that stood before are distinct
	if many := b.tooMany(len(backends)); many != nil {
		err = errors.Join(err, many)
	}
	if err != nil {
		return err
	}
	b.publish(old, backends, from)
	return nil
}

// Pick gives the next connection to a backend, or returns [ErrEmpty] or
// [ErrAllFull]. It takes no lock, never blocks and does not allocate. The key
// belongs to the connection, such as a hash of its client's address; only the
// algorithms that map keys to backends use it. Any bits will do: they are mixed.
func (b *Balancer[T]) Pick(key uint64) (Lease[T], error) {
	s := b.current.Load()
	if n := uint64(len(s.plain)); n > 0 {
		return Lease[T]{entry: &s.entries[s.plain[(b.turn.Add(1)-1+s.offset)%n]], mode: s.mode}, nil
	}
	return s.pick(key)
}

func (s *snapshot[T]) pick(key uint64) (Lease[T], error) {
	if len(s.group.members) == 0 {
		return Lease[T]{}, ErrEmpty
	}
	i := s.picker.pick(&s.group, key, nil)
	if i < 0 {
		return Lease[T]{}, ErrAllFull
	}
	return s.lease(i), nil
}

func (s *snapshot[T]) lease(i int) Lease[T] {
	m := &s.group.members[i]
	return Lease[T]{&s.entries[m.entry], m.load, s.mode}
}

// Walk yields leases on all backends that may take the connection, each backend
// once, for a caller who tries the next one when connecting fails. Each is what
// Pick would have given, unless that one was already tried: the next turn of a
// lap, the next best of a hash. Full backends are left out. A walk over no
// backends yields nothing. It sees the backends as they were when it began. Every
// lease is the caller's to finish. The key is that of Pick.
//
// Unlike Pick it may allocate.
func (b *Balancer[T]) Walk(key uint64) iter.Seq[Lease[T]] {
	return func(yield func(Lease[T]) bool) {
		s := b.current.Load()
		s.walk(key, newSet(len(s.group.members)))(yield)
	}
}

// walk yields leases on all members that are not tried, and adds them to tried.
func (s *snapshot[T]) walk(key uint64, tried set) iter.Seq[Lease[T]] {
	return func(yield func(Lease[T]) bool) {
		for range s.group.members {
			i := s.picker.pick(&s.group, key, tried)
			if i < 0 {
				return
			}
			tried.add(i)
			if !yield(s.lease(i)) {
				return
			}
		}
	}
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
