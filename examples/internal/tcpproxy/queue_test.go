package tcpproxy

import (
	"context"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/lb"
)

// limit gives each backend room for one connection.
func (b *bench) limit(t *testing.T, most int) {
	require.NoError(t, b.balancer.Update(func(all []lb.Backend[Server]) []lb.Backend[Server] {
		for i := range all {
			all[i].MaxConns = most
		}
		return all
	}))
	b.Wake()
}

// served reads the first byte that comes from a backend.
func served(t *testing.T, conn net.Conn) string {
	name := make([]byte, 1)
	_, err := io.ReadFull(conn, name)
	require.NoError(t, err)
	return string(name)
}

// greeter tells its name and echoes.
func greeter(name string) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		io.WriteString(c, name)
		io.Copy(c, c)
	}
}

func (b *bench) await(t *testing.T, what func(Stats) bool) {
	require.Eventually(t, func() bool { return what(b.Stats()) }, 30*time.Second, time.Millisecond)
}

// Connections wait for room, and get it in the order in which they came.
func TestQueue(t *testing.T) {
	b := start(t, Config{QueueSize: 2, QueueTimeout: time.Hour}, server(t, greeter("a")))
	b.limit(t, 1)
	first := b.connect(t)
	served(t, first)
	second := b.connect(t)
	b.await(t, func(s Stats) bool { return s.Queued == 1 })
	third := b.connect(t)
	b.await(t, func(s Stats) bool { return s.Queued == 2 })

	_, err := b.ask()
	require.ErrorIs(t, err, syscall.ECONNRESET, "no place to wait")
	require.EqualValues(t, 1, b.Stats().QueueFull)

	first.Close()
	served(t, second)
	require.EqualValues(t, 1, b.Stats().Queued)
	second.Close()
	served(t, third)
	third.Close()
	b.await(t, func(s Stats) bool { return s.Open == 0 })
	s := b.Stats()
	require.EqualValues(t, 3, s.Served)
	require.EqualValues(t, 2, s.Waited)
	require.EqualValues(t, 1, s.Unserved)
	require.Zero(t, s.Queued)
	require.Zero(t, b.failed("0"))
}

func TestQueueTimeout(t *testing.T) {
	b := start(t, Config{QueueSize: 2, QueueTimeout: time.Millisecond}, server(t, greeter("a")))
	b.limit(t, 1)
	served(t, b.connect(t))
	_, err := b.ask()
	require.ErrorIs(t, err, syscall.ECONNRESET)
	s := b.Stats()
	require.EqualValues(t, 1, s.QueueTimeout)
	require.EqualValues(t, 1, s.Unserved)
	require.Zero(t, s.Queued)
}

// All that wait are served at once when limits go.
func TestQueueAndNewLimits(t *testing.T) {
	b := start(t, Config{QueueSize: 100, QueueTimeout: time.Hour}, server(t, greeter("a")))
	b.limit(t, 1)
	served(t, b.connect(t))
	var waiting []net.Conn
	for range 20 {
		waiting = append(waiting, b.connect(t))
	}
	b.await(t, func(s Stats) bool { return s.Queued == 20 })
	b.limit(t, 0)
	for _, c := range waiting {
		served(t, c)
	}
	require.Zero(t, b.Stats().Queued)
}

// When no backend may be used any more, nobody waits for one.
func TestQueueAndNobodyLeft(t *testing.T) {
	b := start(t, Config{QueueSize: 100, QueueTimeout: time.Hour}, server(t, greeter("a")))
	b.limit(t, 1)
	served(t, b.connect(t))
	waiting := b.connect(t)
	b.await(t, func(s Stats) bool { return s.Queued == 1 })
	require.NoError(t, b.balancer.Set())
	b.Wake()
	_, err := io.ReadAll(waiting)
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

// One that found a dead backend waits for a full one, and tries the dead one once.
func TestQueueAfterFailure(t *testing.T) {
	b := start(t, Config{QueueSize: 10, QueueTimeout: time.Hour}, refused, server(t, greeter("a")))
	b.limit(t, 1)
	first := b.connect(t)
	served(t, first)
	before := b.failed("0")
	second := b.connect(t)
	b.await(t, func(s Stats) bool { return s.Queued == 1 && b.failed("0") == before+1 })
	b.Wake() // looks again, in vain
	first.Close()
	served(t, second)
	require.Equal(t, before+1, b.failed("0"))
}

// The end of everything ends the waiting.
func TestQueueAndStop(t *testing.T) {
	b := start(t, Config{QueueSize: 10, QueueTimeout: time.Hour}, server(t, greeter("a")))
	b.limit(t, 1)
	served(t, b.connect(t))
	waiting := b.connect(t)
	b.await(t, func(s Stats) bool { return s.Queued == 1 })
	b.stop()
	_, err := io.ReadAll(waiting)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.Zero(t, b.Stats().Queued)
}

// Whoever becomes the first looks once, and again only when woken.
func TestQueueTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue{limit: 3}
		now := func(p *place) bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return p.wait(ctx) == nil
		}
		a, b, c := q.join(), q.join(), q.join()
		require.Nil(t, q.join())
		require.True(t, now(a), "it may have room by now")
		require.False(t, now(a))
		require.False(t, now(b))
		q.wake()
		q.wake()
		require.True(t, now(a))
		require.False(t, now(a))
		b.leave() // gave up, and was not the first
		a.leave()
		a.leave()
		require.True(t, now(c))
		c.leave()
		require.Zero(t, q.length())
		q.wake()
	})
}

// Those that come later do not overtake, even if there is room right now.
func TestQueueIsNotOvertaken(t *testing.T) {
	b := start(t, Config{QueueSize: 2, QueueTimeout: time.Hour}, server(t, greeter("a")))
	before := b.queue.join() // one that has not looked yet
	conn := b.connect(t)
	b.await(t, func(s Stats) bool { return s.Queued == 2 })
	before.leave()
	served(t, conn)
}

// One that has found a backend lets the next one look, however long it takes to
// connect.
func TestQueueMovesWhileFirstDials(t *testing.T) {
	b := start(t, Config{QueueSize: 2, QueueTimeout: time.Hour, ConnectTimeout: time.Hour}, server(t, greeter("a")), silent)
	weight := func(of1 int) {
		require.NoError(t, b.balancer.Update(func(all []lb.Backend[Server]) []lb.Backend[Server] {
			all[1].Weight = of1
			return all
		}))
		b.Wake()
	}
	weight(0)
	b.limit(t, 1)
	first := b.connect(t)
	served(t, first)
	b.connect(t)
	b.await(t, func(s Stats) bool { return s.Queued == 1 })
	third := b.connect(t)
	b.await(t, func(s Stats) bool { return s.Queued == 2 })
	weight(1) // the second gets the silent one
	b.await(t, func(s Stats) bool { return s.Queued == 1 })
	first.Close()
	served(t, third)
}
