package main

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/lastbeat/lastbeat/examples/internal/load"
	"github.com/lastbeat/lastbeat/internal/sim"
)

// The simulated lab: the very machines of vrrp, health and lb on hosts of
// internal/sim. Each node is two hosts: its kernel, which answers at once and
// keeps addresses until their lifetime ends, and its daemon, which can be
// stopped, frozen or late.

// message is what travels on the simulated segment, but for adverts, which are
// the real bytes.
type message struct {
	Kind   string // "arp", "arp-answer", "garp", "ping", "pong", "ask", "answer", "refuse", "probe", "probe-answer"
	VIP    string `json:",omitempty"`
	Seq    int    `json:",omitempty"`
	Node   string `json:",omitempty"`
	Client bool   `json:",omitempty"` // ask: from the client, not from a balancer
}

// simLab is the whole of it.
type simLab struct {
	world  *sim.World
	net    *sim.Net
	setup  setup
	obs    *observation
	nodes  map[string]*simNode
	client *simClient
}

// latency is a switch and a kernel; the spread stands for their moods.
var simLink = sim.Link{MinDelay: 60 * time.Microsecond, MaxDelay: 900 * time.Microsecond}

func newSimLab(s setup) (*simLab, error) {
	w := sim.New(s.Seed)
	l := &simLab{world: w, net: w.NewNet(simLink), setup: s, nodes: map[string]*simNode{},
		obs: &observation{Setup: s}}
	for _, name := range nodes {
		n := &simNode{name: name, lab: l, held: map[string]time.Time{}, api: isMaster(name), router: isMaster(name)}
		n.kernel = l.net.Host(name+" kernel", (*simKernel)(n))
		n.daemon = &simDaemon{node: n}
		l.nodes[name] = n
	}
	for _, name := range nodes {
		d := l.nodes[name].daemon
		if err := d.build(); err != nil {
			return nil, err
		}
		// The first holder's daemon starts first; the others follow when it holds.
		boot := time.Duration(w.Rand.Int64N(int64(300 * time.Millisecond)))
		if name != firstHolder {
			boot += 8 * time.Second
		}
		w.After(boot, d.start)
	}
	l.client = &simClient{lab: l, arp: map[string]*simNode{}, open: map[int]load.Record{}}
	l.client.host = l.net.Host("client", l.client)
	newcomer := &simNewcomer{lab: l}
	newcomer.host = l.net.Host("newcomer", newcomer)
	return l, nil
}

func send(from, to *sim.Host, m message) {
	data, err := json.Marshal(m)
	if err != nil {
		panic(err) // our own struct
	}
	from.Send(to, data)
}

// simNode is a master or worker.
type simNode struct {
	name        string
	lab         *simLab
	kernel      *sim.Host
	daemon      *simDaemon
	held        map[string]time.Time // addresses, and until when the kernel keeps them
	rule        time.Time            // the redirect, and until when the kernel keeps it
	api, router bool                 // the servers run
	cut         bool                 // the port is detached
}

func (n *simNode) holds(vip string) bool { return n.lab.world.Now().Before(n.held[vip]) }

// simKernel answers for a node.
type simKernel simNode

func (k *simKernel) Deadline() time.Time { return time.Time{} }

func (k *simKernel) Wake(_ time.Time, inbox []sim.Packet) {
	n := (*simNode)(k)
	for _, p := range inbox {
		var m message
		if json.Unmarshal(p.Data, &m) != nil {
			continue
		}
		reply := message{VIP: m.VIP, Seq: m.Seq, Node: n.name, Client: m.Client}
		switch {
		case m.Kind == "arp" && n.holds(m.VIP):
			reply.Kind = "arp-answer"
		case m.Kind == "ping" && n.holds(m.VIP):
			reply.Kind = "pong"
		case m.Kind == "probe":
			reply.Kind = "refuse"
			if n.api {
				reply.Kind = "probe-answer"
			}
		case m.Kind == "ask" && m.Client && n.holds(m.VIP):
			reply = n.serve(p.From, m, reply)
		case m.Kind == "ask" && !m.Client: // from a balancer to the API server
			reply.Kind = "refuse"
			if n.api {
				reply.Kind = "answer"
			}
		}
		if reply.Kind != "" {
			send(n.kernel, p.From, reply)
		}
	}
}

// serve takes a client's connection: the router itself, the balancer where the
// rule leads to it, else the local API server.
func (n *simNode) serve(from *sim.Host, m, reply message) message {
	toAPI := m.VIP == virtuals[0].Addr
	switch {
	case toAPI && n.lab.world.Now().Before(n.rule) && n.daemon.alive():
		n.daemon.asked = append(n.daemon.asked, simAsk{from: from, m: m})
		n.daemon.host.Poke()
		return message{}
	case toAPI && !n.lab.world.Now().Before(n.rule) && n.api, !toAPI && n.router:
		reply.Kind = "answer"
	default:
		reply.Kind = "refuse"
	}
	return reply
}

func (l *simLab) announced(n *simNode, vip string) {
	if !n.cut {
		l.obs.Garps = append(l.obs.Garps, announced{At: l.world.Now(), Node: n.name, VIP: vip})
	}
}

func (l *simLab) removed(node, backend string) {
	l.obs.Removed = append(l.obs.Removed, removal{At: l.world.Now(), Node: node, Backend: backend})
}

// ready tells whether the first holder has both addresses and everybody else
// follows it.
func (l *simLab) ready() bool {
	n := l.nodes[firstHolder]
	if !n.holds(virtuals[0].Addr) || !n.holds(virtuals[1].Addr) || len(n.daemon.live()) < len(masters) {
		return false
	}
	for _, m := range masters {
		d := l.nodes[m].daemon
		if d.host == nil || !l.world.Now().Before(l.nodes[m].rule) {
			return false
		}
	}
	return true
}

// simulate runs one fault and returns what was seen.
func simulate(s setup, until string) (*observation, error) {
	l, err := newSimLab(s)
	if err != nil {
		return nil, err
	}
	deadline := l.world.Now().Add(2 * time.Minute)
	for !l.ready() {
		if l.world.Now().After(deadline) {
			return nil, errors.New("the simulated lab did not come up in two minutes")
		}
		l.world.Run(l.world.Now().Add(100 * time.Millisecond))
	}
	// The fault comes at any moment of an interval.
	phase := time.Duration(l.world.Rand.Int64N(int64(2 * s.Interval)))
	l.world.Run(l.world.Now().Add(3*time.Second + phase))
	l.fault(s.FaultKind)
	l.world.Run(l.world.Now().Add(runLength(s.FaultKind, until)))
	l.obs.End = l.world.Now()
	return l.obs, nil
}

func (l *simLab) fault(kind string) {
	n := l.nodes[victim(kind)]
	l.obs.Fault, l.obs.Victim = l.world.Now(), n.name
	switch kind {
	case "silent", "carrier":
		n.cut = true
		l.net.Isolate(n.kernel, true)
		l.net.Isolate(n.daemon.host, true)
		// The machine itself is whole: its daemon and its kernel still talk.
		l.net.Heal(n.kernel, n.daemon.host)
		l.net.Heal(n.daemon.host, n.kernel)
	case "kill":
		n.daemon.dead = true
		n.daemon.host.Kill()
	case "term":
		d := n.daemon
		for _, r := range d.routers {
			r.m.Shutdown(l.world.Now())
			d.act(l.world.Now(), r)
		}
		d.dead, n.rule = true, time.Time{}
		d.host.Kill()
	case "freeze":
		n.daemon.host.Freeze(freezeFor)
	case "backend":
		n.api = false
	}
}
