// Package memnet is a datagram network in memory, for drivers that run in the
// virtual time of a testing/synctest bubble. A port is drained as a kernel
// socket is: all that has arrived, with its arrival times.
package memnet

import (
	"net/netip"
	"sync"
	"time"
)

// Net joins ports. It is safe for concurrent use.
type Net struct {
	mu     sync.Mutex
	delay  time.Duration
	ports  map[netip.Addr]*Port
	cut    map[[2]netip.Addr]bool
	flight []datagram // on their way, in the order of sending
}

type datagram struct {
	due      time.Time
	from, to netip.Addr
	data     []byte
}

// New returns a network without ports on which packets travel for delay.
func New(delay time.Duration) *Net {
	return &Net{delay: delay, ports: make(map[netip.Addr]*Port), cut: make(map[[2]netip.Addr]bool)}
}

// Cut stops the packets between two addresses, or lets them pass again.
func (n *Net) Cut(a, b netip.Addr, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[[2]netip.Addr{a, b}], n.cut[[2]netip.Addr{b, a}] = cut, cut
}

// Packet is a datagram that has arrived.
type Packet struct {
	From netip.Addr
	At   time.Time // of arrival
	Data []byte
}

// Port is an endpoint. Its methods are safe for concurrent use.
type Port struct {
	net   *Net
	addr  netip.Addr
	ready chan struct{}
	queue []Packet // guarded by net.mu
}

// Port opens the port of an address, replacing an earlier one.
func (n *Net) Port(addr netip.Addr) *Port {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := &Port{net: n, addr: addr, ready: make(chan struct{}, 1)}
	n.ports[addr] = p
	return p
}

// Ready is signalled when packets may be waiting.
func (p *Port) Ready() <-chan struct{} { return p.ready }

// Drain returns everything that has arrived, oldest first.
func (p *Port) Drain() []Packet {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	q := p.queue
	p.queue = nil
	return q
}

// Send sends a copy of data. A packet to nobody is lost.
func (p *Port) Send(to netip.Addr, data []byte) {
	n := p.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut[[2]netip.Addr{p.addr, to}] {
		return
	}
	n.flight = append(n.flight, datagram{time.Now().Add(n.delay), p.addr, to, append([]byte(nil), data...)})
	time.AfterFunc(n.delay, n.deliver)
}

// deliver delivers what is due, in the order of sending: timers of one instant
// fire in any order.
func (n *Net) deliver() {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for len(n.flight) > 0 && !n.flight[0].due.After(now) {
		d := n.flight[0]
		n.flight = n.flight[1:]
		p := n.ports[d.to]
		if p == nil || n.cut[[2]netip.Addr{d.from, d.to}] {
			continue
		}
		p.queue = append(p.queue, Packet{From: d.from, At: d.due, Data: d.data})
		select {
		case p.ready <- struct{}{}:
		default:
		}
	}
}

// Close closes the port: what is sent to it from now on is lost.
func (p *Port) Close() {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	if p.net.ports[p.addr] == p {
		delete(p.net.ports, p.addr)
	}
}
