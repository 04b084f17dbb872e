package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/lastbeat/lastbeat/vrrp"
)

// Run runs the node until ctx ends; then it gives the addresses up, after that
// stops the rest and takes the rule out, and returns nil. A fault at the start is
// a [*StartError]. When a part fails, all others end in the same way. It may be
// called once.
func (n *Node) Run(ctx context.Context) error {
	open, err := n.prepare(ctx)
	if err != nil {
		return &StartError{err}
	}
	defer open.close()

	var failed failures
	front, stop := context.WithCancel(ctx)
	defer stop()
	rest, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	part := func(group *sync.WaitGroup, run func() error) {
		group.Go(func() {
			failed.add(run())
			stop()
		})
	}
	var routers, others sync.WaitGroup
	if open.status != nil {
		part(&others, func() error { return n.serveStatus(rest, open.status) })
	}
	if n.balancer != nil {
		part(&others, func() error { return balancerFaults(n.balancer.Run(rest)) })
	}
	if n.redirect != nil {
		part(&others, func() error { return n.redirect.run(rest) })
	}
	part(&others, func() error { return n.monitor.Run(rest) })
	part(&others, func() error { n.reportAll(rest); return nil })
	for _, i := range n.instances() {
		part(&routers, func() error { return n.runRouter(front, i) })
	}
	<-front.Done()
	routers.Wait()
	end()
	others.Wait()
	return failed.err()
}

func (n *Node) runRouter(ctx context.Context, i Instance) error {
	err := n.routers[i.Name].Run(ctx)
	if err == nil {
		return nil
	}
	started := ctx.Err() != nil // it got as far as being told to stop
	err = fmt.Errorf("%s.interface: %s", i.key(), strings.TrimPrefix(err.Error(), "vrrp: "))
	if !started {
		return &StartError{err}
	}
	return err
}

// failures are the errors of the parts.
type failures struct {
	mu  sync.Mutex
	all []error
}

func (f *failures) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.all = append(f.all, err)
	}
}

// err returns the first fault at the start alone, if there is one: others have
// the same cause.
func (f *failures) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, err := range f.all {
		if start, ok := errors.AsType[*StartError](err); ok {
			return start
		}
	}
	return errors.Join(f.all...)
}

// opened is what prepare opened.
type opened struct {
	status net.Listener
	alone  net.Listener // see lock
}

func (o *opened) close() {
	for _, l := range []net.Listener{o.status, o.alone} {
		if l != nil {
			l.Close() // the first one is closed already if it served
		}
	}
}

// prepare finds out what would make a part fail, before any of them does
// anything, and removes what an earlier run has left. The ports come first: when
// they are taken, another node may be at work, whose addresses must stay.
func (n *Node) prepare(ctx context.Context) (open opened, err error) {
	defer func() {
		if err != nil {
			open.close()
			n.closeBalancer()
		}
	}()
	instances := n.instances()
	for _, i := range instances {
		if err := i.fits(); err != nil {
			return open, err
		}
	}
	if open.alone, err = n.lock(); err != nil {
		return open, err
	}
	if address := n.config.Status; address != "" {
		if open.status, err = net.Listen("tcp", address); err != nil {
			return open, listenFault("status", address, err)
		}
	}
	if n.balancer != nil {
		if err := n.balancer.Listen(); err != nil {
			return open, balancerFaults(err)
		}
	}
	if n.redirect != nil {
		if err := n.redirect.table.Remove(ctx); err != nil {
			return open, fault("redirect.vips", n.redirect.cfg.VIPs, cause(err))
		}
	}
	return open, n.sweep(instances)
}

// closeBalancer closes the ports that Listen opened: a Run that is over at once
// does nothing else.
func (n *Node) closeBalancer() {
	if n.balancer == nil || len(n.balancer.Status().Addresses) == 0 {
		return
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.balancer.Run(over) // there is a fault to report already
}

// lock makes sure that there is one node in a network namespace: two would take
// each other's addresses and rules for what an earlier run has left. The name of
// an abstract socket belongs to the namespace, and ends with the process.
func (n *Node) lock() (net.Listener, error) {
	if runtime.GOOS != "linux" || len(n.routers) == 0 && n.redirect == nil {
		return nil, nil
	}
	l, err := net.Listen("unix", "@lastbeat-node")
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fault("name", n.config.Name, "another node runs in this network namespace: stop it first")
	}
	return l, err
}

// sweep removes the addresses that carry our tag.
func (n *Node) sweep(instances []Instance) error {
	swept := map[string]bool{}
	for _, i := range instances {
		if swept[i.Interface] {
			continue
		}
		swept[i.Interface] = true
		addrs, err := vrrp.NewAddresses(vrrp.AddressesConfig{Interface: i.Interface})
		if err != nil {
			return err
		}
		left, err := addrs.Sweep()
		if err != nil {
			return fault(i.key()+".interface", i.Interface, cause(err))
		}
		for _, p := range left {
			n.log.Info("address", "kind", "swept", "address", p.String(), "reason", "left behind by an earlier run")
		}
	}
	return nil
}

// fits checks the instance against the interface as it is.
func (i Instance) fits() error {
	ifi, err := net.InterfaceByName(i.Interface)
	if err != nil {
		return fault(i.key()+".interface", i.Interface, "no such interface: correct the name, or make the interface first")
	}
	addrs, err := ifi.Addrs()
	if err != nil {
		return fault(i.key()+".interface", i.Interface, fmt.Sprintf("its addresses can't be read: %v", err))
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
			return fault(i.key()+".addresses", vip, fmt.Sprintf("outside every network of %s %v: use an address inside one of them", i.Interface, networks))
		}
	}
	return nil
}

// cause is an error of a kernel's refusal, with what to do about it.
func cause(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return "operation not permitted: run as root, or with CAP_NET_ADMIN and CAP_NET_RAW"
	}
	return err.Error()
}

func listenFault(key, address string, err error) error {
	text := err.Error()
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		text = "address already in use: stop the other program or choose another port"
	case errors.Is(err, syscall.EACCES):
		text = "permission denied: choose a port above 1023, or run as root or with CAP_NET_BIND_SERVICE"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		text = "cannot assign requested address: use an address of this machine"
	}
	return fault(key, address, text)
}
