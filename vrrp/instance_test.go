package vrrp

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/internal/memnet"
)

// memConn is a transport in memory. It adds the IP header that a raw socket's
// kernel adds.
type memConn struct {
	port   *memnet.Port
	source netip.Addr

	mu     sync.Mutex
	broken error
	deaf   error         // what sending fails with
	stuck  chan struct{} // non-nil: send blocks until it is closed, and then has lost the packet
	closed int

	turn  time.Time // of the last drain
	turns int       // drains in the same instant
}

func (c *memConn) ready() <-chan struct{} { return c.port.Ready() }

func (c *memConn) drain(receive func(time.Time, []byte)) error {
	c.mu.Lock()
	err := c.broken
	if now := time.Now(); !now.Equal(c.turn) {
		c.turn, c.turns = now, 0
	}
	if c.turns++; c.turns > 1000 {
		panic("the driver's loop spins")
	}
	c.mu.Unlock()
	for _, p := range c.port.Drain() {
		receive(p.At, p.Data)
	}
	return err
}

func (c *memConn) send(dst netip.Addr, msg []byte) error {
	c.mu.Lock()
	stuck, deaf := c.stuck, c.deaf
	c.mu.Unlock()
	if stuck != nil {
		<-stuck
		return errors.New("stuck")
	}
	if deaf != nil {
		return deaf
	}
	pkt := append(make([]byte, 20), msg...)
	pkt[0], pkt[3], pkt[8], pkt[9] = 0x45, byte(len(pkt)), 255, protocolVRRP
	copy(pkt[12:], c.source.AsSlice())
	copy(pkt[16:], dst.AsSlice())
	c.port.Send(dst, pkt)
	return nil
}

func (c *memConn) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed++
	c.port.Close()
	return nil
}

// memNode is an instance in virtual time.
type memNode struct {
	*Instance
	host *fakeHost
	conn *memConn
	stop context.CancelFunc
	done chan error

	mu      sync.Mutex
	linkErr error
	index   int
	changed func() // tells news of the interface
	dialErr error
	dials   int
	events  []Event
	block   chan struct{} // non-nil: OnEvent blocks until it is closed
}

func memAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(21 + i)}) }

func startMemNodes(t *testing.T, network *memnet.Net, n int, edit func(i int, c *InstanceConfig)) []*memNode {
	t.Helper()
	var nodes []*memNode
	for i := range n {
		node := &memNode{host: newFakeHost(), done: make(chan error, 1)}
		cfg := InstanceConfig{Interface: "eth0", Prefixes: holderPrefixes[:1]}
		cfg.VRID, cfg.Priority, cfg.Source = 7, uint8(100-10*i), memAddr(i)
		for j := range n {
			if j != i {
				cfg.Peers = append(cfg.Peers, memAddr(j))
			}
		}
		cfg.OnEvent = func(e Event) {
			node.mu.Lock()
			node.events = append(node.events, e)
			block := node.block
			node.mu.Unlock()
			if block != nil {
				<-block
			}
		}
		if edit != nil {
			edit(i, &cfg)
		}
		inst, err := NewInstance(cfg)
		require.NoError(t, err)
		inst.holder.addrs, inst.holder.ann = node.host, node.host
		inst.dial = func() (transport, error) {
			node.mu.Lock()
			defer node.mu.Unlock()
			node.dials++
			if node.dialErr != nil {
				return nil, node.dialErr
			}
			node.conn = &memConn{port: network.Port(cfg.Source), source: cfg.Source}
			return node.conn, nil
		}
		inst.link = func() (int, error) {
			node.mu.Lock()
			defer node.mu.Unlock()
			return 1 + node.index, node.linkErr
		}
		inst.news = func(ctx context.Context, changed func()) {
			node.mu.Lock()
			node.changed = changed
			node.mu.Unlock()
			<-ctx.Done()
		}
		node.Instance = inst
		var ctx context.Context
		ctx, node.stop = context.WithCancel(t.Context())
		go func() { node.done <- inst.Run(ctx) }()
		nodes = append(nodes, node)
	}
	return nodes
}

func (n *memNode) finish(t *testing.T) {
	t.Helper()
	n.stop()
	require.NoError(t, <-n.done)
}

func (n *memNode) holds() bool { return len(n.host.present()) > 0 }

func (n *memNode) setLink(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.linkErr = err
}

