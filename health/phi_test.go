package health

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func accrual(t testing.TB, c PhiConfig) *Phi {
	p, err := NewPhi(c)
	require.NoError(t, err)
	return p
}

// strict is a config without allowances that would hide what a test looks at.
var strict = PhiConfig{MinDeviation: 10 * time.Millisecond, Pause: 1}

// The tail of the normal distribution, from tables: 1 in 2 at the mean, 0.158655 above
// one deviation, 0.0013499 above three, 9.8659e-10 above six.
func TestPhiOfTables(t *testing.T) {
	for z, p := range map[float64]float64{0: 0.5, 1: 0.158655, 3: 0.0013499, 6: 9.8659e-10} {
		require.InDelta(t, -math.Log10(p), phi(z), 1e-5)
	}
	require.Zero(t, phi(-9))
	require.False(t, math.Signbit(phi(-9)))
	require.Greater(t, phi(40), 300.0)

	// Gaps of 0.9 and 1.1 s: mean 1, deviation 0.1.
	p := accrual(t, strict)
	now := 0.0
	for range 50 {
		p.Heartbeat(at(now))
		p.Heartbeat(at(now + 0.9))
		now += 2
	}
	p.Heartbeat(at(now))
	require.InDelta(t, 0.30103, p.Phi(at(now+1)), 0.01)
	require.InDelta(t, 0.79954, p.Phi(at(now+1.1)), 0.02)
	require.InDelta(t, 9.0059, p.Phi(at(now+1.6)), 0.2)
}

// The end of a verdict is where phi reaches Threshold, not sooner and not later.
func TestPhiAtTheDeadline(t *testing.T) {
	for _, threshold := range []float64{1, 8, 12, 100, 300} {
		c := strict
		c.Threshold = threshold
		p := accrual(t, c)
		for s := range 20 {
			p.Heartbeat(at(float64(s) + 0.1*float64(s%3)))
		}
		end := p.Deadline()
		require.GreaterOrEqual(t, p.Phi(end.Add(time.Microsecond)), threshold)
		require.Less(t, p.Phi(end.Add(-time.Microsecond)), threshold)
		require.Equal(t, Online, p.At(end.Add(-1)).State)
		require.Equal(t, Status{Since: end, Reason: Reason{Code: Expired}}, p.At(end))
	}
}

func TestPhiLearnsTheInterval(t *testing.T) {
	p := accrual(t, strict)
	require.Equal(t, Status{Reason: Reason{Code: NeverProbed}}, p.At(at(0)))
	require.True(t, math.IsInf(p.Phi(at(0)), 1))
	require.True(t, p.Deadline().IsZero())
	p.Heartbeat(at(0))
	first := p.Deadline().Sub(at(0))
	require.InDelta(t, 1+5.612*0.25, first.Seconds(), 0.001, "First, and what phi 8 is in quarters of it")
	for s := range 99 {
		p.Heartbeat(at(0.1 * float64(s)))
	}
	require.Len(t, p.gaps, 100)
	p.Heartbeat(at(9.9))
	p.Heartbeat(at(10))
	require.Len(t, p.gaps, 100)
	require.InDelta(t, 0.1+5.612*0.01, p.Deadline().Sub(at(10)).Seconds(), 0.001, "First is forgotten, and MinDeviation counts")
	require.Equal(t, at(0), p.At(at(10)).Since)

	for range 500 {
		p.Heartbeat(p.last.Add(150 * time.Millisecond))
	}
	require.Len(t, p.gaps, 100)
	require.InDelta(t, 0.15+5.612*0.01, p.Deadline().Sub(p.last).Seconds(), 0.001, "what it was before is forgotten")
}

// An outage does not teach the detector to be patient.
func TestPhiDoesNotLearnFromOutages(t *testing.T) {
	p := accrual(t, strict)
	for s := range 20 {
		p.Heartbeat(at(float64(s)))
	}
	patience := p.Deadline().Sub(p.last)
	p.Heartbeat(at(50))
	require.Equal(t, patience, p.Deadline().Sub(p.last))
	require.Equal(t, at(50), p.At(at(50)).Since)
	p.Heartbeat(at(50))
	p.Heartbeat(at(49))
	require.Equal(t, patience, p.Deadline().Sub(p.last), "nor from packets twice or out of order")
	require.Equal(t, at(50), p.last)
}

// A sender that was told to send less often is out once, and then understood.
func TestPhiFollowsASlowerSender(t *testing.T) {
	p := accrual(t, strict)
	for s := range 100 {
		p.Heartbeat(at(float64(s)))
	}
	outages := 0
	for range 50 {
		next := p.last.Add(5 * time.Second)
		if p.At(next).State != Online {
			outages++
		}
		p.Heartbeat(next)
	}
	require.LessOrEqual(t, outages, 10, "it never ends otherwise")
	require.Equal(t, Online, p.At(p.last.Add(5*time.Second)).State)

	// Two naps in a row longer than Limit are no rhythm.
	p = accrual(t, strict)
	p.Heartbeat(at(0))
	p.Heartbeat(at(1000))
	p.Heartbeat(at(2000))
	require.Len(t, p.gaps, 2)
}

func TestPhiAllowances(t *testing.T) {
	p := accrual(t, PhiConfig{})
	for s := range 120 {
		p.Heartbeat(at(float64(s)))
	}
	require.InDelta(t, 1+3+5.612*0.1, p.Deadline().Sub(p.last).Seconds(), 0.001)

	p = accrual(t, PhiConfig{Limit: 2 * time.Second})
	p.Heartbeat(at(0))
	require.Equal(t, at(2), p.Deadline(), "the hard limit")
	require.True(t, math.IsInf(p.Phi(at(2)), 1))
}

func TestPhiAfterSuspend(t *testing.T) {
	p := accrual(t, PhiConfig{})
	p.Suspended(at(0), time.Hour)
	require.True(t, p.Deadline().IsZero())
	for s := range 20 {
		p.Heartbeat(at(float64(s)))
	}
	end := p.Deadline()
	p.Suspended(at(19), 0)
	require.Equal(t, end, p.Deadline())
	p.Suspended(at(19), 2*time.Second)
	require.Equal(t, end.Add(-2*time.Second), p.Deadline())
	p.Heartbeat(at(20))
	require.Len(t, p.gaps, 2+19, "a nap of ours is no habit of the sender")
	p.Heartbeat(at(21))
	require.Len(t, p.gaps, 2+20)
	p.Suspended(at(21), time.Hour)
	require.Equal(t, Unknown, p.At(at(21)).State)
	ended := p.At(at(21)).Since
	p.Suspended(at(22), time.Hour)
	require.Equal(t, ended, p.At(at(22)).Since, "what has ended, has ended")
}

func TestPhiConfigFaults(t *testing.T) {
	_, err := NewPhi(PhiConfig{Threshold: math.NaN(), Window: 1, MinDeviation: 1, Pause: -1, First: 1, Limit: -1})
	require.ErrorIs(t, err, ErrConfig)
	require.EqualError(t, err, `health: Threshold is NaN: want 1 to 300
health: Window is 1: want 2 to 10000
health: MinDeviation is 1ns: want 1µs to 1h0m0s
health: Pause is -1ns: want 1ns to 1h0m0s
health: First is 1ns: want 1ms to 1h0m0s
health: Limit is -1ns: want 1ms to 24h0m0s`)
}
