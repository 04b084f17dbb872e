// Package balancer is the TCP balancer of the examples as one component: a
// [health.Monitor] judges the backends, its verdicts drive a [lb.Balancer], and a
// [tcpproxy.Proxy] serves clients by it.
//
// The policy is made here, from what the three offer. A backend that is known to be
// alive gets connections in turn. One of which nothing is known (never probed, or
// the observer is unable to) gets some only while none is known to be alive: then
// the judgement is more likely at fault than all of them. One that is proven dead
// gets none, so that clients are told at once and go elsewhere.
//
// What a person wants (drain, maintenance, another weight) stands beside the verdicts:
// a server gets connections if both agree. Verdicts that come together take effect
// together. While every server is full, connections wait.
//
// Not implemented: breaking off connections to a backend that is found dead; keeping
// clients with their servers by a table.
package balancer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lastbeat/lastbeat/examples/internal/tcpproxy"
	"github.com/lastbeat/lastbeat/health"
	"github.com/lastbeat/lastbeat/lb"
)

// B is a balancer. Make one with [New]. Its methods are safe for use by many
// goroutines at once.
type B struct {
	maxConn  int
	note     string
	monitor  *health.Monitor
	backends *lb.Balancer[tcpproxy.Server]
	proxy    *tcpproxy.Proxy
	serving  atomic.Bool

	changes   *changes
	published chan struct{} // capacity 1

	mu        sync.Mutex
	config    Config                       // complete
	listeners map[string]net.Listener      // by key; nil until Listen
	wishes    map[string]wish              // by name; missing: nothing is wanted
	traffic   map[string]*tcpproxy.Traffic // by name, of all that are listed
	judged    bool                         // there was a verdict about each server
	rebuilds  uint64
}

// New returns a balancer, or all faults of its config joined, each an *[Error]. It
// opens nothing.
func New(config Config) (*B, error) { return newLimited(config, descriptorLimit()) }

func newLimited(config Config, limit uint64) (*B, error) {
	config, err := config.complete()
	n, note, limitErr := maxConn(config.MaxConn, limit)
	if err := errors.Join(err, limitErr); err != nil {
		return nil, err
	}
	b := &B{maxConn: n, note: note, config: config, changes: newChanges(), published: make(chan struct{}, 1), wishes: map[string]wish{}, traffic: map[string]*tcpproxy.Traffic{}}
	b.monitor, err = health.NewMonitor(health.MonitorConfig{
		Workers:  32,   // half of the smallest descriptor reserve
		NoSpread: true, // clients wait for the first verdicts
		OnEvent:  b.changes.put,
	})
	if err != nil {
		return nil, err
	}
	by, err := algorithm(config.Algorithm)
	if err != nil {
		return nil, err
	}
	b.backends, err = lb.New[tcpproxy.Server](lb.Config{Algorithm: by, SlowStart: config.SlowStart, Policy: lb.PolicyPanic, Count: true})
	if err != nil {
		return nil, err
	}
	b.proxy, err = tcpproxy.New(tcpproxy.Config{
		Backends: b.backends, MaxConns: n,
		ConnectTimeout: config.ConnectTimeout, Grace: config.Grace, Log: config.Log,
		QueueSize: *config.Queue, QueueTimeout: config.QueueTimeout,
	})
	if err != nil {
		return nil, err
	}
	for _, backend := range config.Backends {
		target, err := config.Check.target(backend)
		if err != nil {
			return nil, err
		}
		if err := b.monitor.Add(target); err != nil {
			return nil, err
		}
	}
	return b, b.publish()
}

// Note tells, for people, that fewer connections are served than Auto would like,
// and why. It is empty when that is not so.
func (b *B) Note() string { return b.note }

