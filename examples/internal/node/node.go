// Package node is one node's daemon: virtual routers, the checks that their
// priorities depend on, a TCP balancer, and the kernel rule that leads to it. It
// wires vrrp, health, nft and the balancer together and decides nothing itself.
package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lastbeat/lastbeat/examples/internal/balancer"
	"github.com/lastbeat/lastbeat/health"
	"github.com/lastbeat/lastbeat/vrrp"
)

// Node is a daemon. Make one with [New]. Its methods are safe for use by many
// goroutines at once.
type Node struct {
	log      *slog.Logger
	balancer *balancer.B
	redirect *redirect
	monitor  *health.Monitor
	routers  map[string]*vrrp.Instance

	mu     sync.Mutex
	config Config // complete
}

// New returns a node, or all faults of its config joined, one line each. It opens
// nothing. The log gets each event; nil means nobody.
func New(config Config, log *slog.Logger) (*Node, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	config, err := config.complete()
	n := &Node{log: log, routers: make(map[string]*vrrp.Instance)}
	if config.Balancer != nil {
		var balancerErr error
		n.balancer, balancerErr = balancer.New(n.balancerConfig(config))
		err = errors.Join(err, balancerErr)
	}
	if err != nil {
		return nil, err
	}
	if config.Redirect != nil {
		if n.redirect, err = newRedirect(*config.Redirect, n.alive, log); err != nil {
			return nil, err
		}
	}
	// NoSpread: the first verdicts are waited for.
	n.monitor, err = health.NewMonitor(health.MonitorConfig{NoSpread: true, OnEvent: n.checkChanged})
	if err != nil {
		return nil, err
	}
	for i, c := range config.Checks {
		if err := n.addCheck(c); err != nil {
			return nil, fmt.Errorf("checks[%d]: %w", i, err)
		}
	}
	for _, i := range config.Instances {
		cfg := i.config()
		cfg.OnEvent = func(e vrrp.Event) { n.routerChanged(i.Name, e) }
		cfg.OnAddress = func(e vrrp.HolderEvent) { n.addressChanged(i.Name, e) }
		if n.routers[i.Name], err = vrrp.NewInstance(cfg); err != nil {
			return nil, err
		}
	}
	n.config = config
	return n, nil
}

// Warnings tells what is legal and probably not meant.
func (n *Node) Warnings() []string {
	var out []string
	for _, i := range n.config.Instances {
		for _, w := range i.config().Warnings() {
			out = append(out, fmt.Sprintf("instances.%s: %s", i.Name, w))
		}
	}
	if n.balancer != nil && n.balancer.Note() != "" {
		out = append(out, n.balancer.Note())
	}
	return out
}

func (n *Node) balancerConfig(c Config) balancer.Config {
	b := *c.Balancer
	b.Log = n.log
	b.OnEvent = func(e balancer.Event) {
		n.log.Info("backend", "backend", e.Backend, "up", e.Up, "state", e.State.String(), "reason", e.Reason)
	}
	return b
}

// alive is the balancer's answer to "do you serve, and is there anybody behind you".
func (n *Node) alive() bool { return n.balancer.Ready() && n.balancer.Live() > 0 }

func (n *Node) addCheck(c Check) error {
	p, err := n.prober(c.Probe)
	if err != nil {
		return err
	}
	return n.monitor.Add(health.Target{Key: c.Name, Prober: p, Config: c.health()})
}

// StartError is a fault that kept a node from starting: nothing was left behind.
type StartError struct{ Err error }

// Error returns the fault.
func (e *StartError) Error() string { return e.Err.Error() }

// Unwrap returns the fault.
func (e *StartError) Unwrap() error { return e.Err }

