package tcpproxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lastbeat/lastbeat/lb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers each connection by handle, on a free port of loopback.
func server(t *testing.T, handle func(*net.TCPConn)) string {
	l := listen(t)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				handle(conn.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return l.Addr().String()
}

func listen(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// echo sends back what it gets, and its end after the client's.
func echo(c *net.TCPConn) { io.Copy(c, c) }

// named tells its name and ends.
func named(name string) func(*net.TCPConn) {
	return func(c *net.TCPConn) { io.WriteString(c, name) }
}

// Addresses of backends that loopback does not have.
const refused, silent = "refused", "silent"

// dial knows refused and silent, and dials others for real.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	switch address {
	case refused:
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	case silent:
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

type bench struct {
	*Proxy
	balancer *lb.Balancer[Server]
	address  string
	stop     func() // ends Run and waits for it
}

func start(t *testing.T, config Config, addresses ...string) *bench {
	var backends []lb.Backend[Server]
	for i, a := range addresses {
		backends = append(backends, lb.Backend[Server]{Key: fmt.Sprint(i), Value: Server{Address: a}, Weight: 1})
	}
	balancer, err := lb.New(lb.Config{Count: true}, backends...)
	require.NoError(t, err)
	config.Backends = balancer
	config.Dial = dial
	if config.MaxConns == 0 {
		config.MaxConns = 100
	}
	p, err := New(config)
	require.NoError(t, err)
	l := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx, l) }()
	b := &bench{Proxy: p, balancer: balancer, address: l.Addr().String()}
	b.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(b.stop)
	return b
}

