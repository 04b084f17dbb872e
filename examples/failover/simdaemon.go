package main

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/lastbeat/lastbeat/health"
	"github.com/lastbeat/lastbeat/internal/sim"
	"github.com/lastbeat/lastbeat/lb"
	"github.com/lastbeat/lastbeat/vrrp"
)

// simDaemon is vipnode: routers, checks, and the balancer with its probes.
type simDaemon struct {
	node    *simNode
	host    *sim.Host
	dead    bool
	routers []*simRouter
	checks  []*simCheck
	targets []*simTarget
	pool    *lb.Balancer[string]
	judge   *health.Machine // of "the balancer has a live backend"
	judgeAt time.Time
	asked   []simAsk
	dials   map[int]*simDial
	dialSeq int
	actions []vrrp.Action
}

type simRouter struct {
	m       *vrrp.Machine
	ann     *vrrp.AnnounceSchedule
	v       virtual
	weights map[string]int
	peers   []string
}

type simCheck struct {
	name  string
	m     *health.Machine
	probe func() bool
}

// simTarget is a backend with its probe.
type simTarget struct {
	backend string
	m       *health.Machine
	seq     int       // of the probe under way; 0: none
	timeout time.Time // of the probe under way
}

type simAsk struct {
	from *sim.Host
	m    message
}

// simDial is a client's connection that looks for a backend.
type simDial struct {
	ask  simAsk
	left []string
	due  time.Time // when the next backend is tried
}

// connectTimeout is how long a backend may be silent to a connection.
const connectTimeout = time.Second

func (d *simDaemon) alive() bool { return d.host != nil && !d.dead }

func (d *simDaemon) build() error {
	n := d.node
	cfg := nodeConfig(n.name, n.lab.setup.Interval, true)
	for _, i := range cfg.Instances {
		v := virtuals[0]
		if i.Name == "INGRESS" {
			v = virtuals[1]
		}
		vc := vrrp.Config{
			VRID: i.VRID, Version: i.Version, Priority: i.Priority, Interval: i.Interval, Source: i.Source,
			Peers: i.Peers, Password: i.Password, Addrs: []netip.Addr{i.Addresses[0].Addr()},
		}
		for _, name := range slices.Sorted(maps.Keys(i.Tracks)) {
			vc.Tracks = append(vc.Tracks, vrrp.Track{Name: name, Weight: i.Tracks[name]})
		}
		m, err := vrrp.NewMachine(vc)
		if err != nil {
			return err
		}
		ann, err := vrrp.NewAnnounceSchedule(vrrp.AnnounceConfig{})
		if err != nil {
			return err
		}
		r := &simRouter{m: m, ann: ann, v: v, weights: i.Tracks}
		for _, p := range i.Peers {
			r.peers = append(r.peers, nodeOf(p))
		}
		d.routers = append(d.routers, r)
	}
	for _, c := range cfg.Checks {
		m, err := health.NewMachine(health.Config{Interval: c.Interval, Timeout: c.Timeout, Rise: c.Rise, Fall: c.Fall, Initial: health.InitialFirst})
		if err != nil {
			return err
		}
		d.checks = append(d.checks, &simCheck{name: c.Name, m: m, probe: d.probe(c.Name)})
	}
	if !isMaster(n.name) {
		return nil
	}
	return d.buildBalancer(cfg.Balancer.Check.Interval, cfg.Redirect.Interval)
}

func (d *simDaemon) buildBalancer(every, pace time.Duration) (err error) {
	d.dials = map[int]*simDial{}
	if d.pool, err = lb.New[string](lb.Config{}); err != nil {
		return err
	}
	for _, backend := range masters {
		m, err := health.NewMachine(health.Config{Interval: every, Timeout: time.Second, Rise: 1, Fall: 3})
		if err != nil {
			return err
		}
		d.targets = append(d.targets, &simTarget{backend: backend, m: m})
	}
	d.judge, err = health.NewMachine(health.Config{Interval: pace, Rise: 3, Fall: 11})
	return err
}

