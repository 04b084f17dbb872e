// Package tcpproxy is the TCP balancer that the examples share: it takes
// connections, gives each to a backend that a [lb.Balancer] picks, and copies both
// ways until both sides are done.
//
// A backend that refuses, or does not answer within the connect timeout, costs the
// client some time but not its connection: the next one is tried, until all were.
// Which backends are up is decided elsewhere, by whoever sets the balancer.
//
// While every backend has as many connections as it may, new ones wait in a queue of
// limited length, for a limited time.
//
// A server may be told by a PROXY header who its client is.
//
// Bytes are copied by io.Copy between two TCP connections, which on Linux moves
// them by splice without taking them through user space. A connection so holds up
// to [Descriptors] file descriptors, also while idle.
//
// An end is passed on as what it was. When one side ends its half in order, the
// other sees the end of the stream and may go on sending. When one side breaks off,
// the other is reset, as a client must never take a truncated answer for a whole
// one.
//
// Not implemented: idle timeouts (dead peers are found by TCP keep-alive, after
// about two and a half minutes). Whether a client that waits for a
// backend has left meanwhile is not looked at.
package tcpproxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastbeat/lastbeat/health"
	"github.com/lastbeat/lastbeat/lb"
	"golang.org/x/sync/semaphore"
)

// Descriptors is how many file descriptors one proxied connection holds at most:
// two sockets, and a pipe of two ends for each direction.
const Descriptors = 6

// Config configures a [Proxy].
type Config struct {
	// Backends picks who gets a connection. Required.
	Backends *lb.Balancer[Server]
	// MaxConns is how many connections are served at once. More wait in the
	// kernel's accept queue. Required, at least 1.
	MaxConns int
	// ConnectTimeout is how long one backend may take to accept. Default 1 s.
	ConnectTimeout time.Duration
	// QueueSize is how many connections may wait, of those that found every
	// backend full. Default 0: they are reset at once.
	QueueSize int
	// QueueTimeout is how long one of them may wait before it is reset. Default 5 s.
	QueueTimeout time.Duration
	// Grace is how long connections may go on after the end of Run's context
	// before they are broken off. Default 0.
	Grace time.Duration
	// Dial connects to a backend. Default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Log gets a line for each failed attempt (level Debug) and for each pause of
	// accept (Warn). Default: nobody.
	Log *slog.Logger
}

// Stats are numbers about a [Proxy] since it was made.
type Stats struct {
	Open         int64  `json:"open"`          // connections at present, those that look for a backend included
	Queued       int64  `json:"queued"`        // those of them that wait for a backend with room
	Accepted     uint64 `json:"accepted"`      // connections taken from clients
	Served       uint64 `json:"served"`        // connections that got a backend
	Retried      uint64 `json:"retried"`       // attempts after a failed one for the same connection
	Unserved     uint64 `json:"unserved"`      // connections for which no backend was found
	Waited       uint64 `json:"waited"`        // connections that ever waited for a backend with room
	QueueFull    uint64 `json:"queue_full"`    // those of Unserved that found no place to wait
	QueueTimeout uint64 `json:"queue_timeout"` // those of Unserved that waited in vain
	BrokenOff    uint64 `json:"broken_off"`    // served connections that did not end in order on both sides
}

// Proxy serves one or more listeners. Make one with [New].
type Proxy struct {
	config Config
	slots  *semaphore.Weighted
	queue  queue

	open                                           atomic.Int64
	accepted, served, retried, unserved, brokenOff atomic.Uint64
	queued, queueFull, queueTimeout                atomic.Uint64
}