// The shipped loop, on a network in memory: the best node holds the address, the
// next one takes over, the best one takes it back, all say goodbye.
func TestInstanceFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := startMemNodes(t, memnet.New(time.Millisecond), 3, nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, []bool{true, false, false}, []bool{nodes[0].holds(), nodes[1].holds(), nodes[2].holds()})
		require.Equal(t, HolderHeld, nodes[0].Addresses().State)
		require.Equal(t, memAddr(0), nodes[2].Status().Holder)

		begin := time.Now()
		nodes[0].finish(t)
		require.False(t, nodes[0].holds())
		require.Equal(t, 1, nodes[0].conn.closed)
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, nodes[1].holds())
		took := nodes[1].Status().Since.Sub(begin)
		require.Equal(t, skew(3, 90, time.Second)+time.Millisecond, took, "the skew after the goodbye")
		require.Equal(t, HolderLeft, nodes[1].Status().Reason.Cause)
		nodes[1].finish(t)
		nodes[2].finish(t)
	})
}

// A loop that hangs reads Unknown, is replaced, and when it runs again lets go
// before it looks at anything else: the adverts which it still meant to send
// would make its successor yield.
func TestInstanceStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := startMemNodes(t, memnet.New(time.Millisecond), 3, func(_ int, c *InstanceConfig) { c.Priority = 100 })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		// Of equals the highest address holds; the second highest follows it, and is
		// the last one that the holder sends to.
		other, holder := nodes[1], nodes[2]
		require.Equal(t, Active, holder.Status().State)

		stuck := make(chan struct{})
		holder.conn.mu.Lock()
		holder.conn.stuck = stuck
		holder.conn.mu.Unlock()
		time.Sleep(20 * time.Second)
		require.True(t, other.holds())
		require.False(t, holder.holds(), "the token that comes with each advert ended")
		frames := holder.host.frames()
		since := other.Status().Since
		holder.conn.mu.Lock()
		holder.conn.stuck = nil
		holder.conn.mu.Unlock()
		close(stuck)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, Backup, holder.Status().State)
		require.Equal(t, Active, other.Status().State)
		require.Equal(t, since, other.Status().Since, "its successor never yielded")
		require.Equal(t, frames, holder.host.frames(), "and announces nothing")
		for _, n := range nodes {
			n.finish(t)
		}
	})
}

// After Run has returned, every status reads Unknown in time.
func TestInstanceStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := startMemNodes(t, memnet.New(0), 1, func(_ int, c *InstanceConfig) { c.Peers = []netip.Addr{memAddr(9)} })[0]
		time.Sleep(10 * time.Second)
		require.Equal(t, Active, node.Status().State)
		node.finish(t)
		require.Equal(t, Initialize, node.Status().State)
		require.Equal(t, HolderUnknown, node.Addresses().State)
		time.Sleep(10 * time.Second)
		require.Equal(t, Unknown, node.Status().State)
		require.ErrorIs(t, node.Run(t.Context()), errInstanceRunTwice)
	})
}

// https://github.com/acassen/keepalived/issues/1847: who cannot be heard or
// cannot hear is in Fault; silence proves nothing there.
func TestInstanceLinkFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := startMemNodes(t, memnet.New(time.Millisecond), 2, nil)
		time.Sleep(10 * time.Second)
		nodes[0].setLink(errors.New("no carrier"))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Equal(t, Fault, nodes[0].Status().State)
		require.ErrorContains(t, nodes[0].Err(), "no carrier")
		require.False(t, nodes[0].holds())
		require.True(t, nodes[1].holds())

		nodes[0].setLink(nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.True(t, nodes[0].holds())

		// The socket breaks: the instance opens another one.
		first := nodes[0].conn
		first.mu.Lock()
		first.broken = errors.New("broken socket")
		first.mu.Unlock()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.NotSame(t, first, nodes[0].conn)
		require.Equal(t, 1, first.closed)
		require.True(t, nodes[0].holds())
		for _, n := range nodes {
			n.finish(t)
		}
	})
}

// https://github.com/acassen/keepalived/issues/211: a consumer that hangs delays
// no advert, and learns the final state when it comes back.
func TestInstanceSlowConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := startMemNodes(t, memnet.New(time.Millisecond), 2, nil)
		block := make(chan struct{})
		nodes[0].mu.Lock()
		nodes[0].block = block
		nodes[0].mu.Unlock()
		for range 60 {
			nodes[0].setLink(errors.New("flaps"))
			time.Sleep(3 * time.Second)
			nodes[0].setLink(nil)
			time.Sleep(6 * time.Second)
		}
		synctest.Wait()
		require.True(t, nodes[0].holds(), "the protocol never waited")
		require.LessOrEqual(t, len(nodes[0].events), 2, "one may have passed before the consumer hung")
		close(block)
		time.Sleep(time.Second)
		synctest.Wait()
		events := nodes[0].events
		last := events[len(events)-1]
		require.Equal(t, Active, last.To)
		require.Positive(t, last.Missed)
		require.LessOrEqual(t, len(events), eventBoxSize+2)
		for k := 1; k < len(events); k++ {
			require.Equal(t, events[k-1].To, events[k].From, "no gap between the events")
		}
		for _, n := range nodes {
			n.finish(t)
		}
	})
}

