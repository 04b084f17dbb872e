package lb

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// PeakEWMA is the [Algorithm] of two random choices by latency: it draws two
// backends in proportion to their weights and takes the one with the lower
// product of its estimated latency and (open leases / weight + 1).
//
// The estimate of a backend follows what Lease.Done reports. It rises to a higher
// latency at once and falls to lower ones slowly. While nothing is heard of a
// backend, its estimate falls too, so that a backend that was slow once is tried
// again. Two backends of which one was never measured are compared by open
// leases alone.
//
// The balancer has no clock. Time passes for PeakEWMA with the latest now of any
// Done and of [Balancer.Advance], so without Advance estimates age only while
// connections end.
type PeakEWMA struct {
	// Decay is the time in which the weight of old knowledge halves. Range 1 s to
	// 1 h, default 10 s.
	Decay time.Duration
	// Penalty is the least latency that a failed connection counts as: a backend
	// that refuses everybody at once must not look like the fastest. Range 1 ms
	// to 1 h, default 1 s.
	Penalty time.Duration
}

// Name returns "peakewma".
func (PeakEWMA) Name() string { return "peakewma" }

func (p PeakEWMA) traits() traits { return traits{load: true, latency: p.withDefaults()} }

func (p PeakEWMA) withDefaults() PeakEWMA {
	if p.Decay == 0 {
		p.Decay = 10 * time.Second
	}
	if p.Penalty == 0 {
		p.Penalty = time.Second
	}
	return p
}

func (p PeakEWMA) fault() string {
	p = p.withDefaults()
	switch {
	case p.Decay < time.Second || p.Decay > time.Hour:
		return fmt.Sprintf("Decay %v: want 1s to 1h", p.Decay)
	case p.Penalty < time.Millisecond || p.Penalty > time.Hour:
		return fmt.Sprintf("Penalty %v: want 1ms to 1h", p.Penalty)
	}
	return ""
}

func (PeakEWMA) prepare(g *group, _ picker, _ func(n uint64) uint64) picker {
	return &choices{newUrn(g), func(a, b *member) bool {
		// open/weight + 1 of both, multiplied by both weights. Idle backends tie for any
		// weights: they were drawn by weight already.
		p := float32(a.load.open.Load()+uint64(a.weight)) * float32(b.weight)
		q := float32(b.load.open.Load()+uint64(b.weight)) * float32(a.weight)
		now := a.load.shared.clock.latest.Load()
		x, y := estimate(a.load.latency.Load()), estimate(b.load.latency.Load())
		if x != 0 && y != 0 {
			p, q = p*x.at(now), q*y.at(now)
		}
		return p <= q
	}}
}

// An estimate is a latency in nanoseconds, as a float32, above the tick at which it
// was made. In one word the two can be replaced together. 0 is unknown.
type estimate uint64

func newEstimate(latency float32, tick uint32) estimate {
	return estimate(math.Float32bits(latency))<<32 | estimate(tick)
}

// at returns what is left of the latency at tick now.
func (e estimate) at(now uint32) float32 {
	return math.Float32frombits(uint32(e>>32)) * fade(int32(now-uint32(e)))
}

// perDecay is the number of ticks in which an estimate halves. The difference of
// two ticks then has a range of 97 days even for the shortest Decay.
const perDecay = 256

// fade returns about 2^(-age/perDecay): exact at each halving and a straight line
// between, at most 6 % above. It is computed for each pick, and this takes a
// fraction of the time of an exponential. It is 1 for negative ages: reports may
// overtake each other.
func fade(age int32) float32 {
	if age <= 0 {
		return 1
	}
	halvings, rest := age/perDecay, age%perDecay
	if halvings > 126 {
		return 0
	}
	// A float32 of value 2^-halvings, by its exponent.
	return math.Float32frombits(uint32(127-halvings)<<23) * (1 - float32(rest)/(2*perDecay))
}

// ticks turns the times that callers report into numbers.
type ticks struct {
	length  time.Duration
	penalty float32
	base    atomic.Pointer[time.Time] // the first one reported
	_       [64]byte
	latest  atomic.Uint32
}

func (t *ticks) init(p PeakEWMA) {
	t.length, t.penalty = p.Decay/perDecay, float32(p.Penalty)
}

// tick returns the number of now, and makes it the latest if it is. The first
// call allocates.
func (t *ticks) tick(now time.Time) uint32 {
	base := t.base.Load()
	if base == nil {
		first := now // so that now itself need not be on the heap
		t.base.CompareAndSwap(nil, &first)
		base = t.base.Load()
	}
	n := uint32(now.Sub(*base) / t.length)
	// If another report is faster, it is as good.
	if last := t.latest.Load(); int32(n-last) > 0 {
		t.latest.CompareAndSwap(last, n)
	}
	return n
}

// observe lets a report move the estimate. When another report comes between, it
// begins anew with that one's result; after a few times it gives up, as so many
// others were heard.
func (l *load) observe(now time.Time, result Result) {
	clock := &l.shared.clock
	tick := clock.tick(now)
	sample := float32(max(result.Latency, 0))
	if result.Failed {
		sample = max(sample, clock.penalty)
	}
	if sample == 0 {
		return
	}
	for range 4 {
		old := l.latency.Load()
		next := sample
		if old != 0 {
			share := fade(int32(tick - uint32(old)))
			if rest := estimate(old).at(tick); sample < rest {
				next = rest + sample*(1-share)
			}
			if int32(tick-uint32(old)) < 0 {
				tick = uint32(old) // a late report does not turn the clock back
			}
		}
		if l.latency.CompareAndSwap(old, uint64(newEstimate(next, tick))) {
			return
		}
	}
}
