package balancer

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lastbeat/lastbeat/health"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds how long a test waits for what should come at once; nothing is
// concluded from less.
const patience = 30 * time.Second

// once probes only at the start, so that a verdict does not change by itself.
var once = Check{Kind: "tcp", Interval: time.Hour, Timeout: patience}

// often probes all the time.
var often = Check{Kind: "tcp", Interval: time.Millisecond, Timeout: patience, Fall: 2}

// backend answers each connection with its name, then echoes until its end. It keeps
// what it accepted, to break it off as a killed process does.
type backend struct {
	net.Listener
	address string
	mu      sync.Mutex
	open    []*net.TCPConn
}

func serve(t *testing.T, name string) *backend { return serveAt(t, name, "127.0.0.1:0") }

func serveAt(t *testing.T, name, address string) *backend {
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	b := &backend{Listener: l, address: l.Addr().String()}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b.mu.Lock()
			b.open = append(b.open, conn.(*net.TCPConn))
			b.mu.Unlock()
			all.Go(func() {
				defer conn.Close()
				io.WriteString(conn, name)
				io.Copy(conn, conn)
				conn.(*net.TCPConn).CloseWrite()
			})
		}
	})
	t.Cleanup(func() { b.kill(); all.Wait() })
	return b
}

// kill ends the backend as SIGKILL would: its port refuses, its connections are reset.
func (b *backend) kill() {
	b.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range b.open {
		conn.SetLinger(0)
		conn.Close()
	}
	b.open = nil
}

// rig is a balancer that runs.
type rig struct {
	*B
	events chan Event
	last   map[string]Event // of those taken from events, by backend
	stop   func()
}

func start(t *testing.T, config Config) *rig {
	r := &rig{events: make(chan Event, 1000), last: map[string]Event{}}
	config.Listen, config.Ready, config.Monitor = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	config.OnEvent = func(e Event) { r.events <- e }
	b, err := New(config)
	require.NoError(t, err)
	require.NoError(t, b.Listen())
	r.B = b
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(r.stop)
	return r
}

// await takes events until the last one of backend says that it is up, or not.
func (r *rig) await(t *testing.T, backend string, up bool) Event {
	deadline := time.After(patience)
	for {
		if e, known := r.last[backend]; known && e.Up == up {
			return e
		}
		select {
		case e := <-r.events:
			r.last[e.Backend] = e
		case <-deadline:
			require.FailNow(t, "no event", "%s up=%v; status %+v", backend, up, r.Status())
		}
	}
}

func (r *rig) connect(t *testing.T) *net.TCPConn {
	conn, err := net.Dial("tcp", r.Status().Addresses["listen"])
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return conn.(*net.TCPConn)
}

// name connects and returns the name of the backend that answers.
func (r *rig) name(t *testing.T) string {
	conn := r.connect(t)
	require.NoError(t, conn.CloseWrite())
	name, err := io.ReadAll(conn)
	require.NoError(t, err)
	return string(name)
}