// Listen opens the ports. Run does so itself; a program that must do nothing else
// before it knows that its ports are free calls Listen first, and then Run, which
// closes them. A failure is an *[Error], and leaves none open.
func (b *B) Listen() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listeners != nil {
		return nil
	}
	open := map[string]net.Listener{}
	for _, l := range b.config.addresses() {
		if l.address == "" {
			continue
		}
		listener, err := net.Listen("tcp", l.address)
		if err != nil {
			for _, l := range open {
				l.Close()
			}
			return listenError(l.key, l.address, err)
		}
		open[l.key] = listener
	}
	b.listeners = open
	return nil
}

func listenError(key, address string, err error) error {
	remedy := "choose another address"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		remedy = "stop the other program or choose another port"
	case errors.Is(err, syscall.EACCES):
		remedy = "choose a port above 1023, or run as root or with CAP_NET_BIND_SERVICE"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		remedy = "use an address of this machine, or none to listen on all"
	}
	// The system's words alone: what was tried and where the Error says itself.
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		err = errno
	}
	return &Error{key, address, err, remedy}
}

// Run serves until ctx ends, and returns nil when all connections have ended, at
// the latest Grace later. It returns an *[Error] when a port can't be opened,
// another error when one breaks. It may be called once.
func (b *B) Run(ctx context.Context) error {
	if err := b.Listen(); err != nil {
		return err
	}
	b.mu.Lock()
	listeners := b.listeners
	b.mu.Unlock()

	// Probes and HTTP ports live as long as the proxy, which outlives ctx by the
	// grace time.
	group, serve := errgroup.WithContext(ctx)
	rest, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	// The port is open: from here on connections are taken, if not at once.
	b.serving.Store(true)
	group.Go(func() error { return b.monitor.Run(rest) })
	group.Go(func() error { return b.drive(rest) })
	if l := listeners["ready"]; l != nil {
		group.Go(func() error { return serveHTTP(rest, "ready", l, http.HandlerFunc(b.answerReady)) })
	}
	if l := listeners["monitor"]; l != nil {
		group.Go(func() error { return serveHTTP(rest, "monitor", l, http.HandlerFunc(b.answerMonitor)) })
	}
	if l := listeners["stats"]; l != nil {
		group.Go(func() error { return serveHTTP(rest, "stats", l, b.stats()) })
	}
	if l := listeners["control"]; l != nil {
		group.Go(func() error { return serveHTTP(rest, "control", l, b.control()) })
	}
	group.Go(func() error {
		defer end()
		defer context.AfterFunc(serve, func() { b.serving.Store(false) })()
		defer b.serving.Store(false)
		return b.proxy.Run(serve, listeners["listen"])
	})
	return group.Wait()
}

// serveHTTP answers requests until ctx ends.
func serveHTTP(ctx context.Context, key string, l net.Listener, answer http.Handler) error {
	const patience = time.Second
	server := &http.Server{Handler: answer, ReadTimeout: patience, WriteTimeout: patience,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	server.SetKeepAlivesEnabled(false)

	ctx, cancel := context.WithCancel(ctx)
	var end sync.WaitGroup
	end.Go(func() {
		<-ctx.Done()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if server.Shutdown(last) != nil {
			server.Close()
		}
	})
	err := server.Serve(l)
	cancel()
	end.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("balancer: %s %v: %w", key, l.Addr(), err)
}

func (b *B) answerReady(w http.ResponseWriter, _ *http.Request) {
	if !b.Ready() {
		http.Error(w, "not serving", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

func (b *B) answerMonitor(w http.ResponseWriter, _ *http.Request) {
	status := b.Status()
	w.Header().Set("Content-Type", "application/json") // before the code
	if status.Live == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	answerJSON(w, status)
}

// Ready tells whether this process takes connections: the port is open and Run's
// context has not ended. It stays true while all MaxConn places are taken.
func (b *B) Ready() bool { return b.serving.Load() }

// Live returns how many backends are known to be alive now and may get new
// connections.
func (b *B) Live() int {
	verdicts := b.monitor.Snapshot()
	b.mu.Lock()
	defer b.mu.Unlock()
	live := 0
	for _, s := range b.config.Backends {
		if b.wishes[s.Name].usable(s, verdicts[s.Name].State) {
			live++
		}
	}
	return live
}