// probe is what a check looks at on its own node.
func (d *simDaemon) probe(name string) func() bool {
	n := d.node
	rule := func() bool { return n.lab.world.Now().Before(n.rule) }
	switch name {
	case "chk_ocp_lb":
		return rule
	case "chk_ocp_both":
		return func() bool { return rule() || n.api }
	case "chk_mcs":
		return func() bool { return true }
	}
	return func() bool { return n.router }
}

func (d *simDaemon) start() {
	d.host = d.node.lab.net.Host(d.node.name, d)
	for _, r := range d.routers {
		r.m.Start(d.now())
	}
}

func (d *simDaemon) now() time.Time { return d.node.lab.world.Now() }

// Wake is the daemon's turn, in the order of the real ones: what has arrived,
// then checks and probes, then the routers.
func (d *simDaemon) Wake(now time.Time, inbox []sim.Packet) {
	for _, p := range inbox {
		d.receive(now, p)
	}
	d.runChecks(now)
	d.runProbes(now)
	d.runDials(now)
	for _, r := range d.routers {
		r.m.Advance(now)
		d.act(now, r)
	}
}

func (d *simDaemon) receive(now time.Time, p sim.Packet) {
	if len(p.Data) > 0 && p.Data[0]>>4 == 4 { // an IPv4 packet, not JSON
		for _, r := range d.routers {
			r.m.Receive(p.At, p.Data)
		}
		return
	}
	var m message
	if json.Unmarshal(p.Data, &m) != nil {
		return
	}
	for _, t := range d.targets {
		if t.seq != 0 && t.seq == m.Seq && (m.Kind == "probe-answer" || m.Kind == "refuse") {
			d.observe(now, t, m.Kind == "probe-answer", "connection refused")
			return
		}
	}
	if dial := d.dials[m.Seq]; dial != nil {
		switch m.Kind {
		case "answer":
			delete(d.dials, m.Seq)
			send(d.host, dial.ask.from, message{Kind: "answer", Seq: dial.ask.m.Seq, VIP: dial.ask.m.VIP, Node: m.Node})
		case "refuse":
			dial.due = now
		}
	}
}

// runChecks probes the node itself, which takes no time here.
func (d *simDaemon) runChecks(now time.Time) {
	for _, c := range d.checks {
		if now.Before(c.m.Deadline()) {
			continue
		}
		result := health.Result{Outcome: health.Bad}
		if c.probe() {
			result.Outcome = health.Good
		}
		c.m.Observe(now, result)
		s := c.m.At(now)
		for _, r := range d.routers {
			if _, tracks := r.weights[c.name]; tracks && (s.State == health.Online || s.State == health.Offline) {
				_ = r.m.Report(now, c.name, s.State == health.Online, s.ValidUntil) // it is in Tracks
			}
		}
	}
}

// runProbes asks the backends, and keeps the rule while one is alive.
func (d *simDaemon) runProbes(now time.Time) {
	for _, t := range d.targets {
		switch {
		case t.seq != 0 && !now.Before(t.timeout):
			d.observe(now, t, false, "timeout")
		case t.seq == 0 && !now.Before(t.m.Deadline()):
			d.dialSeq++
			t.seq, t.timeout = d.dialSeq, now.Add(time.Second)
			send(d.host, d.node.lab.nodes[t.backend].kernel, message{Kind: "probe", Seq: t.seq})
		}
	}
	if d.judge == nil {
		return
	}
	if !now.Before(d.judgeAt) {
		d.judgeAt = now.Add(redirectPace)
		result := health.Result{Outcome: health.Bad}
		if len(d.live()) > 0 {
			result.Outcome = health.Good
		}
		d.judge.Observe(now, result)
	}
	if d.judge.At(now).State == health.Online {
		d.node.rule = now.Add(6 * time.Second)
	} else {
		d.node.rule = time.Time{}
	}
}

func (d *simDaemon) live() (out []string) {
	for _, t := range d.targets {
		if t.m.At(d.now()).State == health.Online {
			out = append(out, t.backend)
		}
	}
	return out
}

