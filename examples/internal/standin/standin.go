// Package standin holds small servers that stand for the parts of a control
// plane which a lab on one machine lacks: the API server, the ingress router,
// the machine config server and the default ingress pod. They answer with their
// name in the header X-Server, so that a client knows whom it reached.
package standin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// ServerHeader is the header that names the server in each answer.
const ServerHeader = "X-Server"

// The ports that the originals listen on. The default ingress has none of its
// own there, since it is found by listing pods.
const (
	APIAddr            = ":6443"  // TLS
	RouterHTTPAddr     = ":80"    // plain
	RouterHTTPSAddr    = ":443"   // TLS
	RouterStatusAddr   = ":1936"  // plain: /healthz, /healthz/ready
	MCSAddr            = ":22624" // plain
	DefaultIngressAddr = ":1937"  // plain
)

// The roles that [ForRole] knows.
const (
	RoleAPI            = "api"
	RoleRouter         = "router"
	RoleMCS            = "mcs"
	RoleDefaultIngress = "default-ingress"
)

// Server is one process's worth of listeners. Its methods may be called from
// any goroutine.
type Server struct {
	name    string
	ports   []port
	unready atomic.Bool
}

type port struct {
	addr    string
	tls     bool
	handler http.Handler
}

// ForRole returns the server of a role on the original's ports.
func ForRole(role, name string) (*Server, error) {
	switch role {
	case RoleAPI:
		return API(name, APIAddr), nil
	case RoleRouter:
		return Router(name, RouterHTTPAddr, RouterHTTPSAddr, RouterStatusAddr), nil
	case RoleMCS:
		return Process(name, MCSAddr), nil
	case RoleDefaultIngress:
		return Process(name, DefaultIngressAddr), nil
	}
	return nil, fmt.Errorf("standin: role %q: use %s, %s, %s or %s", role,
		RoleAPI, RoleRouter, RoleMCS, RoleDefaultIngress)
}

// API stands for an API server: /readyz says whether it is ready, and every
// other path is answered with "ok".
func API(name, addr string) *Server {
	s := &Server{name: name}
	mux := http.NewServeMux()
	mux.HandleFunc("/", ok)
	mux.HandleFunc("/readyz", s.readyz)
	s.listen(addr, true, mux)
	return s
}

// Router stands for an ingress router: it serves any path on two ports, and on
// the third says that it lives (/healthz) and whether it is ready
// (/healthz/ready).
func Router(name, httpAddr, httpsAddr, statusAddr string) *Server {
	s := &Server{name: name}
	status := http.NewServeMux()
	status.HandleFunc("/healthz", ok)
	status.HandleFunc("/healthz/ready", s.readyz)
	s.listen(httpAddr, false, http.HandlerFunc(ok))
	s.listen(httpsAddr, true, http.HandlerFunc(ok))
	s.listen(statusAddr, false, status)
	return s
}

// Process stands for something of which only the existence is checked.
func Process(name, addr string) *Server {
	s := &Server{name: name}
	s.listen(addr, false, http.HandlerFunc(s.readyz))
	return s
}

func (s *Server) listen(addr string, tls bool, h http.Handler) {
	s.ports = append(s.ports, port{addr, tls, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(ServerHeader, s.name)
		h.ServeHTTP(w, r)
	})})
}

// SetReady says what the readiness paths answer. A new server is ready.
func (s *Server) SetReady(ready bool) { s.unready.Store(!ready) }

// Ready returns what SetReady said last.
func (s *Server) Ready() bool { return !s.unready.Load() }

func ok(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if !s.Ready() {
		http.Error(w, "not ready", http.StatusServiceUnavailable)
		return
	}
	ok(w, r)
}

// Run listens, calls listening once with the addresses in the order of the
// constructor's, unless it is nil, and serves until ctx ends.
func (s *Server) Run(ctx context.Context, listening func([]net.Addr)) error {
	listeners, err := s.open(ctx)
	if err != nil {
		return err
	}
	if listening != nil {
		addrs := make([]net.Addr, len(listeners))
		for i, l := range listeners {
			addrs[i] = l.Addr()
		}
		listening(addrs)
	}

	ended := make(chan error, len(listeners))
	servers := make([]*http.Server, len(listeners))
	for i, l := range listeners {
		servers[i] = &http.Server{
			Handler:           s.ports[i].handler,
			ReadHeaderTimeout: 10 * time.Second,
			ErrorLog:          log.New(io.Discard, "", 0), // health checks break off in the handshake
		}
		go func() { ended <- servers[i].Serve(l) }()
	}
	var first error
	left := len(servers)
	select {
	case <-ctx.Done():
	case first = <-ended:
		left--
	}
	goodbye, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	for _, server := range servers {
		if server.Shutdown(goodbye) != nil {
			server.Close()
		}
	}
	for range left {
		<-ended
	}
	if first != nil {
		return fmt.Errorf("standin: %s: %w", s.name, first)
	}
	return nil
}

// open listens on all ports or on none.
func (s *Server) open(ctx context.Context) ([]net.Listener, error) {
	cert, err := certificate(s.name)
	if err != nil {
		return nil, fmt.Errorf("standin: %s: %w", s.name, err)
	}
	var listeners []net.Listener
	for _, p := range s.ports {
		var c net.ListenConfig
		l, err := c.Listen(ctx, "tcp", p.addr)
		if err != nil {
			for _, l := range listeners {
				err = errors.Join(err, l.Close())
			}
			return nil, fmt.Errorf("standin: %s: %w", s.name, err)
		}
		if p.tls {
			l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}})
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}
