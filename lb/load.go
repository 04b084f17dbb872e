package lb

import (
	"sync/atomic"
	"time"
)

// load is what is known about the leases of one backend. It outlives snapshots:
// those in which the backend stays share it, and so do the leases. It fills a
// cache line, so that two backends never contend for one.
type load struct {
	open, finished, failed atomic.Uint64

	// shared is the same for all loads of a balancer.
	shared *shared
	// seat is where the backend stands in the tree of the present snapshot, nil
	// without one.
	seat atomic.Pointer[seat]
	// last is the turn of the latest pick; kept by LeastConn.
	last atomic.Uint64
	// latency is an [estimate]; kept by PeakEWMA.
	latency atomic.Uint64

	_ [8]byte
}

// shared is what all loads of a balancer have in common.
type shared struct {
	count   bool // keep finished and failed
	total   bool // keep open
	latency bool // keep latencies, on this clock
	clock   ticks

	_    [64]byte // open changes all the time
	open atomic.Int64
}

// acquire counts one more open lease, unless there are limit already; 0 means no
// limit. It never gives more than limit. It repeats only when another goroutine
// changed the count in between, so somebody always advances.
func (l *load) acquire(limit uint32) bool {
	if limit == 0 {
		l.open.Add(1)
	} else {
		for {
			n := l.open.Load()
			if n >= uint64(limit) {
				return false
			}
			if l.open.CompareAndSwap(n, n+1) {
				break
			}
		}
	}
	if l.shared.total {
		l.shared.open.Add(1)
	}
	return true
}

// finish counts one open lease less.
func (l *load) finish(now time.Time, result Result) {
	s := l.shared
	if s.count {
		l.finished.Add(1)
		if result.Failed {
			l.failed.Add(1)
		}
	}
	if s.latency {
		l.observe(now, result)
	}
	l.open.Add(^uint64(0))
	if s.total {
		s.open.Add(-1)
	}
	if seat := l.seat.Load(); seat != nil {
		seat.refresh(false)
	}
}
