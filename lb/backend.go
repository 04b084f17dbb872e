package lb

import (
	"errors"
	"fmt"
	"math"
)

// MaxWeight is the largest weight of a [Backend].
const MaxWeight = 256

// State tells whether a backend may take new connections.
type State uint8

// The states of a backend. Existing connections are the caller's; no state ends
// one.
const (
	// Up takes new connections. It is the zero value: a program without health
	// checks needs no states.
	Up State = iota
	// Drain takes no new connections because a person wants it so.
	Drain
	// Down takes no new connections because it is not known to work. Unlike a
	// drained backend it is used again by PolicyPanic.
	Down
)

// String returns "up", "drain" or "down".
func (s State) String() string {
	switch s {
	case Up:
		return "up"
	case Drain:
		return "drain"
	case Down:
		return "down"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Backend is one member of a [Balancer].
type Backend[T any] struct {
	// Key identifies the backend among the others and over the calls of
	// [Balancer.Set]. It must be unique and not empty.
	Key string
	// Value is what the caller gets with a lease: an address, a client, a
	// handle. The package only copies it.
	Value T
	// Weight is the backend's share of new connections, 0 to MaxWeight. 0, also
	// the zero value, means no new connections in any mode.
	Weight int
	// State is Up, Drain or Down.
	State State
	// Tier is 0 for a backend in regular use. Backends of a higher tier are
	// backups: a tier is used only while no backend of a lower one is Up with a
	// weight above 0, see ModeBackup.
	Tier uint8
	// MaxConns is the largest number of leases that are open at a time, 0 for no
	// limit. Pick passes over a backend that is full. The balancer counts leases
	// only while something asks for it, so a limit that is set later does not
	// see leases that were given before.
	MaxConns int
}

// Reasons for which a backend is refused, found by errors.Is in the errors of
// [New], [Balancer.Set] and [Balancer.Update].
var (
	ErrNoKey        = errors.New("key is empty: give each backend one")
	ErrDuplicateKey = errors.New("key is already taken: give each backend its own")
	ErrWeight       = errors.New("weight is out of range: want 0 to 256")
	ErrState        = errors.New("state is unknown: want Up, Drain or Down")
	ErrMaxConns     = errors.New("connection limit is out of range: want 0 (none) to 2147483647")
)

// BackendError says which backend of a list was refused, and why.
type BackendError struct {
	Index int    // position in the list, from 0
	Key   string // key of the backend, may be empty
	Err   error  // wraps one of the reasons above
}

// Error names the backend by position and key.
func (e *BackendError) Error() string {
	return fmt.Sprintf("lb: backend %d %q: %v", e.Index, e.Key, e.Err)
}

// Unwrap returns the reason.
func (e *BackendError) Unwrap() error { return e.Err }

// check returns all faults of the list joined, nil if there is none. distinct
// promises that the keys are good, which spares the look for duplicates.
func check[T any](backends []Backend[T], distinct bool) error {
	var faults []error
	refuse := func(i int, err error) {
		faults = append(faults, &BackendError{i, backends[i].Key, err})
	}
	var first map[string]int
	if !distinct {
		first = make(map[string]int, len(backends))
	}
	for i := range backends {
		b := &backends[i]
		if !distinct {
			if b.Key == "" {
				refuse(i, ErrNoKey)
			} else if j, dup := first[b.Key]; dup {
				refuse(i, fmt.Errorf("same key as backend %d: %w", j, ErrDuplicateKey))
			} else {
				first[b.Key] = i
			}
		}
		if b.Weight < 0 || b.Weight > MaxWeight {
			refuse(i, fmt.Errorf("weight %d: %w", b.Weight, ErrWeight))
		}
		if b.State > Down {
			refuse(i, fmt.Errorf("%v: %w", b.State, ErrState))
		}
		if b.MaxConns < 0 || b.MaxConns > math.MaxInt32 {
			refuse(i, fmt.Errorf("limit %d: %w", b.MaxConns, ErrMaxConns))
		}
	}
	return errors.Join(faults...)
}
