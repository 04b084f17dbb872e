package node

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/lastbeat/lastbeat/examples/internal/balancer"
	"github.com/lastbeat/lastbeat/health"
	"github.com/lastbeat/lastbeat/nft"
)

// Verdict is a statement with its end. One that was not renewed in time has the
// state unknown.
type Verdict struct {
	State      string    `json:"state"`
	Since      time.Time `json:"since"`
	ValidUntil time.Time `json:"valid_until"`
	Reason     string    `json:"reason"`
}

// Status is what the status page tells.
type Status struct {
	Name      string             `json:"name"`
	Instances map[string]Router  `json:"instances"`
	Checks    map[string]Verdict `json:"checks"`
	Redirect  *Rule              `json:"redirect,omitempty"`
	Balancer  *balancer.Status   `json:"balancer,omitempty"`
}

// Router is a virtual router's part of the status: who holds the addresses, since
// when, until when that is true, and why.
type Router struct {
	Verdict
	Holder    string   `json:"holder,omitempty"` // address of the active router
	Priority  uint8    `json:"priority"`
	Addresses Verdict  `json:"addresses"`
	Discarded uint64   `json:"discarded"`
	Fault     string   `json:"fault,omitempty"`
	VIPs      []string `json:"vips"`
}

// Rule is the redirect's part of the status.
type Rule struct {
	Verdict
	Counters []nft.Counters `json:"counters,omitempty"`
}

// Status returns what is known now; what was not renewed reads unknown.
func (n *Node) Status(ctx context.Context) Status {
	n.mu.Lock()
	config := n.config
	n.mu.Unlock()
	s := Status{Name: config.Name, Instances: map[string]Router{}, Checks: map[string]Verdict{}}
	for _, i := range config.Instances {
		s.Instances[i.Name] = n.router(i)
	}
	for name, c := range n.monitor.Snapshot() {
		s.Checks[name] = Verdict{c.State.String(), c.Since, c.ValidUntil, c.Reason.String()}
	}
	if n.redirect != nil {
		s.Redirect = &Rule{Verdict: n.redirect.status(time.Now())}
		if counters, err := n.redirect.table.Counters(ctx); err == nil {
			s.Redirect.Counters = counters
		}
	}
	if n.balancer != nil {
		b := n.balancer.Status()
		s.Balancer = &b
	}
	return s
}

func (n *Node) router(i Instance) Router {
	r := n.routers[i.Name]
	st, held := r.Status(), r.Addresses()
	out := Router{
		Verdict:   Verdict{st.State.String(), st.Since, st.ValidUntil, st.Reason.String()},
		Priority:  st.Priority,
		Addresses: Verdict{held.State.String(), held.Since, held.ValidUntil, held.Reason},
		Discarded: r.Stats().DiscardedTotal(),
		VIPs:      make([]string, 0, len(i.Addresses)),
	}
	if st.Holder.IsValid() {
		out.Holder = st.Holder.String()
	}
	if err := errors.Join(r.Err(), held.Err); err != nil {
		out.Fault = err.Error()
	}
	for _, p := range i.Addresses {
		out.VIPs = append(out.VIPs, p.String())
	}
	return out
}

// handler answers /status with everything and /check/NAME with 200 or 503.
func (n *Node) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		_ = out.Encode(n.Status(r.Context())) // fails only when nobody listens any more
	})
	mux.HandleFunc("GET /check/{name}", func(w http.ResponseWriter, r *http.Request) {
		s, ok := n.monitor.Status(r.PathValue("name"))
		switch {
		case !ok:
			http.NotFound(w, r)
		case s.State != health.Online:
			http.Error(w, s.State.String()+": "+s.Reason.String(), http.StatusServiceUnavailable)
		default:
			_, _ = w.Write([]byte("online\n"))
		}
	})
	mux.Handle("GET /{$}", http.RedirectHandler("/status", http.StatusSeeOther))
	return mux
}

// serveStatus serves the status page until ctx ends.
func (n *Node) serveStatus(ctx context.Context, l net.Listener) error {
	const patience = 2 * time.Second
	server := &http.Server{Handler: n.handler(), ReadTimeout: patience, WriteTimeout: patience}
	server.SetKeepAlivesEnabled(false)
	ctx, stop := context.WithCancel(ctx)
	var closing sync.WaitGroup
	closing.Go(func() {
		<-ctx.Done()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(last) != nil {
			server.Close()
		}
	})
	err := server.Serve(l)
	stop()
	closing.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