func (d *simDaemon) observe(now time.Time, t *simTarget, good bool, why string) {
	t.seq = 0
	result := health.Result{Outcome: health.Bad, Detail: why}
	if good {
		result = health.Result{Outcome: health.Good}
	}
	was := t.m.At(now).State
	t.m.Observe(now, result)
	is := t.m.At(now).State
	if was == is {
		return
	}
	if was == health.Online && is == health.Offline {
		d.node.lab.removed(d.node.name, t.backend)
	}
	var backends []lb.Backend[string]
	for _, b := range d.live() {
		backends = append(backends, lb.Backend[string]{Key: b, Value: b, Weight: 1})
	}
	if err := d.pool.Set(backends...); err != nil {
		panic(err) // distinct names of our own
	}
}

// runDials leads clients' connections to backends, the next one when one is
// refused or silent.
func (d *simDaemon) runDials(now time.Time) {
	for _, a := range d.asked {
		dial := &simDial{ask: a, due: now}
		for lease := range d.pool.Walk(0) {
			dial.left = append(dial.left, lease.Value())
		}
		d.dialSeq++
		d.dials[d.dialSeq] = dial
	}
	d.asked = nil
	for _, seq := range slices.Sorted(maps.Keys(d.dials)) { // a map's own order would be chance without the seed
		dial := d.dials[seq]
		if now.Before(dial.due) {
			continue
		}
		if len(dial.left) == 0 {
			delete(d.dials, seq)
			send(d.host, dial.ask.from, message{Kind: "refuse", Seq: dial.ask.m.Seq, VIP: dial.ask.m.VIP})
			continue
		}
		backend := dial.left[0]
		dial.left, dial.due = dial.left[1:], now.Add(connectTimeout)
		send(d.host, d.node.lab.nodes[backend].kernel, message{Kind: "ask", Seq: seq})
	}
}

func (d *simDaemon) act(now time.Time, r *simRouter) {
	lab, n := d.node.lab, d.node
	d.actions = r.m.AppendActions(d.actions[:0])
	for _, a := range d.actions {
		switch a.Kind {
		case vrrp.SendAdvert:
			d.advertise(r, a.Priority)
		case vrrp.Hold:
			n.held[r.v.Addr] = a.Until
		case vrrp.LetGo:
			r.ann.Stop()
			n.held[r.v.Addr] = time.Time{}
		case vrrp.Announce:
			r.ann.Again(now)
		}
	}
	if r.ann.Advance(now) {
		lab.announced(n, r.v.Addr)
		send(d.host, lab.client.host, message{Kind: "garp", VIP: r.v.Addr, Node: n.name})
	}
}

func (d *simDaemon) advertise(r *simRouter, priority uint8) {
	lab, n := d.node.lab, d.node
	if !n.cut {
		lab.obs.Adverts = append(lab.obs.Adverts, advert{At: d.now(), Node: n.name, VRID: r.v.VRID, Priority: int(priority)})
	}
	src := nodeAddr(n.name)
	for _, peer := range r.peers {
		dst := nodeAddr(peer)
		pkt, err := r.m.Advert(priority).AppendBinary(make([]byte, 20), src, dst)
		if err != nil {
			panic(err) // our own machine's advert
		}
		pkt[0], pkt[3], pkt[8], pkt[9] = 0x45, byte(len(pkt)), 255, 112
		copy(pkt[12:], src.AsSlice())
		copy(pkt[16:], dst.AsSlice())
		if h := lab.nodes[peer].daemon.host; h != nil {
			d.host.Send(h, pkt)
		}
	}
}

// Deadline is the earliest of all parts'.
func (d *simDaemon) Deadline() time.Time {
	var at time.Time
	soonest := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	for _, r := range d.routers {
		soonest(r.m.Deadline())
		if t, ok := r.ann.Deadline(); ok {
			soonest(t)
		}
	}
	for _, c := range d.checks {
		soonest(c.m.Deadline())
	}
	for _, t := range d.targets {
		if t.seq != 0 {
			soonest(t.timeout)
		} else {
			soonest(t.m.Deadline())
		}
	}
	if d.judge != nil {
		soonest(d.judgeAt)
	}
	for _, dial := range d.dials {
		soonest(dial.due)
	}
	return at
}
