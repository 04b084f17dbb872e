package health

import (
	"errors"
	"fmt"
	"time"
)

// Record is a verdict on its way from a [Monitor] to its successor. It holds no
// times, only durations up to the moment of its export, as clocks may be set, and
// another process counts from another start.
type Record struct {
	Key    string        // of the target
	State  State         // Online or Offline
	Reason Reason        // of the last probe
	For    time.Duration // how long the state had lasted
	Left   time.Duration // how long it would have held without another probe
	Good   int           // good probes counted at the end, at most 1000
	Bad    int           // bad probes counted at the end, at most 1000
}

// check returns what is wrong with a record.
func (r Record) check() error {
	var faults []error
	refuse := func(field string, value any, want string) {
		faults = append(faults, &ConfigError{r.Key, "Record." + field, value, want})
	}
	if r.State != Online && r.State != Offline {
		refuse("State", r.State, "online or offline")
	}
	if r.For < 0 {
		refuse("For", r.For, "0 or more")
	}
	if r.Left <= 0 || r.Left > maxLease {
		refuse("Left", r.Left, fmt.Sprintf("above 0, at most %v", maxLease))
	}
	if r.Good < 0 || r.Bad < 0 || r.Good > maxCount || r.Bad > maxCount {
		refuse("Good, Bad", fmt.Sprintf("%d, %d", r.Good, r.Bad), fmt.Sprintf("0 to %d", maxCount))
	}
	return errors.Join(faults...)
}

// record returns the verdict in force at now, and whether there is one.
func (m *Machine) record(key string, now time.Time) (Record, bool) {
	s := m.At(now)
	if s.State != Online && s.State != Offline {
		return Record{}, false
	}
	return Record{key, s.State, s.Reason, now.Sub(s.Since), s.ValidUntil.Sub(now), m.good, m.bad}, true
}

// load takes over a record that is of the given age at now, and tells whether it did:
// not when it is too old, nor when the machine has seen something itself.
func (m *Machine) load(now time.Time, r Record, age time.Duration) bool {
	left := min(r.Left, m.config.Lease) - age
	if left <= 0 || !m.last.IsZero() || m.verdict != Unknown {
		return false
	}
	m.verdict, m.reason, m.decided = r.State, r.Reason, true
	if m.config.Counting == Accumulating || r.Good == 0 || r.Bad == 0 {
		m.good, m.bad = r.Good, r.Bad // else they were counted another way
	}
	m.since, m.validUntil = now.Add(-age).Add(-r.For), now.Add(left)
	return true
}