// New returns a proxy, or all faults of its config.
func New(config Config) (*Proxy, error) {
	var faults []error
	if config.Backends == nil {
		faults = append(faults, errors.New("tcpproxy: Backends is nil: give a balancer"))
	}
	if config.MaxConns < 1 {
		faults = append(faults, fmt.Errorf("tcpproxy: MaxConns is %d: want at least 1", config.MaxConns))
	}
	if config.ConnectTimeout < 0 {
		faults = append(faults, fmt.Errorf("tcpproxy: ConnectTimeout is %v: want more than 0", config.ConnectTimeout))
	}
	if config.QueueSize < 0 {
		faults = append(faults, fmt.Errorf("tcpproxy: QueueSize is %d: want 0 or more", config.QueueSize))
	}
	if config.QueueTimeout < 0 {
		faults = append(faults, fmt.Errorf("tcpproxy: QueueTimeout is %v: want more than 0", config.QueueTimeout))
	}
	if config.Grace < 0 {
		faults = append(faults, fmt.Errorf("tcpproxy: Grace is %v: want 0 or more", config.Grace))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = time.Second
	}
	if config.QueueTimeout == 0 {
		config.QueueTimeout = 5 * time.Second
	}
	if config.Dial == nil {
		config.Dial = new(net.Dialer).DialContext
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	return &Proxy{config: config, slots: semaphore.NewWeighted(int64(config.MaxConns)), queue: queue{limit: config.QueueSize}}, nil
}

// Stats returns the proxy's numbers. They are read one after the other.
func (p *Proxy) Stats() Stats {
	return Stats{
		Open: p.open.Load(), Accepted: p.accepted.Load(), Served: p.served.Load(),
		Retried: p.retried.Load(), Unserved: p.unserved.Load(), BrokenOff: p.brokenOff.Load(),
		Queued: int64(p.queue.length()), Waited: p.queued.Load(), QueueFull: p.queueFull.Load(), QueueTimeout: p.queueTimeout.Load(),
	}
}

// Run serves the listener, which it closes, until ctx ends, and returns nil when
// all its connections have ended. It returns an error if the listener breaks. It
// may be called for several listeners; MaxConns counts them together.
func (p *Proxy) Run(ctx context.Context, listener net.Listener) error {
	// Connections live until hard ends, Grace after ctx.
	hard, breakOff := context.WithCancel(context.WithoutCancel(ctx))
	defer breakOff()
	defer context.AfterFunc(ctx, func() {
		listener.Close() // wakes Accept
		if p.config.Grace == 0 {
			breakOff()
			return
		}
		timer := time.AfterFunc(p.config.Grace, breakOff)
		context.AfterFunc(hard, func() { timer.Stop() })
	})()

	var conns sync.WaitGroup
	err := p.accept(ctx, listener, func(client *net.TCPConn) {
		conns.Go(func() {
			defer p.slots.Release(1)
			p.open.Add(1)
			defer p.open.Add(-1)
			p.serve(hard, client)
		})
	})
	if err != nil {
		breakOff()
	}
	listener.Close()
	conns.Wait()
	return err
}

// accept calls serve for each connection, each with one of the slots. It returns nil
// when ctx ends.
func (p *Proxy) accept(ctx context.Context, listener net.Listener, serve func(*net.TCPConn)) error {
	const longest = time.Second
	pause := time.Duration(0)
	for {
		// The slot comes first: a connection that could not be served yet is
		// better off in the kernel's queue, where another process may take it.
		if p.slots.Acquire(ctx, 1) != nil {
			return nil
		}
		conn, err := listener.Accept()
		if err == nil {
			if client, ok := conn.(*net.TCPConn); ok {
				pause = 0
				p.accepted.Add(1)
				serve(client)
				continue
			}
			conn.Close()
			err = fmt.Errorf("%T is no TCP connection", conn)
		}
		p.slots.Release(1)
		if ctx.Err() != nil {
			return nil
		}
		// Out of descriptors or memory: the connection stays in the queue, so
		// trying again at once would spin. Anything else will not mend itself.
		if health.Classify(err) != health.LocalError {
			return fmt.Errorf("tcpproxy: accept on %v: %w", listener.Addr(), err)
		}
		pause = min(max(2*pause, 5*time.Millisecond), longest)
		p.config.Log.Warn("accept failed, waiting", "listener", listener.Addr(), "pause", pause, "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// serve finds a backend for client and copies until both are done or ctx ends.
func (p *Proxy) serve(ctx context.Context, client *net.TCPConn) {
	backend, lease, err := p.connect(ctx, client)
	if err != nil {
		p.unserved.Add(1)
		p.config.Log.Debug("no backend took the connection", "client", client.RemoteAddr(), "err", err)
		abort(client)
		return
	}
	p.served.Add(1)
	traffic := lease.Value().Traffic
	if traffic == nil {
		traffic = new(Traffic)
	}
	if !relay(ctx, client, backend, traffic) {
		p.brokenOff.Add(1)
	}
	// Who broke off, and whose fault it was, can't be told from here: a client
	// that leaves and a server that crashes look alike. Health checks judge.
	p.done(lease, lb.Result{})
}

// relay copies both ways, and tells whether both ends came in order. It closes both
// connections. When ctx ends it breaks them off.
func relay(ctx context.Context, client, backend *net.TCPConn, traffic *Traffic) bool {
	var broken atomic.Bool
	breakOff := func() {
		broken.Store(true)
		abort(client)
		abort(backend)
	}
	defer context.AfterFunc(ctx, breakOff)()

	half := func(dst, src *net.TCPConn, total *atomic.Uint64) {
		if err := count(dst, src, total); err != nil {
			breakOff()
			return
		}
		if err := dst.CloseWrite(); err != nil {
			breakOff()
		}
	}
	var other sync.WaitGroup
	other.Go(func() { half(backend, client, &traffic.In) })
	half(client, backend, &traffic.Out)
	other.Wait()
	client.Close()
	backend.Close()
	return !broken.Load()
}

// abort closes a connection so that its peer sees a reset, not an orderly end.
func abort(conn *net.TCPConn) {
	conn.SetLinger(0) // fails only on a closed one
	conn.Close()
}
