package node

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/lastbeat/lastbeat/examples/internal/balancer"
	"github.com/lastbeat/lastbeat/nft"
)

// Verdict is a statement with its end.
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
		r := n.routers[i.Name]
		st, held := r.Status(), r.Addresses()
		router := Router{
			Verdict:   Verdict{st.State.String(), st.Since, st.ValidUntil, st.Reason.String()},
			Priority:  st.Priority,
			Addresses: Verdict{held.State.String(), held.Since, held.ValidUntil, held.Reason},
			Discarded: r.Stats().DiscardedTotal(),
		}
		if st.Holder.IsValid() {
			router.Holder = st.Holder.String()
		}
		if err := errors.Join(r.Err(), held.Err); err != nil {
			router.Fault = err.Error()
		}
		for _, p := range i.Addresses {
			router.VIPs = append(router.VIPs, p.String())
		}
		s.Instances[i.Name] = router
	}
	for name, c := range n.monitor.Snapshot() {
		s.Checks[name] = Verdict{c.State.String(), c.Since, c.ValidUntil, c.Reason.String()}
	}
	if n.redirect != nil {
		st := n.redirect.table.Status()
		s.Redirect = &Rule{Verdict: Verdict{st.State.String(), st.Since, st.ValidUntil, st.Reason.String()}}
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

// serveStatus answers /status with everything and /check/NAME with 200 or 503.
func (n *Node) serveStatus(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		_ = out.Encode(n.Status(r.Context())) // the reader has left
	})
	mux.HandleFunc("GET /check/{name}", func(w http.ResponseWriter, r *http.Request) {
		s, ok := n.monitor.Status(r.PathValue("name"))
		switch {
		case !ok:
			http.NotFound(w, r)
		case !strings.EqualFold(s.State.String(), "online"):
			http.Error(w, s.State.String()+": "+s.Reason.String(), http.StatusServiceUnavailable)
		default:
			_, _ = w.Write([]byte("online\n"))
		}
	})
	mux.Handle("GET /{$}", http.RedirectHandler("/status", http.StatusSeeOther))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
