package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/lastbeat/lastbeat/examples/internal/load"
	"github.com/lastbeat/lastbeat/internal/sim"
)

// simClient pings and asks at fixed instants, as the real one.
type simClient struct {
	lab    *simLab
	host   *sim.Host
	arp    map[string]*simNode // who has an address, as far as the client knows
	pingAt time.Time
	askAt  time.Time
	seq    int
	open   map[int]load.Record
}

func (c *simClient) Wake(now time.Time, inbox []sim.Packet) {
	for _, p := range inbox {
		c.receive(now, p)
	}
	if !now.Before(c.pingAt) {
		c.pingAt = next(c.pingAt, now, load.DefaultPingEvery)
		for _, v := range virtuals {
			c.to(v.Addr, message{Kind: "ping", VIP: v.Addr})
		}
	}
	if !now.Before(c.askAt) {
		c.askAt = next(c.askAt, now, load.DefaultEvery)
		for _, v := range virtuals {
			c.seq++
			c.open[c.seq] = load.Record{Target: v.Target, Seq: c.seq, Scheduled: now, Start: now}
			c.to(v.Addr, message{Kind: "ask", VIP: v.Addr, Seq: c.seq, Client: true})
		}
	}
	for seq, r := range c.open {
		if now.Sub(r.Start) >= load.DefaultTimeout {
			r.Error, r.TimedOut = "timeout", true
			c.done(now, seq, r)
		}
	}
}

// next keeps to fixed instants.
func next(at, now time.Time, every time.Duration) time.Time {
	if at.IsZero() {
		return now.Add(every)
	}
	return at.Add(every)
}

// to sends to whoever has the address, or asks who does.
func (c *simClient) to(vip string, m message) {
	if n := c.arp[vip]; n != nil {
		send(c.host, n.kernel, m)
		return
	}
	for _, name := range nodes {
		send(c.host, c.lab.nodes[name].kernel, message{Kind: "arp", VIP: vip})
	}
}

func (c *simClient) receive(now time.Time, p sim.Packet) {
	var m message
	if json.Unmarshal(p.Data, &m) != nil {
		return
	}
	switch m.Kind {
	case "arp-answer":
		c.arp[m.VIP] = c.lab.nodes[m.Node]
	case "garp": // updates an entry, never makes one
		if c.arp[m.VIP] != nil {
			c.arp[m.VIP] = c.lab.nodes[m.Node]
		}
	case "pong":
		c.lab.obs.Replies = append(c.lab.obs.Replies, reply{At: p.At, Node: m.Node, VIP: m.VIP})
	case "answer", "refuse":
		if r, ok := c.open[m.Seq]; ok {
			r.Server, r.Status = m.Node, 200
			if m.Kind == "refuse" {
				r.Server, r.Status, r.Error = "", 0, "connection refused"
			}
			c.done(now, m.Seq, r)
		}
	}
}

func (c *simClient) done(now time.Time, seq int, r load.Record) {
	r.End = now
	delete(c.open, seq)
	c.lab.obs.Requests = append(c.lab.obs.Requests, r)
}

func (c *simClient) Deadline() time.Time {
	if c.askAt.Before(c.pingAt) {
		return c.askAt
	}
	return c.pingAt
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
			return nil, fmt.Errorf("the simulated lab did not come up in two minutes")
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
