package main

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/lastbeat/lastbeat/examples/internal/balancer"
	"github.com/lastbeat/lastbeat/examples/internal/node"
)

// The lab is an OpenShift-style control plane: three masters that run an API
// server and an ingress router, two workers that run neither, and two addresses.
var (
	masters = []string{"master0", "master1", "master2"}
	workers = []string{"worker0", "worker1"}
	nodes   = append(append([]string(nil), masters...), workers...)
)

const (
	iface        = "br-ex"
	firstHolder  = "master2" // holds both addresses at the start
	apiPort      = 6443
	balancerPort = 9445
	redirectPace = 500 * time.Millisecond // OpenShift's is 6s; the lab's people wait for it
	askAnew      = 50 * time.Millisecond  // how often the newcomer asks who has the addresses
)

// victim is whom a fault hits: the holder, but for a fault that moves nothing.
func victim(fault string) string {
	if fault == "backend" {
		return masters[0]
	}
	return firstHolder
}

// nodeAddr returns a node's own address.
func nodeAddr(name string) netip.Addr {
	for i, n := range nodes {
		if n == name {
			return netip.AddrFrom4([4]byte{192, 168, 37, byte(21 + i)})
		}
	}
	panic("no such node: " + name)
}

// nodeOf returns the name of the node that has the address, "" for none.
func nodeOf(addr netip.Addr) string {
	for _, n := range nodes {
		if nodeAddr(n) == addr {
			return n
		}
	}
	return ""
}

func isMaster(name string) bool { return name[0] == 'm' }

func others(of string, all []string) (out []netip.Addr) {
	for _, n := range all {
		if n != of {
			out = append(out, nodeAddr(n))
		}
	}
	return out
}

// check is one of the checks of OpenShift's keepalived.conf.
type check struct {
	name              string
	interval, timeout time.Duration
	rise, fall        int
	probe             node.Probe
}

const localReady = "http://localhost:9444/"

var (
	lbAndRule = []node.Probe{{HTTP: localReady}, {Redirect: true}}
	apiChecks = []check{
		{"chk_ocp_lb", 2 * time.Second, 1900 * time.Millisecond, 3, 3, node.Probe{All: lbAndRule}},
		{"chk_ocp_both", 2 * time.Second, 1900 * time.Millisecond, 3, 3, node.Probe{Any: []node.Probe{{All: lbAndRule}, {HTTP: "https://localhost:6443/readyz"}}}},
		{"chk_mcs", 2 * time.Second, 1900 * time.Millisecond, 3, 3, node.Probe{TCP: "localhost:22624"}},
	}
	ingressChecks = []check{
		{"chk_ingress", time.Second, 900 * time.Millisecond, 3, 2, node.Probe{HTTP: "http://localhost:1936/healthz"}},
		{"chk_ingress_ready", time.Second, 900 * time.Millisecond, 3, 2, node.Probe{HTTP: "http://localhost:1936/healthz/ready"}},
		{"chk_default_ingress", 5 * time.Second, 4900 * time.Millisecond, 3, 2, node.Probe{TCP: "localhost:1937"}},
	}
	apiWeights     = map[string]int{"chk_ocp_lb": 20, "chk_ocp_both": 5, "chk_mcs": 3}
	ingressWeights = map[string]int{"chk_ingress": 0, "chk_ingress_ready": 10, "chk_default_ingress": 50}
)

// checksOf lists the checks of a node.
func checksOf(name string) []check {
	if isMaster(name) {
		return append(append([]check(nil), apiChecks...), ingressChecks...)
	}
	return ingressChecks
}

// nodeConfig is the node's file. With vrrp false somebody else speaks VRRP, and
// asks the status page for the checks.
func nodeConfig(name string, interval time.Duration, vrrp bool) node.Config {
	c := node.Config{Name: name, Status: "127.0.0.1:9455"}
	if isMaster(name) {
		c.Balancer = &balancer.Config{
			Listen: fmt.Sprintf(":%d", balancerPort), Ready: ":9444", Monitor: ":9454",
			Check: balancer.Check{Kind: "https", Path: "/readyz", Interval: 5 * time.Second, Timeout: time.Second, Rise: 1, Fall: 3},
		}
		for _, m := range masters {
			c.Balancer.Backends = append(c.Balancer.Backends, balancer.Server{Address: netip.AddrPortFrom(nodeAddr(m), apiPort).String()})
		}
		c.Redirect = &node.Redirect{
			VIPs: []netip.Addr{netip.MustParseAddr(virtuals[0].Addr)}, From: apiPort, To: balancerPort, Interval: redirectPace,
		}
	}
	for _, k := range checksOf(name) {
		c.Checks = append(c.Checks, node.Check{Name: k.name, Probe: k.probe, Interval: k.interval, Timeout: k.timeout, Rise: k.rise, Fall: k.fall})
	}
	if !vrrp {
		return c
	}
	if isMaster(name) {
		c.Instances = append(c.Instances, instance("API", name, virtuals[0], 40, interval, masters, apiWeights))
	}
	c.Instances = append(c.Instances, instance("INGRESS", name, virtuals[1], 20, interval, nodes, ingressWeights))
	return c
}

// instance is version 2 with a password at 1 s, as OpenShift has it; faster ones
// need version 3, which has no password.
func instance(name, on string, v virtual, priority uint8, interval time.Duration, among []string, weights map[string]int) node.Instance {
	i := node.Instance{
		Name: name, Interface: iface, VRID: uint8(v.VRID), Version: 2, Priority: priority, Interval: interval,
		Source: nodeAddr(on), Peers: others(on, among), Password: map[string]string{"API": "hj4h5_ap", "INGRESS": "hj4h5_in"}[name],
		Addresses: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(v.Addr), 24)}, Label: "vip", Tracks: weights,
	}
	if interval < time.Second {
		i.Version, i.Password = 3, ""
	}
	return i
}
