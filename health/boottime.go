package health

import "time"

// SuspendWatch finds out from two clocks whether this machine was suspended: the
// monotonic one, by which all leases run, stands still meanwhile, and the boot-time
// one does not. It is pure like a [Machine], so it must not be used by two goroutines
// at once. The zero value is ready.
//
//	ahead, err := health.BootAhead() // in each round of the caller's loop
//	...
//	if gap := watch.Observe(ahead); gap > 0 {
//		leases.Suspended(time.Now(), gap)
//	}
type SuspendWatch struct {
	ahead time.Duration
	begun bool
}

// suspendTolerance is the least growth that is a suspension. Reading two clocks takes
// time, in which the process may be stopped; naps shorter than this harm no lease.
const suspendTolerance = 50 * time.Millisecond

// Observe takes by how much the boot-time clock is ahead of the monotonic one, and
// returns how long the machine was suspended since the call before: 0 if it was not,
// or not for 50 ms. The first call returns 0.
func (w *SuspendWatch) Observe(ahead time.Duration) time.Duration {
	if !w.begun {
		w.ahead, w.begun = ahead, true
		return 0
	}
	// Less than the tolerance is kept for later, so that many short naps add up.
	gap := ahead - w.ahead
	if gap < suspendTolerance {
		return 0
	}
	w.ahead = ahead
	return gap
}
