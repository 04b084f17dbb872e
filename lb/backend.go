package lb

import (
	"errors"
	"fmt"
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
}

// Reasons for which a backend is refused, found by errors.Is in the errors of
// [New], [Balancer.Set] and [Balancer.Update].
var (
	ErrNoKey        = errors.New("key is empty: give each backend one")
	ErrDuplicateKey = errors.New("key is already taken: give each backend its own")
	ErrWeight       = errors.New("weight is out of range: want 0 to 256")
	ErrState        = errors.New("state is unknown: want Up, Drain or Down")
)

// BackendError says which backend of a list was refused, and why.
type BackendError struct {
	Index int    // position in the list, from 0
	Key   string // key of the backend, may be empty
	Err   error  // wraps ErrNoKey, ErrDuplicateKey, ErrWeight or ErrState
}

// Error names the backend by position and key.
func (e *BackendError) Error() string {
	return fmt.Sprintf("lb: backend %d %q: %v", e.Index, e.Key, e.Err)
}

// Unwrap returns the reason.
func (e *BackendError) Unwrap() error { return e.Err }

// check returns all faults of the list joined, nil if there is none.
func check[T any](backends []Backend[T]) error {
	var faults []error
	first := make(map[string]int, len(backends))
	for i, b := range backends {
		refuse := func(err error) { faults = append(faults, &BackendError{i, b.Key, err}) }
		if b.Key == "" {
			refuse(ErrNoKey)
		} else if j, dup := first[b.Key]; dup {
			refuse(fmt.Errorf("same key as backend %d: %w", j, ErrDuplicateKey))
		} else {
			first[b.Key] = i
		}
		if b.Weight < 0 || b.Weight > MaxWeight {
			refuse(fmt.Errorf("weight %d: %w", b.Weight, ErrWeight))
		}
		if b.State > Down {
			refuse(fmt.Errorf("%v: %w", b.State, ErrState))
		}
	}
	return errors.Join(faults...)
}