// refused sees a client reset, when connecting or later.
func (r *rig) refused(t *testing.T) {
	conn, err := net.Dial("tcp", r.Status().Addresses["listen"])
	if err == nil {
		defer conn.Close()
		_, err = io.ReadAll(conn)
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

// get returns the status code and body of one of the HTTP ports.
func (r *rig) get(t *testing.T, key string) (int, string) {
	response, body := fetch(t, "http://"+r.Status().Addresses[key]+"/any/path")
	return response.StatusCode, body
}

func fetch(t *testing.T, url string) (*http.Response, string) {
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(url)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response, string(body)
}

func addresses(backends ...*backend) []Server {
	var all []Server
	for _, b := range backends {
		all = append(all, Server{Address: b.address})
	}
	return all
}

func TestRoundRobinOverLiveOnes(t *testing.T) {
	a, b, dead := serve(t, "a"), serve(t, "b"), serve(t, "dead")
	dead.kill()
	r := start(t, Config{Backends: addresses(a, dead, b), Check: often, Grace: time.Hour})
	r.await(t, a.address, true)
	r.await(t, b.address, true)
	e := r.await(t, dead.address, false)
	require.Equal(t, health.Offline, e.State)
	require.Contains(t, e.Reason, "refused")
	require.False(t, e.At.IsZero())

	got := map[string]int{}
	for range 6 {
		got[r.name(t)]++
	}
	require.Equal(t, map[string]int{"a": 3, "b": 3}, got)
	require.Equal(t, 2, r.Live())
	r.stop()
	s := r.Status()
	require.EqualValues(t, 6, s.Conns.Served)
	require.Zero(t, s.Conns.Retried, "a backend known to be dead is not tried")
}

// A backend that died since the last probe costs the client a try, not its connection.
func TestRefusingBackend(t *testing.T) {
	a, dying := serve(t, "a"), serve(t, "dying")
	r := start(t, Config{Backends: addresses(dying, a), Check: once, Grace: time.Hour})
	r.await(t, dying.address, true)
	r.await(t, a.address, true)
	dying.kill()
	for range 4 {
		require.Equal(t, "a", r.name(t))
	}
	r.stop()
	s := r.Status()
	require.NotZero(t, s.Conns.Retried)
	require.Equal(t, s.Conns.Retried, s.Backends[0].Failed)
	require.Zero(t, s.Conns.Unserved)
}

func TestAllDeadAndBack(t *testing.T) {
	a := serve(t, "a")
	r := start(t, Config{Backends: addresses(a), Check: often})
	r.await(t, a.address, true)
	code, body := r.get(t, "monitor")
	require.Equal(t, http.StatusOK, code)
	var status Status
	require.NoError(t, json.Unmarshal([]byte(body), &status))
	require.Equal(t, 1, status.Live)
	require.Equal(t, "online", status.Backends[0].State)
	require.True(t, status.Backends[0].ValidUntil.After(status.Backends[0].Since))

	a.kill()
	r.await(t, a.address, false)
	require.Zero(t, r.Live())
	r.refused(t)
	require.Zero(t, r.Status().Backends[0].Ended, "proven dead, so not even tried")
	code, _ = r.get(t, "monitor")
	require.Equal(t, http.StatusServiceUnavailable, code)
	code, body = r.get(t, "ready")
	require.Equal(t, http.StatusOK, code, "the process serves all the same")
	require.Equal(t, "ready\n", body)

	serveAt(t, "again", a.address)
	r.await(t, a.address, true)
	require.Equal(t, "again", r.name(t))
	code, _ = r.get(t, "monitor")
	require.Equal(t, http.StatusOK, code)
}

// A backend of which nothing is known gets connections when there is no better one,
// and only then; it does not count as alive.
func TestUnknownBackend(t *testing.T) {
	a, b := serve(t, "a"), serve(t, "b")
	check := once
	check.Rise = 2 // so the first probe decides nothing, and the next is an hour away
	r := start(t, Config{Backends: addresses(a), Check: check, Grace: time.Hour})
	require.Equal(t, "a", r.name(t))
	require.Zero(t, r.Live())
	code, _ := r.get(t, "monitor")
	require.Equal(t, http.StatusServiceUnavailable, code)

	_, err := r.Update(Config{Listen: "127.0.0.1:0", Ready: "127.0.0.1:0", Monitor: "127.0.0.1:0", Grace: time.Hour,
		Backends: addresses(a, b), Check: often, OnEvent: func(e Event) { r.events <- e }})
	require.NoError(t, err)
	r.await(t, b.address, true)
	a.kill()
	for range 3 {
		require.Equal(t, "b", r.name(t))
	}
}

// When a backend is killed its connections break, and nobody else's.
func TestKilledBackendDisturbsNobody(t *testing.T) {
	a, b := serve(t, "a"), serve(t, "b")
	r := start(t, Config{Backends: addresses(a, b), Check: once})
	r.await(t, a.address, true)
	r.await(t, b.address, true)
	conns := map[string]*net.TCPConn{}
	for range 2 {
		conn := r.connect(t)
		name := make([]byte, 1)
		_, err := io.ReadFull(conn, name)
		require.NoError(t, err)
		conns[string(name)] = conn
	}
	require.Len(t, conns, 2)
	a.kill()
	_, err := io.ReadAll(conns["a"])
	require.ErrorIs(t, err, syscall.ECONNRESET)
	io.WriteString(conns["b"], "still")
	got := make([]byte, 5)
	_, err = io.ReadFull(conns["b"], got)
	require.NoError(t, err)
	require.Equal(t, "still", string(got))
}

// Half-close: each side may end its half first, and still gets the other's rest.
func TestHalfClose(t *testing.T) {
	t.Run("client first", func(t *testing.T) {
		a := serve(t, "a")
		r := start(t, Config{Backends: addresses(a), Check: once, Grace: time.Hour})
		conn := r.connect(t)
		io.WriteString(conn, " heard")
		require.NoError(t, conn.CloseWrite())
		all, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Equal(t, "a heard", string(all))
		r.stop()
		require.Zero(t, r.Status().Conns.BrokenOff)
	})
	t.Run("backend first", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		rest := make(chan string, 1)
		var all sync.WaitGroup
		defer all.Wait()
		defer l.Close()
		all.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				all.Go(func() {
					defer conn.Close()
					io.WriteString(conn, "bye")
					conn.(*net.TCPConn).CloseWrite()
					if heard, err := io.ReadAll(conn); err == nil && string(heard) == "late" {
						rest <- string(heard)
					}
				})
			}
		})
		r := start(t, Config{Backends: Servers(l.Addr().String()), Check: once, Grace: time.Hour})
		conn := r.connect(t)
		got, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Equal(t, "bye", string(got))
		io.WriteString(conn, "late")
		require.NoError(t, conn.CloseWrite())
		require.Equal(t, "late", <-rest)
		r.stop()
		require.Zero(t, r.Status().Conns.BrokenOff)
	})
}

