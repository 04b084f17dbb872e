package lb

import "time"

// Lease is the permission to use a backend for one connection. It stays usable
// when the backend is removed meanwhile. The zero Lease is what Pick returns with
// an error: its Value, Key and Mode are zero and its Done does nothing.
type Lease[T any] struct {
	entry *entry[T]
	load  *load // nil when not counted, or done
	mode  Mode
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

// Mode tells on which ground the backend was given; never ModeEmpty.
func (l Lease[T]) Mode() Mode { return l.mode }

// Result is how a connection went.
type Result struct {
	// Failed is set when the backend is to blame: it refused, timed out, broke
	// off. A client that left early is not a failure.
	Failed bool
	// Latency is how long the backend took, as the caller measures it: until the
	// connection stood, or until the first answer. 0, and less, means that
	// nobody measured. Only PeakEWMA uses it.
	Latency time.Duration
}

// Done says that the connection ended, at now and with which result. It counts
// once per lease variable; do not copy a lease and finish both. A lease that is
// never done counts as load for ever. Only PeakEWMA uses now; callers give it all
// the same, to be able to change the algorithm.
func (l *Lease[T]) Done(now time.Time, result Result) {
	c := l.load
	if c == nil {
		return
	}
	l.load = nil
	c.finish(now, result)
}

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
	if !b.shared.count {
		return Counts{}, false
	}
	s := b.current.Load()
	for i := range s.entries {
		if e := &s.entries[i]; e.Key == key {
			return Counts{e.load.open.Load(), e.load.finished.Load(), e.load.failed.Load()}, true
		}
	}
	return Counts{}, false
}
