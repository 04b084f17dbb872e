package nft

import (
	"fmt"
	"time"
)

// State is what is known about our part of the kernel's ruleset.
type State uint8

// The states. The zero value is Unknown.
const (
	// Unknown: never applied, or nobody has renewed or verified in time.
	Unknown State = iota
	// Installed: the kernel held exactly what was applied when it was last read.
	Installed
	// Faulty: the kernel held something else when it was last read.
	Faulty
	// Removed: Remove has deleted the table.
	Removed
)

// String returns the state in lower case.
func (s State) String() string {
	switch s {
	case Unknown:
		return "unknown"
	case Installed:
		return "installed"
	case Faulty:
		return "faulty"
	case Removed:
		return "removed"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Reason says why a [State] holds.
type Reason uint8

// The reasons.
const (
	// NeverApplied: no call has told anything yet.
	NeverApplied Reason = iota
	// Applied, Renewed and Verified: that call read the kernel and found it right.
	Applied
	Renewed
	Verified
	// Mismatch: the kernel's content differs; the call returned a [MismatchError].
	Mismatch
	// Withdrawn: Remove was called.
	Withdrawn
	// Expired: no Apply, Renew or Verify since ValidUntil.
	Expired
)

// String returns the reason as a phrase.
func (r Reason) String() string {
	switch r {
	case NeverApplied:
		return "never applied"
	case Applied:
		return "applied"
	case Renewed:
		return "renewed"
	case Verified:
		return "verified"
	case Mismatch:
		return "the kernel's content differs"
	case Withdrawn:
		return "withdrawn"
	case Expired:
		return "not renewed"
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// Status is a verdict with a lifetime.
type Status struct {
	State State
	// Since is when the state began to hold without interruption. For Unknown it
	// is when the last verdict ended, or zero when there was none.
	Since time.Time
	// ValidUntil is when the verdict ends unless it is renewed: for Installed no
	// later than the kernel's own timeout of the first element. Zero for Unknown.
	ValidUntil time.Time
	Reason     Reason
}

// verdict is the last statement made; at ages it. It is pure.
type verdict struct{ last Status }

func (v *verdict) set(now time.Time, s State, until time.Time, r Reason) {
	since := now
	if old := v.at(now); old.State == s {
		since = old.Since
	}
	v.last = Status{State: s, Since: since, ValidUntil: until, Reason: r}
}

func (v *verdict) at(now time.Time) Status {
	if v.last.State != Unknown && !now.Before(v.last.ValidUntil) {
		return Status{State: Unknown, Since: v.last.ValidUntil, Reason: Expired}
	}
	return v.last
}