// A fault at the start ends Run with its cause, and nothing runs on.
func TestInstanceCannotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := startMemNodes(t, memnet.New(0), 1, func(_ int, c *InstanceConfig) { c.Peers = []netip.Addr{memAddr(9)} })[0]
		node.finish(t)
		inst, err := NewInstance(node.cfg0())
		require.NoError(t, err)
		inst.link = func() (int, error) { return 0, ErrNoInterface }
		err = inst.Run(t.Context())
		require.ErrorIs(t, err, ErrNoInterface)
		require.EqualError(t, err, "vrrp: receive adverts on eth0: no such interface")

		inst, err = NewInstance(node.cfg0())
		require.NoError(t, err)
		inst.link = func() (int, error) { return 1, nil }
		inst.news = func(ctx context.Context, _ func()) { <-ctx.Done() }
		inst.dial = func() (transport, error) {
			return &memConn{port: memnet.New(0).Port(memAddr(0)), source: memAddr(0)}, nil
		}
		host := newFakeHost()
		host.fault = errors.New("the kernel says no")
		inst.holder.addrs, inst.holder.ann = host, host
		require.ErrorContains(t, inst.Run(t.Context()), "the kernel says no")
	})
}

// cfg0 is a fresh configuration for one lonely node.
func (n *memNode) cfg0() InstanceConfig {
	cfg := InstanceConfig{Interface: "eth0", Prefixes: holderPrefixes[:1]}
	cfg.VRID, cfg.Source, cfg.Peers = 7, memAddr(0), []netip.Addr{memAddr(9)}
	return cfg
}

func TestInstanceConfigFaults(t *testing.T) {
	_, err := NewInstance(InstanceConfig{})
	for _, want := range []string{"VRID", "no address", "interface is empty", "peers"} {
		require.ErrorContains(t, err, want)
	}
	cfg := (*memNode)(nil).cfg0()
	cfg.Addrs, cfg.VRID = []netip.Addr{memAddr(5)}, 0
	_, err = NewInstance(cfg)
	require.ErrorContains(t, err, "leave Addrs empty")
	require.ErrorContains(t, err, "VRID")
}

func TestInstanceReport(t *testing.T) {
	cfg := (*memNode)(nil).cfg0()
	cfg.Tracks = []Track{{Name: "bonus", Weight: 20}}
	i, err := NewInstance(cfg)
	require.NoError(t, err)
	soon := time.Now().Add(time.Hour)
	require.NoError(t, i.Report("bonus", true, soon))
	require.EqualValues(t, 120, i.Status().Priority)
	require.ErrorIs(t, i.Report("nonsense", true, soon), ErrTrack)
	require.ErrorIs(t, i.Report("interface eth0", true, soon), ErrTrack, "nobody but the instance looks at its interface")

	require.NoError(t, i.SetTracks([]Track{{Name: "bonus", Weight: 30}}))
	require.EqualValues(t, 130, i.Status().Priority)
	require.ErrorContains(t, i.SetTracks([]Track{{Name: "interface eth0"}}), "named twice")
	i.m.Start(time.Now())
	require.Equal(t, "interface eth0", i.Status().Reason.Track, "the interface's own track stays")
}

// A kernel stamp is taken for what it is: a wall clock that may have been set.
func TestArrival(t *testing.T) {
	now := time.Now()
	drained := now.Add(-time.Second)
	for name, tt := range map[string]struct{ stamp, want time.Duration }{
		"300 ms ago":                   {-300 * time.Millisecond, -300 * time.Millisecond},
		"the clock was set back":       {time.Hour, 0},
		"the clock was set forward":    {-time.Hour, -time.Second},
		"this very moment":             {0, 0},
		"just after the last emptying": {-time.Second, -time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			got := arrival(now, now.Round(0).Add(tt.stamp), drained)
			require.Equal(t, tt.want, got.Sub(now))
		})
	}
}
