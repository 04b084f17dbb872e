package balancer

import (
	"maps"
	"time"

	"github.com/lastbeat/lastbeat/examples/internal/tcpproxy"
)

// Status is what a balancer knows now.
type Status struct {
	// Addresses are those listened on, by key; empty until the ports are open.
	Addresses map[string]string `json:"addresses"`
	Ready     bool              `json:"ready"`
	Live      int               `json:"live"`
	// Mode tells on which ground servers get connections: normal, backup, panic
	// (none is known to be alive) or empty (none may be used).
	Mode      string          `json:"mode"`
	Algorithm string          `json:"algorithm"`
	MaxConn   int             `json:"maxconn"`
	Queue     int             `json:"queue"`    // connections that may wait
	Rebuilds  uint64          `json:"rebuilds"` // changes of the set of backends that took effect
	Conns     tcpproxy.Stats  `json:"conns"`
	Backends  []BackendStatus `json:"backends"`
}

// BackendStatus is what is known about a backend, and its connections.
type BackendStatus struct {
	Backend    string    `json:"backend"` // its name
	Address    string    `json:"address"`
	Weight     int       `json:"weight"`
	Tier       int       `json:"tier"`
	MaxConn    int       `json:"maxconn,omitzero"` // none without
	Admin      string    `json:"admin"`            // ready, drain or maint: what a person wants
	AdminSince time.Time `json:"admin_since,omitzero"`
	Usable     bool      `json:"usable"` // alive, and wanted: gets new connections
	State      string    `json:"state"`  // unknown, online, offline or error
	Since      time.Time `json:"since,omitzero"`
	ValidUntil time.Time `json:"valid_until,omitzero"`
	Reason     string    `json:"reason"`
	Open       uint64    `json:"open"`      // connections at present
	Ended      uint64    `json:"ended"`     // connections, failed attempts included
	Failed     uint64    `json:"failed"`    // attempts that were refused or timed out
	In         uint64    `json:"bytes_in"`  // from clients
	Out        uint64    `json:"bytes_out"` // to clients
}

// Status returns what is known now. A verdict that was not renewed reads unknown,
// also when Run hangs or has ended.
func (b *B) Status() Status {
	b.mu.Lock()
	backends := b.config.Backends // replaced, never changed
	wishes, traffic := maps.Clone(b.wishes), maps.Clone(b.traffic)
	status := Status{Addresses: map[string]string{}, Ready: b.Ready(), MaxConn: b.maxConn, Conns: b.proxy.Stats(),
		Mode: b.backends.Mode().String(), Algorithm: b.config.Algorithm, Queue: *b.config.Queue, Rebuilds: b.rebuilds}
	for key, l := range b.listeners {
		status.Addresses[key] = l.Addr().String()
	}
	b.mu.Unlock()

	verdicts := b.monitor.Snapshot()
	status.Backends = make([]BackendStatus, 0, len(backends))
	for _, s := range backends {
		v, w := verdicts[s.Name], wishes[s.Name]
		counts, _ := b.backends.Counts(s.Name)
		status.Backends = append(status.Backends, BackendStatus{
			Backend: s.Name, Address: s.Address, Weight: w.weightOf(s), Tier: s.Tier, MaxConn: s.MaxConn,
			Admin: w.state.String(), AdminSince: w.since, Usable: w.usable(s, v.State),
			State: v.State.String(), Since: v.Since, ValidUntil: v.ValidUntil, Reason: v.Reason.String(),
			Open: counts.Open, Ended: counts.Finished, Failed: counts.Failed,
			In: traffic[s.Name].In.Load(), Out: traffic[s.Name].Out.Load(),
		})
		if w.usable(s, v.State) {
			status.Live++
		}
	}
	return status
}
