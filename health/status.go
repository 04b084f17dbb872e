package health

import (
	"fmt"
	"time"
)

// State is what is known about a target at one instant.
type State uint8

// The states.
const (
	// Unknown: nothing is known, or no longer. It is the zero value. Treat it as
	// not online.
	Unknown State = iota
	// Online: the target answers as it should.
	Online
	// Offline: the target was reached for, and does not answer as it should.
	Offline
	// Error: the observer is unable to probe, and knows nothing about the target
	// any more. This is a fault of ours, not of the target. Treat it as not online.
	Error
)

// String returns "unknown", "online", "offline" or "error".
func (s State) String() string {
	switch s {
	case Unknown:
		return "unknown"
	case Online:
		return "online"
	case Offline:
		return "offline"
	case Error:
		return "error"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Code is the kind of a [Reason].
type Code uint8

// The codes, with the states in which they occur.
const (
	// NeverProbed: no probe has completed yet (Unknown).
	NeverProbed Code = iota
	// Undecided: probes complete, but too few of a kind in a row (Unknown).
	Undecided
	// Expired: no probe has completed for the length of a lease (Unknown).
	Expired
	// Passing: the last probe was good (Online).
	Passing
	// Failing: the last probes were bad, but less than Fall of them (Online).
	Failing
	// Failed: the last probe was bad (Offline).
	Failed
	// Recovering: the last probes were good, but less than Rise of them (Offline).
	Recovering
	// LocalFailure: the observer could not probe (Error).
	LocalFailure
	// Reported: the owner of the lease says so (any but Unknown; see [Leases]).
	Reported
	// Lowered: another than the owner says so (Offline).
	Lowered
	// OwnerEnded: the owner of the lease has no lease of its own (Unknown).
	OwnerEnded
	// OwnerRestarted: the owner has begun anew since, with a higher epoch (Unknown).
	OwnerRestarted
	// Suspended: the lease ended while this machine was suspended (Unknown).
	Suspended
	// Majority: more than half of the voters say so (Offline; see [Quorum]).
	Majority
	// Settling: more than half of the voters say offline, but not for long enough
	// yet (Unknown).
	Settling
	// NoMajority: half of the voters or less say offline (Unknown).
	NoMajority
	// Damped: the target goes up and down too often (Offline; see [Flap]).
	Damped
	// Frozen: too many targets turned bad at once to believe it (Online; see
	// [FailStatic]).
	Frozen
)

var codeNames = [...]string{
	"never probed", "undecided", "expired", "passing", "failing", "failed", "recovering", "local failure",
	"reported", "lowered", "owner ended", "owner restarted", "suspended",
	"majority", "settling", "no majority", "damped", "frozen",
}

// String returns the code in words.
func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return fmt.Sprintf("code(%d)", uint8(c))
}

// Reason says why a state is what it is: a code for programs and a text for people.
type Reason struct {
	Code   Code
	Detail string // of the last probe, may be empty
}

// String returns both parts.
func (r Reason) String() string {
	if r.Detail == "" {
		return r.Code.String()
	}
	return r.Code.String() + ": " + r.Detail
}

// Status is a verdict and how long it holds.
type Status struct {
	State State
	// Since is when the state began. It is zero for a target never known.
	Since time.Time
	// ValidUntil is when the verdict ends unless it is renewed. It is zero for
	// Unknown, which needs no renewal.
	ValidUntil time.Time
	Reason     Reason
}

// Outcome is what one probe says.
type Outcome uint8

// The outcomes.
const (
	// LocalError: the probe could not be made, so it says nothing about the
	// target. It is the zero value.
	LocalError Outcome = iota
	// Good: the target answered as it should.
	Good
	// Bad: the target refused, did not answer, or answered wrongly.
	Bad
)

// String returns "local error", "good" or "bad".
func (o Outcome) String() string {
	switch o {
	case LocalError:
		return "local error"
	case Good:
		return "good"
	case Bad:
		return "bad"
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// Result is the result of one completed probe.
type Result struct {
	Outcome Outcome
	Detail  string // for people: what was answered, or why not
}

// Transition is a change of state.
type Transition struct {
	From State  // the state before
	To   Status // the status after
}
