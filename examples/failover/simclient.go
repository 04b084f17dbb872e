package main

import (
	"encoding/json"
	"maps"
	"slices"
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
	for _, seq := range slices.Sorted(maps.Keys(c.open)) { // a map's own order would be chance without the seed
		if r := c.open[seq]; now.Sub(r.Start) >= load.DefaultTimeout {
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

// simNewcomer asks again and again who has the addresses, as a host that has
// just come. Every kernel that has one answers.
type simNewcomer struct {
	lab   *simLab
	host  *sim.Host
	askAt time.Time
}

func (n *simNewcomer) Wake(now time.Time, inbox []sim.Packet) {
	for _, p := range inbox {
		var m message
		if json.Unmarshal(p.Data, &m) == nil && m.Kind == "arp-answer" {
			n.lab.obs.Answers = append(n.lab.obs.Answers, announced{At: p.At, Node: m.Node, VIP: m.VIP})
		}
	}
	if now.Before(n.askAt) {
		return
	}
	n.askAt = next(n.askAt, now, askAnew)
	for _, v := range virtuals {
		for _, name := range nodes {
			send(n.host, n.lab.nodes[name].kernel, message{Kind: "arp", VIP: v.Addr})
		}
	}
}

func (n *simNewcomer) Deadline() time.Time { return n.askAt }
