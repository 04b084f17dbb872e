package health

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// https://github.com/golang/go/issues/35012: after a night in the bag the last verdict
// is a night old, though Go's clock says it is a second old.
func TestMachineAfterSuspend(t *testing.T) {
	config := Config{Interval: 5 * time.Second, Timeout: time.Second, Fall: 2, Lease: 20 * time.Second}
	m := machine(t, config)
	m.Suspended(at(0), time.Hour)
	require.Equal(t, Status{Reason: Reason{Code: NeverProbed}}, m.At(at(0)))

	m = machine(t, config)
	m.Observe(at(0), Result{Good, "ok"})
	m.Suspended(at(1), 0)
	m.Suspended(at(1), -time.Hour)
	require.Equal(t, at(20), m.At(at(1)).ValidUntil)
	m.Suspended(at(1), 18*time.Second)
	require.Equal(t, Status{Online, at(0), at(2), Reason{Passing, "ok"}}, m.At(at(1)), "a second is left")
	m.Suspended(at(1), time.Second)
	require.Equal(t, Status{Since: at(1), Reason: Reason{Suspended, "ok"}}, m.At(at(1)))
	m.Suspended(at(1.5), time.Hour)
	require.Equal(t, at(1), m.At(at(1.5)).Since, "what has ended, has ended")

	m.Observe(at(2), Result{Good, "ok"})
	require.Equal(t, at(2), m.At(at(2)).Since)
	require.Equal(t, Expired, m.At(at(22)).Reason.Code, "this end is an ordinary one")
}

// The network comes back later than we do. That is no fault of the target.
func TestMachineHoldsItsAccusations(t *testing.T) {
	config := Config{Interval: 5 * time.Second, Timeout: time.Second, Fall: 2, Lease: 20 * time.Second}
	m := machine(t, config)
	m.Observe(at(0), Result{Outcome: Good})
	m.Observe(at(5), Result{Outcome: Bad})
	m.Suspended(at(6), time.Second)
	m.Observe(at(6), Result{Bad, "no route to host"})
	m.Observe(at(10.9), Result{Bad, "no route to host"})
	require.Equal(t, Status{Online, at(0), at(24), Reason{Failing, ""}}, m.At(at(10.9)), "neither counted nor renewed")
	m.Observe(at(11), Result{Outcome: Bad})
	require.Equal(t, Online, m.At(at(11)).State, "the one from before the nap is forgotten")
	m.Observe(at(16), Result{Outcome: Bad})
	require.Equal(t, Offline, m.At(at(16)).State)

	m.Suspended(at(17), time.Hour)
	require.Equal(t, Status{Since: at(17), Reason: Reason{Code: Suspended}}, m.At(at(17)), "it ended when we woke up, not before")
	m.Observe(at(17), Result{Bad, "no route to host"})
	require.Equal(t, Status{Error, at(17), at(37), Reason{LocalFailure, "just after a suspension: no route to host"}}, m.At(at(17)))
	m.Suspended(at(18), time.Hour)
	require.Equal(t, Status{Since: at(18), Reason: Reason{Suspended, ""}}, m.At(at(18)), "an error is not kept for longer either")
	m.Observe(at(18), Result{Outcome: Good})
	require.Equal(t, Online, m.At(at(18)).State, "good news is welcome at any time")
}
