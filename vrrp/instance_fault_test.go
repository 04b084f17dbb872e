package vrrp

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lastbeat/lastbeat/internal/memnet"
)

// A socket that cannot be opened anew is Fault for as long as that lasts, however
// well the interface looks; and it is not tried more often than that is looked at.
func TestInstanceCannotRedial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := startMemNodes(t, memnet.New(0), 1, func(_ int, c *InstanceConfig) {
			c.Priority, c.Interval, c.Peers = PriorityOwner, 10*time.Millisecond, []netip.Addr{memAddr(9)}
		})[0]
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, node.holds())
		node.mu.Lock()
		node.dialErr, node.dials = errors.New("no buffers"), 0
		node.events = nil
		node.mu.Unlock()
		node.conn.mu.Lock()
		node.conn.broken = errors.New("broken socket")
		node.conn.mu.Unlock()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, Fault, node.Status().State)
		require.Len(t, node.events, 1, "and stays there")
		require.ErrorContains(t, node.Err(), "no buffers")
		require.InDelta(t, 10, node.dials, 2)
		node.mu.Lock()
		node.dialErr = nil
		node.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, node.holds())
		require.NoError(t, node.Err())
		node.finish(t)
	})
}

// A frozen router of a long interval is judged by the protocol as well, not by
// its own watch of the interface, which was frozen with it.
func TestInstanceLinkWatchOutlivesTheDownInterval(t *testing.T) {
	cfg := (*memNode)(nil).cfg0()
	cfg.Interval = 40 * time.Second
	i, err := NewInstance(cfg)
	require.NoError(t, err)
	now := time.Now()
	i.m.Start(now)
	i.report(now)
	for i.m.Status(now).State == Backup {
		now = i.m.Deadline()
		i.report(now)
		i.m.Advance(now)
	}
	i.m.AppendActions(nil)
	i.m.Advance(now.Add(time.Minute))
	require.Equal(t, Active, i.m.Status(now.Add(time.Minute)).State, "no longer than others wait")
	i.m.AppendActions(nil)
	i.m.Advance(now.Add(10 * time.Minute))
	require.Equal(t, Starved, i.m.AppendActions(nil)[1].Reason.Cause)
}

// An interface that was made anew needs a new socket, also when nobody saw it
// missing; and news of it are acted on at once.
func TestInstanceInterfaceMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := startMemNodes(t, memnet.New(time.Millisecond), 2, nil)
		time.Sleep(10*time.Second + 100*time.Millisecond)
		synctest.Wait()
		node := nodes[0]
		old := node.conn
		node.mu.Lock()
		node.index++
		changed := node.changed
		node.mu.Unlock()
		changed()
		synctest.Wait()
		require.NotSame(t, old, node.conn)
		require.Equal(t, 1, old.closed)
		require.True(t, node.holds())

		// The driver has not waited for its next turn: a fault's goodbye is out now.
		node.setLink(errors.New("no carrier"))
		changed()
		synctest.Wait()
		require.Equal(t, Fault, node.events[len(node.events)-1].To)
		for _, n := range nodes {
			n.finish(t)
		}
		require.Equal(t, 1, node.conn.closed)
	})
}

// Adverts that cannot be sent are counted and told. The claim stands, although
// another takes the addresses as well once it has heard nothing for long enough.
func TestInstanceCannotSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := startMemNodes(t, memnet.New(time.Millisecond), 3, nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		node := nodes[0]
		before := node.Stats()
		require.Zero(t, before.SendErrors)
		node.conn.mu.Lock()
		node.conn.deaf = errors.New("operation not permitted")
		node.conn.mu.Unlock()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.True(t, node.holds())
		require.True(t, nodes[1].holds())
		s := node.Stats()
		require.Equal(t, 2*(s.Sent-before.Sent), s.SendErrors, "one for each peer")
		require.ErrorContains(t, node.Err(), "vrrp: send advert to 192.0.2.22: operation not permitted")
		node.conn.mu.Lock()
		node.conn.deaf = nil
		node.conn.mu.Unlock()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.NoError(t, node.Err())
		require.False(t, nodes[1].holds())
		for _, n := range nodes {
			n.finish(t)
		}
	})
}

// A rival is an event too: the holder announces again because of it.
func TestInstanceTellsOfRivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New(time.Millisecond)
		nodes := startMemNodes(t, network, 2, nil)
		time.Sleep(10 * time.Second)
		network.Cut(memAddr(0), memAddr(1), true)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.True(t, nodes[0].holds())
		require.True(t, nodes[1].holds(), "a partition has two holders")
		network.Cut(memAddr(0), memAddr(1), false)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.False(t, nodes[1].holds())
		last := nodes[0].events[len(nodes[0].events)-1]
		require.Equal(t, Event{
			At: last.At, From: Active, To: Active, Priority: 100,
			Reason: Reason{Cause: RivalHeard, Peer: memAddr(1)},
		}, last)
		for _, n := range nodes {
			n.finish(t)
		}
	})
}

// What is reported is acted on at once, not at the next deadline.
func TestInstanceActsOnReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := startMemNodes(t, memnet.New(0), 1, func(_ int, c *InstanceConfig) {
			c.Peers, c.Tracks = []netip.Addr{memAddr(9)}, []Track{{Name: "vital"}}
		})[0]
		require.NoError(t, node.Report("vital", true, time.Now().Add(time.Hour)))
		time.Sleep(10*time.Second + 100*time.Millisecond)
		synctest.Wait()
		require.True(t, node.holds())
		require.NoError(t, node.Report("vital", false, time.Now().Add(time.Hour)))
		synctest.Wait()
		require.False(t, node.holds())
		require.NoError(t, node.SetTracks(nil))
		synctest.Wait()
		require.Equal(t, Backup, node.events[len(node.events)-1].To)
		node.finish(t)
	})
}

// The kernel is given the whole lifetime with each advert.
func TestInstanceRenewsForTheWholeLifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := startMemNodes(t, memnet.New(0), 1, func(_ int, c *InstanceConfig) {
			c.Peers, c.Lifetime = []netip.Addr{memAddr(9)}, 7*time.Second
		})[0]
		time.Sleep(10 * time.Second)
		synctest.Wait()
		var least time.Duration = time.Hour
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			least = min(least, time.Until(node.host.lastEnd()))
		}
		require.GreaterOrEqual(t, least, 6*time.Second-100*time.Millisecond)
		node.finish(t)
	})
}

// No return of Run leaves a goroutine behind.
func TestInstanceLeavesNothingRunning(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	run := func(dialErr, hostErr error) error {
		inst, err := NewInstance((*memNode)(nil).cfg0())
		require.NoError(t, err)
		inst.link = func() (int, error) { return 1, nil }
		inst.dial = func() (transport, error) {
			return &memConn{port: memnet.New(0).Port(memAddr(0)), source: memAddr(0)}, dialErr
		}
		host := newFakeHost()
		host.fault = hostErr
		inst.holder.addrs, inst.holder.ann = host, host
		return inst.Run(t.Context())
	}
	fault := errors.New("fault")
	require.ErrorIs(t, run(fault, nil), fault)
	require.ErrorIs(t, run(nil, fault), fault)
}
