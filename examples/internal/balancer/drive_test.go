package balancer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/health"
	"github.com/lastbeat/lastbeat/lb"
)

// driven is a balancer without sockets: its probers are the test's, and time is that
// of a bubble. Servers are up as long as they are not in down.
type driven struct {
	*B
	down sync.Map
	told atomic.Int64 // events
}

func drive(t *testing.T, config Config) *driven {
	d := &driven{}
	config.Listen = ":0"
	config.Check = Check{Kind: "tcp", Interval: time.Second, Rise: 1, Fall: 1}
	config.OnEvent = func(Event) { d.told.Add(1) }
	b, err := New(config)
	require.NoError(t, err)
	d.B = b
	for _, s := range b.config.Backends {
		require.NoError(t, b.monitor.Update(health.Target{Key: s.Name, Config: b.config.Check.health(),
			Prober: health.Func(func(context.Context) error {
				if _, down := d.down.Load(s.Name); down {
					return errors.New("down")
				}
				return nil
			})}))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { b.monitor.Run(ctx) })
	all.Go(func() { b.drive(ctx) })
	t.Cleanup(func() { cancel(); all.Wait() })
	return d
}

// picks counts who gets the next n connections.
func (d *driven) picks(t *testing.T, n int) map[string]int {
	got := map[string]int{}
	for range n {
		lease, err := d.backends.Pick(0)
		require.NoError(t, err)
		got[lease.Key()]++
		lease.Done(time.Now(), lb.Result{})
	}
	return got
}

func (d *driven) count() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rebuilds
}

// Servers that change together cost one rebuild, and each change is told.
func TestManyChangesAreOneRebuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		var servers []Server
		for i := range n {
			servers = append(servers, Server{Name: fmt.Sprint("s", i), Address: fmt.Sprintf("192.0.2.1:%d", i+1)})
		}
		d := drive(t, Config{Backends: servers})
		time.Sleep(500 * time.Millisecond)
		require.EqualValues(t, n, d.told.Load())
		require.EqualValues(t, 2, d.count(), "New's and that of the first verdicts")
		for i := range n {
			d.down.Store(fmt.Sprint("s", i), true)
		}
		time.Sleep(time.Second)
		require.EqualValues(t, 2*n, d.told.Load())
		require.EqualValues(t, 3, d.count())
		_, err := d.backends.Pick(0)
		require.Error(t, err)

		// One server that flips a thousand times within a tick.
		for i := range n {
			d.changes.put(health.Event{Key: "s7", New: health.Status{State: health.State(1 + i%2)}})
		}
		time.Sleep(2 * tick)
		require.EqualValues(t, 4, d.count())
		require.EqualValues(t, 2*n+1, d.told.Load())
	})
}

func TestSlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, Config{Backends: []Server{{Name: "a", Address: "192.0.2.1:1"}, {Name: "b", Address: "192.0.2.2:1", Weight: new(1)}},
			SlowStart: 100 * time.Second})
		time.Sleep(500 * time.Millisecond)
		require.Equal(t, map[string]int{"a": 10, "b": 10}, d.picks(t, 20), "both are new, and so is the balancer")
		d.down.Store("b", true)
		time.Sleep(time.Second)
		require.Equal(t, map[string]int{"a": 20}, d.picks(t, 20))
		d.down.Delete("b")
		time.Sleep(time.Second)
		require.Equal(t, map[string]int{"a": 20, "b": 2}, d.picks(t, 22), "a tenth")
		time.Sleep(50 * time.Second)
		require.Equal(t, map[string]int{"a": 20, "b": 10}, d.picks(t, 30), "half, by the clock alone")
		time.Sleep(50 * time.Second)
		require.Equal(t, map[string]int{"a": 10, "b": 10}, d.picks(t, 20))
	})
}

func TestTiersAndWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, Config{Backends: []Server{
			{Name: "a", Address: "192.0.2.1:1", Weight: new(3)},
			{Name: "b", Address: "192.0.2.2:1"},
			{Name: "idle", Address: "192.0.2.3:1", Weight: new(0)},
			{Name: "backup", Address: "192.0.2.4:1", Tier: 1},
		}})
		time.Sleep(500 * time.Millisecond)
		require.Equal(t, map[string]int{"a": 6, "b": 2}, d.picks(t, 8))
		d.down.Store("a", true)
		d.down.Store("b", true)
		time.Sleep(time.Second)
		require.Equal(t, map[string]int{"backup": 8}, d.picks(t, 8))
	})
}