// Run runs the node until ctx ends; then it gives the addresses up, takes the
// rule out, and returns nil. A fault at the start is a [*StartError].
func (n *Node) Run(ctx context.Context) error {
	listener, err := n.prepare(ctx)
	if err != nil {
		return &StartError{err}
	}
	group, ctx := errgroup.WithContext(ctx)
	if listener != nil {
		group.Go(func() error { return n.serveStatus(ctx, listener) })
	}
	if n.balancer != nil {
		group.Go(func() error { return n.balancer.Run(ctx) })
	}
	if n.redirect != nil {
		group.Go(func() error { return n.redirect.run(ctx) })
	}
	group.Go(func() error { return n.monitor.Run(ctx) })
	group.Go(func() error { n.reportAll(ctx); return nil })
	for name, r := range n.routers {
		group.Go(func() error {
			err := r.Run(ctx)
			if err != nil {
				err = fmt.Errorf("instances.%s: %w", name, err)
			}
			if errors.Is(err, fs.ErrPermission) || errors.Is(err, vrrp.ErrNoInterface) {
				return &StartError{err}
			}
			return err
		})
	}
	return group.Wait()
}

// prepare finds out what would make a part fail, before any of them does
// anything, and removes what an earlier run has left.
func (n *Node) prepare(ctx context.Context) (listener net.Listener, err error) {
	for _, i := range n.config.Instances {
		if err := i.fits(); err != nil {
			return nil, err
		}
	}
	if n.redirect != nil {
		if err := n.redirect.table.Remove(ctx); err != nil {
			return nil, fmt.Errorf("redirect: %w", err)
		}
	}
	swept := map[string]bool{}
	for _, i := range n.config.Instances {
		if swept[i.Interface] {
			continue
		}
		swept[i.Interface] = true
		addrs, err := vrrp.NewAddresses(vrrp.AddressesConfig{Interface: i.Interface})
		if err != nil {
			return nil, err
		}
		left, err := addrs.Sweep()
		if err != nil {
			return nil, fmt.Errorf("instances.%s.interface: %w", i.Name, err)
		}
		for _, p := range left {
			n.log.Info("address", "kind", "swept", "address", p.String(), "reason", "left behind by an earlier run")
		}
	}
	if n.config.Status != "" {
		if listener, err = net.Listen("tcp", n.config.Status); err != nil {
			return nil, fault("status", n.config.Status, fmt.Sprintf("%v: choose another address", errors.Unwrap(err)))
		}
	}
	if n.balancer != nil {
		if err := n.balancer.Listen(); err != nil {
			if listener != nil {
				listener.Close()
			}
			return nil, err
		}
	}
	return listener, nil
}

// fits checks the instance against the interface as it is.
func (i Instance) fits() error {
	key := "instances." + i.Name
	ifi, err := net.InterfaceByName(i.Interface)
	if err != nil {
		return fault(key+".interface", i.Interface, "no such interface: correct the name, or make the interface first")
	}
	addrs, err := ifi.Addrs()
	if err != nil {
		return fmt.Errorf("%s.interface: %s: %w", key, i.Interface, err)
	}
	var networks []netip.Prefix
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			networks = append(networks, p)
		}
	}
	for _, vip := range i.Addresses {
		inside := func(p netip.Prefix) bool { return p.Masked().Contains(vip.Addr()) }
		if !slices.ContainsFunc(networks, inside) {
			return fault(key+".addresses", vip, fmt.Sprintf("is outside every network of %s %v: use an address of one of them", i.Interface, networks))
		}
	}
	return nil
}

