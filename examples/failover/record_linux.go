package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/lastbeat/lastbeat/examples/internal/capture"
	"github.com/lastbeat/lastbeat/examples/internal/lab"
	"github.com/lastbeat/lastbeat/examples/internal/load"
	"github.com/lastbeat/lastbeat/examples/internal/timeline"
)

// What the lab tells a watch: lines and ends of processes, and captured packets.

// backendMark is put among the packets when a daemon says that it took a backend
// out, so that this instant too is on the capture's clock.
type backendMark struct {
	Event   string `json:"event"`
	Node    string `json:"node"`
	Backend string `json:"backend"`
}

// line takes a line of a process: a record of the client, or an event of a daemon.
func (w *watch) line(l lab.Line) {
	if l.Role == roleLoad {
		var r load.Record
		if json.Unmarshal([]byte(l.Text), &r) == nil {
			w.mu.Lock()
			w.obs.Requests = append(w.obs.Requests, r)
			w.mu.Unlock()
		}
		return
	}
	var e struct {
		Level, Msg, Name, State, Backend string
		Up                               bool
	}
	if l.Role != roleNode || json.Unmarshal([]byte(l.Text), &e) != nil {
		return
	}
	if e.Level == slog.LevelWarn.String() {
		w.warn(l.Node, e.Msg)
	}
	if e.Msg == "check" {
		w.mu.Lock()
		w.checks[l.Node+" "+e.Name] = e.State
		w.mu.Unlock()
	}
	if addr, err := netip.ParseAddrPort(e.Backend); e.Msg == "backend" && !e.Up && err == nil {
		_ = w.lab.Mark(backendMark{"backend", l.Node, nodeOf(addr.Addr())}) // a mark that is missing shows
	}
	w.seen()
}

// warn shows what a daemon warns of, once for all nodes: they are alike.
func (w *watch) warn(node, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.warned, text) {
		w.warned = append(w.warned, text)
		w.say("%s warns: %s", node, text)
	}
}

func (w *watch) seen() {
	select {
	case w.notify <- struct{}{}:
	default:
	}
}

// ended takes the end of a process; one that we did not ask for spoils the run.
func (w *watch) ended(e lab.End) {
	if e.Asked {
		return
	}
	err := fmt.Errorf("%s on %s ended by itself: %v\n%s", e.Role, e.Node, e.Err, strings.Join(e.Stderr, "\n"))
	select {
	case w.fail <- err:
	default:
	}
}

// packet takes what the capture saw.
func (w *watch) packet(p capture.Packet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	newcomer, _ := lab.HostNamed("newcomer")
	switch p.Kind {
	case capture.Advert:
		a := advert{At: p.At, Node: nodeOf(p.Src), VRID: int(p.VRID), Priority: int(p.Priority)}
		// Unicast: one packet for each peer; the first one counts.
		if n := len(w.obs.Adverts); n == 0 || !sameRound(w.obs.Adverts[max(0, n-2*len(nodes)):], a) {
			w.obs.Adverts = append(w.obs.Adverts, a)
			w.live.advert(&w.obs, a)
		}
	case capture.GratuitousARP:
		g := announced{At: p.At, Node: w.lab.NodeOf(p.HW), VIP: p.Src.String()}
		w.obs.Garps = append(w.obs.Garps, g)
		w.live.garp(&w.obs, g)
	case capture.ARP:
		if p.Reply && p.Dst == newcomer.Addr {
			w.obs.Answers = append(w.obs.Answers, announced{At: p.At, Node: w.lab.NodeOf(p.HW), VIP: p.Src.String()})
		}
	case capture.EchoReply:
		if p.Dst != newcomer.Addr {
			r := reply{At: p.At, Node: w.lab.NodeOf(p.SrcMAC), VIP: p.Src.String()}
			w.obs.Replies = append(w.obs.Replies, r)
			w.live.reply(&w.obs, r)
		}
	case capture.Mark:
		w.mark(p)
	}
	w.seen()
}

func sameRound(recent []advert, a advert) bool {
	return slices.ContainsFunc(recent, func(b advert) bool {
		return b.Node == a.Node && b.VRID == a.VRID && b.Priority == a.Priority && a.At.Sub(b.At) < 3*time.Millisecond
	})
}

func (w *watch) mark(p capture.Packet) {
	var m lab.Mark
	var b backendMark
	if json.Unmarshal([]byte(p.Text), &m) != nil {
		return
	}
	switch m.Event {
	case "fault":
		if w.obs.Fault.IsZero() { // the first of a pair counts: keepalived and the daemon beside it
			w.obs.Fault = p.At
			w.live.fault(&w.obs)
		}
	case "thaw":
		w.live.print(&w.obs, p.At, timeline.Fault, m.Node+" runs on")
	case "backend":
		if json.Unmarshal([]byte(p.Text), &b) == nil {
			r := removal{At: p.At, Node: b.Node, Backend: b.Backend}
			w.obs.Removed = append(w.obs.Removed, r)
			w.live.removed(&w.obs, r)
		}
	}
}
