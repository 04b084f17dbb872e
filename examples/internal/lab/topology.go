package lab

import (
	"net/netip"
	"slices"
	"time"
)

// Interface is the nodes' name for their end of the cable to the switch.
const Interface = "br-ex"

// PrefixBits is the length of the network's prefix.
const PrefixBits = 24

// Kind is what a host is for.
type Kind uint8

// The kinds of host.
const (
	Master Kind = iota + 1 // may hold both virtual addresses
	Worker                 // may hold the ingress address, once it runs a router
	Client
)

// Host is a host of the lab.
type Host struct {
	Name string
	Kind Kind
	Addr netip.Addr
}

// Prefix is the host's address with the network's length.
func (h Host) Prefix() netip.Prefix { return netip.PrefixFrom(h.Addr, PrefixBits) }

// Hosts returns the hosts: master0 to 2, worker0 and 1, and two clients, of which
// the newcomer is for one that knows no neighbour.
func Hosts() []Host {
	return []Host{
		{"master0", Master, addr(21)},
		{"master1", Master, addr(22)},
		{"master2", Master, addr(23)},
		{"worker0", Worker, addr(24)},
		{"worker1", Worker, addr(25)},
		{"client", Client, addr(100)},
		{"newcomer", Client, addr(101)},
	}
}

// HostNamed returns the host of a name.
func HostNamed(name string) (h Host, ok bool) {
	for _, h := range Hosts() {
		if h.Name == name {
			return h, true
		}
	}
	return Host{}, false
}

func addr(last byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, 37, last}) }

// Instance is one virtual router of the cluster.
type Instance struct {
	Name     string // in keepalived.conf
	VRID     uint8
	Priority uint8 // without the weights of its checks
	VIP      netip.Addr
	Password string // the wire carries its first 8 bytes
	Kinds    []Kind // the hosts that take part
}

// API returns the virtual router of the API server's address.
func API() Instance {
	return Instance{"hj4h5_API_0", 206, 40, addr(201), "hj4h5_api_vip", []Kind{Master}}
}

// Ingress returns the virtual router of the ingress address.
func Ingress() Instance {
	return Instance{"hj4h5_INGRESS_0", 45, 20, addr(202), "hj4h5_ingress_vip", []Kind{Master, Worker}}
}

// Includes tells whether a host takes part.
func (i Instance) Includes(h Host) bool {
	return slices.Contains(i.Kinds, h.Kind)
}

// Peers returns the addresses of the others that take part.
func (i Instance) Peers(h Host) []netip.Addr {
	var peers []netip.Addr
	for _, other := range Hosts() {
		if i.Includes(other) && other != h {
			peers = append(peers, other.Addr)
		}
	}
	return peers
}

// Checks returns the checks that change the instance's priority.
func (i Instance) Checks() []Check {
	var checks []Check
	for _, c := range allChecks() {
		if c.vrid == i.VRID {
			checks = append(checks, c)
		}
	}
	return checks
}

// Check is a health check as the cluster's configuration has it. A Weight of 0
// means FAULT while the check fails.
type Check struct {
	Name       string
	Interval   time.Duration
	Timeout    time.Duration
	Weight     int
	Rise, Fall int

	vrid uint8
}

func allChecks() []Check {
	const api, ingress = 206, 45
	const s, ms = time.Second, time.Millisecond
	return []Check{
		{"chk_ocp_lb", 2 * s, 1900 * ms, 20, 3, 3, api},
		{"chk_ocp_both", 2 * s, 1900 * ms, 5, 3, 3, api},
		{"chk_mcs", 2 * s, 1900 * ms, 3, 3, 3, api},
		{"chk_ingress", 1 * s, 900 * ms, 0, 3, 2, ingress},
		{"chk_ingress_ready", 1 * s, 900 * ms, 10, 3, 2, ingress},
		{"chk_default_ingress", 5 * s, 4900 * ms, 50, 3, 2, ingress},
	}
}
