// Package node is one node's daemon: virtual routers, the checks that their
// priorities depend on, a TCP balancer, and the kernel rule that leads to it. It
// wires vrrp, health, nft and the balancer together and decides nothing itself.
package node

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/lastbeat/lastbeat/examples/internal/balancer"
	"github.com/lastbeat/lastbeat/health"
	"github.com/lastbeat/lastbeat/nft"
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
	config Config // complete; its slices and maps are replaced, never changed
}

// New returns a node, or all faults of its config joined, one line each. It opens
// nothing. The log gets each event; nil means nobody.
func New(config Config, log *slog.Logger) (*Node, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	var out faults
	config, err := config.complete()
	out.add(err)
	n := &Node{log: log, routers: make(map[string]*vrrp.Instance), config: config}
	if config.Balancer != nil {
		n.balancer, err = balancer.New(n.balancerConfig(config))
		out.add(balancerFaults(err))
	}
	if err := out.err(); err != nil {
		return nil, err
	}
	return n, n.build()
}

// build makes the parts of a node whose config has no fault.
func (n *Node) build() (err error) {
	if n.config.Redirect != nil {
		table, err := nft.New(nft.Options{})
		if err != nil {
			return err
		}
		if n.redirect, err = newRedirect(*n.config.Redirect, table, n.alive, n.log); err != nil {
			return err
		}
	}
	// NoSpread: the first verdicts are waited for.
	n.monitor, err = health.NewMonitor(health.MonitorConfig{NoSpread: true, OnEvent: n.checkChanged})
	if err != nil {
		return err
	}
	for _, c := range n.config.Checks {
		target, err := n.target(c)
		if err == nil {
			err = n.monitor.Add(target)
		}
		if err != nil {
			return fmt.Errorf("checks.%s: %w", c.Name, err)
		}
	}
	for _, i := range n.config.Instances {
		cfg := i.config()
		cfg.OnEvent = func(e vrrp.Event) { n.routerChanged(i.Name, e) }
		cfg.OnAddress = func(e vrrp.HolderEvent) { n.addressChanged(i.Name, e) }
		if n.routers[i.Name], err = vrrp.NewInstance(cfg); err != nil {
			return vrrpFaults(i.key(), err)
		}
	}
	return nil
}

// Warnings tells what is legal and probably not meant.
func (n *Node) Warnings() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, i := range n.config.Instances {
		for _, w := range i.config().Warnings() {
			out = append(out, i.key()+": "+w)
		}
	}
	if n.balancer != nil && n.balancer.Note() != "" {
		out = append(out, "balancer: "+n.balancer.Note())
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

func (n *Node) target(c Check) (health.Target, error) {
	p, err := n.prober(c.Probe)
	return health.Target{Key: c.Name, Prober: p, Config: c.health()}, err
}

// reportAll hands the checks' verdicts to the routers again and again, each with
// its own end, so that a verdict that is not renewed ends there too.
func (n *Node) reportAll(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		n.mu.Lock()
		n.report()
		n.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// report hands on what is known at this moment. What is not known is not
// reported: the last report runs out by itself. n.mu is held, so that an older
// verdict never follows a newer one, and tracks are those that the routers have.
func (n *Node) report() {
	verdicts := n.monitor.Snapshot()
	for _, i := range n.config.Instances {
		for check := range i.Tracks {
			s := verdicts[check]
			if s.State != health.Online && s.State != health.Offline {
				continue
			}
			if err := n.routers[i.Name].Report(check, s.State == health.Online, s.ValidUntil); err != nil {
				n.log.Error("report", "instance", i.Name, "check", check, "err", err)
			}
		}
	}
}

func (n *Node) checkChanged(e health.Event) {
	n.mu.Lock()
	n.report()
	n.mu.Unlock()
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

// instances returns those that run.
func (n *Node) instances() []Instance {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.config.Instances)
}