// connect opens a connection to the proxy, with a bound on how long a broken proxy
// can hold up the test.
func (b *bench) connect(t *testing.T) *net.TCPConn {
	conn, err := net.Dial("tcp", b.address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	return conn.(*net.TCPConn)
}

// ask returns all that the proxy sends until the end of the stream, or the error
// of connecting or reading: a reset may come as early as that.
func (b *bench) ask() (string, error) {
	conn, err := net.Dial("tcp", b.address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	all, err := io.ReadAll(conn)
	return string(all), err
}

func (b *bench) failed(key string) uint64 {
	c, _ := b.balancer.Counts(key)
	return c.Failed
}

func TestRoundRobin(t *testing.T) {
	b := start(t, Config{Grace: time.Hour}, server(t, named("a")), server(t, named("b")), server(t, named("c")))
	got := map[string]int{}
	for range 9 {
		name, err := b.ask()
		require.NoError(t, err)
		got[name]++
	}
	require.Equal(t, map[string]int{"a": 3, "b": 3, "c": 3}, got)
	b.stop()
	require.Equal(t, Stats{Accepted: 9, Served: 9}, b.Stats())
}

// Dead backends cost time, not connections, and their share is spread evenly.
func TestNextBackendIsTried(t *testing.T) {
	for _, dead := range []string{refused, silent} {
		t.Run(dead, func(t *testing.T) {
			b := start(t, Config{Grace: time.Hour}, dead, server(t, named("a")), server(t, named("b")))
			got := map[string]int{}
			for range 4 {
				name, err := b.ask()
				require.NoError(t, err)
				got[name]++
			}
			require.Equal(t, map[string]int{"a": 2, "b": 2}, got)
			b.stop()
			s := b.Stats()
			require.EqualValues(t, 4, s.Served)
			require.Equal(t, s.Retried, b.failed("0"))
			require.NotZero(t, s.Retried)
		})
	}
}

func TestManyBytesBothWays(t *testing.T) {
	b := start(t, Config{}, server(t, echo))
	c := b.connect(t)
	const size = 4 << 20
	go func() {
		io.CopyN(c, zeros{}, size)
		c.CloseWrite()
	}()
	n, err := io.Copy(io.Discard, c)
	require.NoError(t, err)
	require.EqualValues(t, size, n)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// The client ends its half first and still gets an answer that is computed from
// all it sent; the server ends its half first and still gets the rest.
func TestHalfClose(t *testing.T) {
	t.Run("client first", func(t *testing.T) {
		b := start(t, Config{}, server(t, func(c *net.TCPConn) {
			all, _ := io.ReadAll(c)
			fmt.Fprintf(c, "%d bytes", len(all))
		}))
		c := b.connect(t)
		io.WriteString(c, "hello")
		require.NoError(t, c.CloseWrite())
		got, err := io.ReadAll(c)
		require.NoError(t, err)
		require.Equal(t, "5 bytes", string(got))
	})
	t.Run("server first", func(t *testing.T) {
		rest := make(chan string, 1)
		b := start(t, Config{Grace: time.Hour}, server(t, func(c *net.TCPConn) {
			io.WriteString(c, "bye")
			c.CloseWrite()
			all, _ := io.ReadAll(c)
			rest <- string(all)
		}))
		c := b.connect(t)
		got, err := io.ReadAll(c)
		require.NoError(t, err)
		require.Equal(t, "bye", string(got))
		io.WriteString(c, "late")
		require.NoError(t, c.CloseWrite())
		require.Equal(t, "late", <-rest)
		b.stop()
		require.Zero(t, b.Stats().BrokenOff)
	})
}

// An answer that breaks off must not look complete.
func TestResetIsPassedOn(t *testing.T) {
	t.Run("by the server", func(t *testing.T) {
		b := start(t, Config{}, server(t, func(c *net.TCPConn) {
			io.ReadFull(c, make([]byte, 1))
			abort(c)
		}))
		c := b.connect(t)
		io.WriteString(c, "x")
		_, err := io.ReadAll(c)
		require.ErrorIs(t, err, syscall.ECONNRESET)
		c.Close()
		b.stop()
		require.EqualValues(t, 1, b.Stats().BrokenOff)
		require.Zero(t, b.failed("0"), "whose fault it was is not known")
	})
	t.Run("by the client", func(t *testing.T) {
		seen := make(chan error, 1)
		b := start(t, Config{}, server(t, func(c *net.TCPConn) {
			io.WriteString(c, "x")
			_, err := io.ReadAll(c)
			seen <- err
		}))
		c := b.connect(t)
		io.ReadFull(c, make([]byte, 1))
		abort(c)
		require.ErrorIs(t, <-seen, syscall.ECONNRESET)
	})
}

func TestNobodyServes(t *testing.T) {
	for name, addresses := range map[string][]string{"no backend": nil, "none that accepts": {refused, refused}} {
		t.Run(name, func(t *testing.T) {
			b := start(t, Config{}, addresses...)
			_, err := b.ask()
			require.ErrorIs(t, err, syscall.ECONNRESET, "an empty answer would look like one")
			b.stop()
			require.Equal(t, Stats{Accepted: 1, Unserved: 1, Retried: uint64(max(0, len(addresses)-1))}, b.Stats())
		})
	}
}

func TestMaxConns(t *testing.T) {
	b := start(t, Config{MaxConns: 2}, server(t, echo))
	ping := func(c *net.TCPConn) {
		io.WriteString(c, "x")
		_, err := io.ReadFull(c, make([]byte, 1))
		require.NoError(t, err)
	}
	first, second := b.connect(t), b.connect(t)
	ping(first)
	ping(second)
	third := b.connect(t) // the kernel accepts it, the proxy does not
	io.WriteString(third, "x")
	ping(first) // a round trip of the proxy later ...
	require.EqualValues(t, 2, b.Stats().Accepted)
	require.EqualValues(t, 2, b.Stats().Open)
	second.CloseWrite()
	_, err := io.ReadFull(third, make([]byte, 1))
	require.NoError(t, err, "it is served when a place is free")
}

func TestStop(t *testing.T) {
	t.Run("breaks off", func(t *testing.T) {
		b := start(t, Config{}, server(t, echo))
		c := b.connect(t)
		io.WriteString(c, "x")
		io.ReadFull(c, make([]byte, 1))
		b.stop()
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = net.Dial("tcp", b.address)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.Equal(t, Stats{Accepted: 1, Served: 1, BrokenOff: 1}, b.Stats())
		counts, _ := b.balancer.Counts("0")
		require.Equal(t, lb.Counts{Finished: 1}, counts)
	})
	t.Run("grace", func(t *testing.T) {
		b := start(t, Config{Grace: time.Hour}, server(t, echo))
		c := b.connect(t)
		io.WriteString(c, "x")
		io.ReadFull(c, make([]byte, 1))
		stopped := make(chan struct{})
		go func() { b.stop(); close(stopped) }()
		for { // until the listener is gone
			probe, err := net.Dial("tcp", b.address)
			if err != nil {
				break
			}
			probe.Close()
		}
		io.WriteString(c, "y")
		_, err := io.ReadFull(c, make([]byte, 1))
		require.NoError(t, err, "still served")
		c.Close()
		<-stopped
	})
}

// A listener that fails for good ends Run with an error, and its connections.
func TestBrokenListener(t *testing.T) {
	balancer, err := lb.New[Server](lb.Config{})
	require.NoError(t, err)
	p, err := New(Config{Backends: balancer, MaxConns: 1})
	require.NoError(t, err)
	l := listen(t)
	l.Close()
	require.ErrorIs(t, p.Run(t.Context(), l), net.ErrClosed)
}

// Running out of descriptors is not the end: accept is tried again.
func TestAcceptOutOfDescriptors(t *testing.T) {
	balancer, err := lb.New(lb.Config{}, lb.Backend[Server]{Key: "a", Value: Server{Address: server(t, named("a"))}, Weight: 1})
	require.NoError(t, err)
	p, err := New(Config{Backends: balancer, MaxConns: 1})
	require.NoError(t, err)
	l := &failing{Listener: listen(t), failures: 3}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx, l) }()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "a", string(got))
	cancel()
	require.NoError(t, <-ended)
}

// failing fails to accept a few times as the kernel does.
type failing struct {
	net.Listener
	failures int
}

func (f *failing) Accept() (net.Conn, error) {
	if f.failures > 0 {
		f.failures--
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
	}
	return f.Listener.Accept()
}

func TestConfigFaults(t *testing.T) {
	_, err := New(Config{MaxConns: -1, ConnectTimeout: -1, QueueSize: -1, QueueTimeout: -1, Grace: -1})
	require.EqualError(t, err, `tcpproxy: Backends is nil: give a balancer
tcpproxy: MaxConns is -1: want at least 1
tcpproxy: ConnectTimeout is -1ns: want more than 0
tcpproxy: QueueSize is -1: want 0 or more
tcpproxy: QueueTimeout is -1ns: want more than 0
tcpproxy: Grace is -1ns: want 0 or more`)
}