// reportAll hands the checks' verdicts to the routers again and again, each with
// its own end, so that a verdict that is not renewed ends there too.
func (n *Node) reportAll(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		for name, s := range n.monitor.Snapshot() {
			n.report(name, s)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// report hands a verdict on. What is not known is not reported: the last report
// runs out by itself.
func (n *Node) report(check string, s health.Status) {
	if s.State != health.Online && s.State != health.Offline {
		return
	}
	n.mu.Lock()
	instances := n.config.Instances
	n.mu.Unlock()
	for _, i := range instances {
		if _, tracks := i.Tracks[check]; !tracks {
			continue
		}
		if err := n.routers[i.Name].Report(check, s.State == health.Online, s.ValidUntil); err != nil {
			n.log.Error("check", "name", check, "err", err)
		}
	}
}

func (n *Node) checkChanged(e health.Event) {
	n.report(e.Key, e.New)
	n.log.Info("check", "name", e.Key, "state", e.New.State.String(), "reason", e.New.Reason.String())
}

func (n *Node) routerChanged(name string, e vrrp.Event) {
	n.log.Info("vrrp", "instance", name, "from", e.From.String(), "to", e.To.String(),
		"reason", e.Reason.String(), "priority", e.Priority)
}

func (n *Node) addressChanged(name string, e vrrp.HolderEvent) {
	log := n.log.Info
	if e.Kind == vrrp.HolderFault {
		log = n.log.Error
	}
	log("address", "instance", name, "kind", e.Kind.String(), "addresses", fmt.Sprint(e.Prefixes), "reason", e.Reason, "err", e.Err)
}

// Reload changes checks, weights and backends to those of config, without an
// address moving for it. It returns the keys that differ and need a restart,
// which stay as they are. On error nothing has changed.
func (n *Node) Reload(config Config) (restart []string, err error) {
	config, err = config.complete()
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	old := n.config
	restart = needRestart(old, config)
	if n.balancer != nil && config.Balancer != nil {
		keys, err := n.balancer.Update(n.balancerConfig(config))
		if err != nil {
			return nil, err
		}
		for _, k := range keys {
			restart = append(restart, "balancer."+k)
		}
	}
	if err := n.reloadChecks(old.Checks, config.Checks); err != nil {
		return restart, err
	}
	kept := slices.Clone(old.Instances)
	for k := range kept {
		for _, i := range config.Instances {
			if i.Name == kept[k].Name {
				kept[k].Tracks = i.Tracks
			}
		}
		if err := n.routers[kept[k].Name].SetTracks(kept[k].tracks()); err != nil {
			return restart, err
		}
	}
	n.config.Checks, n.config.Instances = config.Checks, kept
	if n.balancer != nil && config.Balancer != nil {
		n.config.Balancer = config.Balancer
	}
	return restart, nil
}

func (n *Node) reloadChecks(old, fresh []Check) error {
	byName := map[string]Check{}
	for _, c := range old {
		byName[c.Name] = c
	}
	var faults []error
	for _, c := range fresh {
		was, existed := byName[c.Name]
		delete(byName, c.Name)
		switch {
		case !existed:
			faults = append(faults, n.addCheck(c))
		case fmt.Sprint(was) != fmt.Sprint(c):
			p, err := n.prober(c.Probe)
			if err == nil {
				err = n.monitor.Update(health.Target{Key: c.Name, Prober: p, Config: c.health()})
			}
			faults = append(faults, err)
		}
	}
	for name := range byName {
		n.monitor.Remove(name)
	}
	return errors.Join(faults...)
}

// needRestart lists what differs and cannot be changed at run time.
func needRestart(old, fresh Config) (keys []string) {
	differ := func(key string, a, b any) {
		if fmt.Sprint(a) != fmt.Sprint(b) {
			keys = append(keys, key)
		}
	}
	differ("name", old.Name, fresh.Name)
	differ("status", old.Status, fresh.Status)
	differ("balancer", old.Balancer != nil, fresh.Balancer != nil)
	differ("redirect", deref(old.Redirect), deref(fresh.Redirect))
	instances := map[string]Instance{}
	for _, i := range fresh.Instances {
		instances[i.Name] = i
	}
	for _, i := range old.Instances {
		f, ok := instances[i.Name]
		delete(instances, i.Name)
		f.Tracks = i.Tracks
		if !ok || fmt.Sprint(i) != fmt.Sprint(f) {
			keys = append(keys, "instances."+i.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(instances)) {
		keys = append(keys, "instances."+name)
	}
	return keys
}

func deref(r *Redirect) Redirect {
	if r == nil {
		return Redirect{}
	}
	return *r
}
