package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/internal/sim"
)

// beacon sends its count to another host every second and writes down what it hears.
type beacon struct {
	host  *sim.Host
	to    *sim.Host
	next  time.Time
	count int
	heard []string
	woken []time.Duration
}

func (b *beacon) Wake(now time.Time, inbox []sim.Packet) {
	b.woken = append(b.woken, now.Sub(sim.Epoch))
	for _, p := range inbox {
		b.heard = append(b.heard, fmt.Sprintf("%s:%s@%v", p.From.Name, p.Data, p.At.Sub(sim.Epoch)))
	}
	if !now.Before(b.next) {
		if b.to != nil {
			b.host.Send(b.to, fmt.Append(nil, b.count))
		}
		b.count++
		b.next = now.Add(time.Second)
	}
}

func (b *beacon) Deadline() time.Time { return b.next }

func pair(seed uint64, link sim.Link) (*sim.World, *sim.Net, *beacon, *beacon) {
	w := sim.New(seed)
	n := w.NewNet(link)
	a, b := &beacon{}, &beacon{}
	a.host, b.host = n.Host("a", a), n.Host("b", b)
	a.to = b.host
	return w, n, a, b
}

var perfect = sim.Link{MinDelay: time.Millisecond, MaxDelay: time.Millisecond}

func at(d time.Duration) time.Time { return sim.Epoch.Add(d) }

func TestDelivery(t *testing.T) {
	w, _, _, b := pair(1, perfect)
	w.Run(at(2500 * time.Millisecond))
	require.Equal(t, []string{"a:0@1ms", "a:1@1.001s", "a:2@2.001s"}, b.heard)
	require.Equal(t, at(2500*time.Millisecond), w.Now())
}

// The order of events of one instant is the order in which they were asked for.
func TestOrderWithinAnInstant(t *testing.T) {
	w := sim.New(1)
	var got []int
	for i := range 5 {
		w.After(time.Second, func() { got = append(got, i) })
	}
	w.At(sim.Epoch.Add(-time.Hour), func() { got = append(got, -1) }) // the past is now
	w.Run(at(time.Second))
	require.Equal(t, []int{-1, 0, 1, 2, 3, 4}, got)
}

func TestSameSeedSameRun(t *testing.T) {
	rough := sim.Link{MinDelay: 0, MaxDelay: 300 * time.Millisecond, Loss: 0.3, Duplicate: 0.3}
	run := func(seed uint64) []string {
		w, _, _, b := pair(seed, rough)
		w.Run(at(100 * time.Second))
		return b.heard
	}
	require.Equal(t, run(7), run(7))
	require.NotEqual(t, run(7), run(8))
	n := len(run(7))
	require.Greater(t, n, 60, "of 101 sent, 30 % lost, 30 % doubled")
	require.Less(t, n, 120)
}

func TestCutAndHeal(t *testing.T) {
	w, n, a, b := pair(1, perfect)
	w.Run(at(500 * time.Millisecond))
	n.Isolate(a.host, true)
	require.False(t, n.Connected(a.host, b.host))
	w.Run(at(1500 * time.Millisecond))
	n.Isolate(a.host, false)
	require.True(t, n.Connected(a.host, b.host))
	w.Run(at(2500 * time.Millisecond))
	require.Equal(t, []string{"a:0@1ms", "a:2@2.001s"}, b.heard)
}

// A frozen process finds what arrived meanwhile, with the true arrival times.
func TestFreeze(t *testing.T) {
	w, _, _, b := pair(1, perfect)
	w.Run(at(500 * time.Millisecond))
	b.host.Freeze(2 * time.Second)
	w.Run(at(2499 * time.Millisecond))
	require.Equal(t, []string{"a:0@1ms"}, b.heard)
	w.Run(at(2600 * time.Millisecond))
	require.Equal(t, []string{"a:0@1ms", "a:1@1.001s", "a:2@2.001s"}, b.heard)
	require.Contains(t, b.woken, 2500*time.Millisecond)
}

// A suspended host hears nothing of what was sent meanwhile.
func TestSuspend(t *testing.T) {
	w, _, _, b := pair(1, perfect)
	w.Run(at(500 * time.Millisecond))
	b.host.Suspend(2 * time.Second)
	w.Run(at(3100 * time.Millisecond))
	require.Equal(t, []string{"a:0@1ms", "a:3@3.001s"}, b.heard)
}

func TestKill(t *testing.T) {
	w, _, a, b := pair(1, perfect)
	w.Run(at(500 * time.Millisecond))
	b.host.Kill()
	n := len(b.woken)
	w.Run(at(5 * time.Second))
	require.Len(t, b.woken, n)
	require.Equal(t, 6, a.count, "the other one runs on")
}
