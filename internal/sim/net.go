package sim

import "time"

// Process is what runs on a host: a machine with its deadline. It is woken as a
// driver wakes up: with everything that has arrived, and the time.
type Process interface {
	// Wake handles the packets that have arrived, oldest first, and whatever is
	// due. It may send.
	Wake(now time.Time, inbox []Packet)
	// Deadline returns when Wake wants to be called without a packet; the zero
	// time means never.
	Deadline() time.Time
}

// Packet is a message on its way or in a host's queue.
type Packet struct {
	From *Host
	At   time.Time // when it arrived in the receiver's queue
	Data []byte
}

// Link says what the network does to packets.
type Link struct {
	MinDelay, MaxDelay time.Duration
	Loss, Duplicate    float64 // probabilities, 0 to 1
}

// Net joins hosts.
type Net struct {
	Link  Link // of every pair; may be changed at any time
	world *World
	cut   map[[2]*Host]bool
	hosts []*Host
}

// NewNet returns a network without hosts.
func (w *World) NewNet(link Link) *Net {
	return &Net{Link: link, world: w, cut: make(map[[2]*Host]bool)}
}

// Host is a machine on the network, running one process.
type Host struct {
	Name  string
	net   *Net
	proc  Process
	inbox []Packet
	wake  uint64 // counts scheduled wake-ups; all but the newest are void
	away  time.Time
	deaf  bool
	dead  bool
}

// Host adds a host whose process is woken for the first time at once.
func (n *Net) Host(name string, p Process) *Host {
	h := &Host{Name: name, net: n, proc: p}
	n.hosts = append(n.hosts, h)
	h.schedule(n.world.now)
	return h
}

// Cut stops packets from one host to another; Heal lets them pass again.
func (n *Net) Cut(from, to *Host) { n.cut[[2]*Host{from, to}] = true }

// Heal undoes Cut.
func (n *Net) Heal(from, to *Host) { delete(n.cut, [2]*Host{from, to}) }

// Isolate cuts a host off from all others in both directions, or joins it again.
func (n *Net) Isolate(h *Host, cut bool) {
	for _, o := range n.hosts {
		if o == h {
			continue
		}
		if cut {
			n.Cut(h, o)
			n.Cut(o, h)
		} else {
			n.Heal(h, o)
			n.Heal(o, h)
		}
	}
}

// Connected tells whether packets pass between two living hosts both ways.
func (n *Net) Connected(a, b *Host) bool {
	return !a.dead && !b.dead && !n.cut[[2]*Host{a, b}] && !n.cut[[2]*Host{b, a}]
}

// Send sends data to another host, subject to the link. The data is copied.
func (h *Host) Send(to *Host, data []byte) {
	w, n := h.net.world, h.net
	if h.dead || n.cut[[2]*Host{h, to}] {
		return
	}
	copies := 1
	if w.Rand.Float64() < n.Link.Duplicate {
		copies = 2
	}
	data = append([]byte(nil), data...)
	for range copies {
		if w.Rand.Float64() < n.Link.Loss {
			continue
		}
		delay := n.Link.MinDelay
		if spread := n.Link.MaxDelay - n.Link.MinDelay; spread > 0 {
			delay += time.Duration(w.Rand.Int64N(int64(spread)))
		}
		w.After(delay, func() { to.arrive(Packet{From: h, Data: data}) })
	}
}

func (h *Host) arrive(p Packet) {
	if h.dead || h.deaf || h.net.cut[[2]*Host{p.From, h}] {
		return
	}
	p.At = h.net.world.now
	h.inbox = append(h.inbox, p)
	h.schedule(p.At)
}

// Poke wakes the process, for example after an input from outside.
func (h *Host) Poke() { h.schedule(h.net.world.now) }

// Freeze stops the process for d, as SIGSTOP does: packets wait in its queue.
func (h *Host) Freeze(d time.Duration) { h.leave(d, false) }

// Suspend stops the whole host for d, as a paused virtual machine: packets that
// arrive meanwhile are lost.
func (h *Host) Suspend(d time.Duration) { h.leave(d, true) }

func (h *Host) leave(d time.Duration, deaf bool) {
	back := h.net.world.now.Add(d)
	h.away, h.deaf = back, deaf
	h.net.world.At(back, func() {
		if h.away.Equal(back) {
			h.deaf = false
			h.schedule(back)
		}
	})
}

// Kill ends the host for good.
func (h *Host) Kill() { h.dead = true }

func (h *Host) schedule(at time.Time) {
	if at.IsZero() {
		return
	}
	if at.Before(h.away) {
		at = h.away
	}
	h.wake++
	mine := h.wake
	h.net.world.At(at, func() {
		// A later schedule replaces this one, unless somebody froze us meanwhile.
		if mine == h.wake && !h.dead && !h.net.world.now.Before(h.away) {
			h.run()
		}
	})
}

func (h *Host) run() {
	inbox := h.inbox
	h.inbox = nil
	h.proc.Wake(h.net.world.now, inbox)
	h.schedule(h.proc.Deadline())
}