func TestUpdate(t *testing.T) {
	a, b := serve(t, "a"), serve(t, "b")
	first := Config{Backends: addresses(a), Check: once, Grace: time.Hour}
	r := start(t, first)
	r.await(t, a.address, true)
	since := r.Status().Backends[0].Since
	conn := r.connect(t)
	name := make([]byte, 1)
	_, err := io.ReadFull(conn, name)
	require.NoError(t, err)

	next := first
	next.Listen, next.Ready, next.Monitor = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	next.OnEvent = func(e Event) { r.events <- e }

	t.Run("a bad one changes nothing", func(t *testing.T) {
		bad := next
		bad.Backends = Servers(b.address, b.address)
		_, err := r.Update(bad)
		require.ErrorAs(t, err, new(*Error))
		require.Equal(t, a.address, r.Status().Backends[0].Backend)
	})
	t.Run("one that stays keeps its state", func(t *testing.T) {
		next.Backends = addresses(a, b)
		next.Check.Interval = 2 * time.Hour
		restart, err := r.Update(next)
		require.NoError(t, err)
		require.Empty(t, restart)
		r.await(t, b.address, true)
		require.Equal(t, since, r.Status().Backends[0].Since)
		require.Equal(t, 2, r.Live())
	})
	t.Run("one that goes keeps its connections", func(t *testing.T) {
		next.Backends = addresses(b)
		_, err := r.Update(next)
		require.NoError(t, err)
		require.Equal(t, 1, r.Live())
		for range 3 {
			require.Equal(t, "b", r.name(t))
		}
		io.WriteString(conn, "x")
		_, err = io.ReadFull(conn, name)
		require.NoError(t, err)
		require.Equal(t, "x", string(name))
		conn.Close()
	})
	t.Run("what needs a restart is named", func(t *testing.T) {
		other := next
		other.Listen, other.Monitor, other.MaxConn, other.ConnectTimeout, other.Grace = ":1", "", 7, time.Minute, 0
		other.Algorithm, other.SlowStart, other.Control, other.Stats = "first", time.Minute, "127.0.0.1:1", "127.0.0.1:2"
		other.Queue, other.QueueTimeout = new(7), time.Minute
		restart, err := r.Update(other)
		require.NoError(t, err)
		require.Equal(t, []string{"listen", "monitor", "stats", "control", "maxconn", "algorithm", "slow_start", "connect_timeout", "queue", "queue_timeout", "grace"}, restart)
	})
}

// After the end of its context, Run waits for connections and says that it does not
// serve.
func TestDrain(t *testing.T) {
	a := serve(t, "a")
	r := start(t, Config{Backends: addresses(a), Check: once, Grace: time.Hour})
	r.await(t, a.address, true)
	conn := r.connect(t)
	_, err := io.ReadFull(conn, make([]byte, 1))
	require.NoError(t, err)
	require.True(t, r.Ready())

	stopped := make(chan struct{})
	go func() { defer close(stopped); r.stop() }()
	require.Eventually(t, func() bool { return !r.Ready() }, patience, time.Millisecond)
	code, _ := r.get(t, "ready")
	require.Equal(t, http.StatusServiceUnavailable, code)
	io.WriteString(conn, "x")
	_, err = io.ReadFull(conn, make([]byte, 1))
	require.NoError(t, err, "still served")
	conn.Close()
	<-stopped
}

// When nobody probes any more, what was known ends by itself.
func TestVerdictsExpire(t *testing.T) {
	a := serve(t, "a")
	check := often
	check.Timeout = time.Millisecond // the lease is a second longer
	r := start(t, Config{Backends: addresses(a), Check: check})
	r.await(t, a.address, true)
	r.stop()
	require.Eventually(t, func() bool { return r.Live() == 0 }, patience, time.Millisecond)
	s := r.Status()
	require.Equal(t, "unknown", s.Backends[0].State)
	require.False(t, s.Ready)
}

// The probe asks for the path over TLS, whoever signed the certificate.
func TestChecks(t *testing.T) {
	for _, kind := range []string{"", "https", "http"} {
		t.Run("kind "+kind, func(t *testing.T) {
			var broken atomic.Bool
			paths := make(chan string, 1000)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				select {
				case paths <- r.URL.Path:
				default:
				}
				if broken.Load() {
					w.WriteHeader(http.StatusInternalServerError)
				}
			}))
			if kind == "http" {
				server.Start()
			} else {
				server.StartTLS()
			}
			defer server.Close()
			address := server.Listener.Addr().String()
			check := often
			check.Kind = kind
			r := start(t, Config{Backends: Servers(address), Check: check})
			r.await(t, address, true)
			require.Equal(t, "/readyz", <-paths)
			broken.Store(true)
			require.Contains(t, r.await(t, address, false).Reason, "status 500")
			r.stop()
		})
	}
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	taken := l.Addr().String()
	b, err := New(Config{Listen: "127.0.0.1:0", Monitor: taken})
	require.NoError(t, err)
	err = b.Run(t.Context())
	require.EqualError(t, err, "balancer: monitor "+taken+": address already in use: stop the other program or choose another port")
	e, ok := errors.AsType[*Error](err)
	require.True(t, ok)
	require.Equal(t, "monitor", e.Key)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.Empty(t, b.Status().Addresses)
}
