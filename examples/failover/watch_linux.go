package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/lastbeat/lastbeat/examples/internal/lab"
	"github.com/lastbeat/lastbeat/examples/internal/load"
	"github.com/lastbeat/lastbeat/examples/internal/standin"
)

// watch is one run in a lab: it brings it up, breaks it, and writes down what the
// capture sees.
type watch struct {
	o      options
	lab    *lab.Lab
	pcap   *os.File
	begun  time.Time
	notify chan struct{} // something was seen
	fail   chan error    // a process died that should not have

	mu     sync.Mutex
	obs    observation
	checks map[string]string // "node check" to its state, as the daemons log it
	warned []string
	live   live
}

func newWatch(o options) (*watch, error) {
	w := &watch{o: o, begun: time.Now(), notify: make(chan struct{}, 1), fail: make(chan error, 1),
		checks: map[string]string{}}
	w.obs.Setup, w.obs.Victim = o.setup(), victim(o.fault)
	w.live = live{run: outcome{obs: &w.obs, Results: make([]result, len(virtuals))}.frame()}
	config := lab.Config{Line: w.line, Ended: w.ended, Packet: w.packet}
	if o.pcap != "" {
		f, err := os.Create(o.pcap)
		if err != nil {
			return nil, err
		}
		w.pcap, config.Pcap = f, f
	}
	w.mu.Lock() // the first packet may come before New returns
	defer w.mu.Unlock()
	var err error
	if w.lab, err = lab.New(config); err != nil && w.pcap != nil {
		w.pcap.Close()
	}
	return w, err
}

func (w *watch) close() {
	if err := w.lab.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "failover:", err)
	}
	if w.pcap != nil {
		w.pcap.Close()
	}
}

func (w *watch) say(format string, args ...any) {
	fmt.Printf("%6.1f s  %s\n", time.Since(w.begun).Seconds(), fmt.Sprintf(format, args...))
}

// bringUp starts everything and waits until the first holder has both addresses
// and all others are fit to take over.
func (w *watch) bringUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, labTimeout)
	defer cancel()
	w.say("building: 3 masters, 2 workers and 2 clients on one switch; %s", w.obs.Setup.describe())
	for _, m := range masters {
		for _, role := range []string{standin.RoleAPI, standin.RoleRouter, standin.RoleMCS, standin.RoleDefaultIngress} {
			if err := w.lab.Start(m, role); err != nil {
				return err
			}
		}
	}
	if err := w.startNode(firstHolder); err != nil {
		return err
	}
	if err := w.until(ctx, firstHolder+" holds both addresses", func() bool { return w.holdsBoth() }); err != nil {
		return err
	}
	w.say("%s holds both addresses", firstHolder)
	for _, n := range nodes {
		if n != firstHolder {
			if err := w.startNode(n); err != nil {
				return err
			}
		}
	}
	if err := w.until(ctx, "all checks are good", func() bool { return w.allFit() }); err != nil {
		return err
	}
	if w.o.peer != "" && !wait(ctx, 8*time.Second) { // its scripts follow the checks by three runs
		return ctx.Err()
	}
	w.say("all masters are fit to take over (%s); the workers run no router and are in Fault", w.priorities())
	return nil
}

// startNode writes the node's file and starts its daemon, and keepalived beside
// it where that speaks VRRP.
func (w *watch) startNode(name string) error {
	config := nodeConfig(name, w.o.advert, w.o.peer == "")
	text, err := yaml.Marshal(config)
	if err != nil {
		return err
	}
	file := filepath.Join(w.lab.Dir(), name+".yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	if err := w.lab.Start(name, roleNode, file); err != nil {
		return err
	}
	if w.o.peer == "" {
		return nil
	}
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	scripts := map[string]string{}
	for _, c := range append(apiChecks, ingressChecks...) {
		scripts[c.name] = fmt.Sprintf("%s role %s %s %s", self, roleProbe, name, checkURL(c.name))
	}
	conf, err := lab.KeepalivedConfig{Node: name, Advert: w.o.advert, Scripts: scripts}.Render()
	if err != nil {
		return err
	}
	return w.lab.StartKeepalived(name, conf)
}

// startClients lets the client begin, and the newcomer, and waits until the client
// is served.
func (w *watch) startClients(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, labTimeout)
	defer cancel()
	c := load.Config{}
	for _, v := range virtuals {
		port := "443"
		if v.Name == "API" {
			port = "6443"
		}
		c.Targets = append(c.Targets, load.Target{Name: v.Target, URL: "https://" + v.Addr + ":" + port + "/"})
		c.Pings = append(c.Pings, netip.MustParseAddr(v.Addr))
	}
	newcomer := load.Config{Pings: c.Pings, PingEvery: askAnew}
	for host, config := range map[string]load.Config{"client": c, "newcomer": newcomer} {
		text, err := json.Marshal(config)
		if err != nil {
			return err
		}
		if err := w.lab.Start(host, roleLoad, string(text)); err != nil {
			return err
		}
	}
	err := w.until(ctx, "the client reaches both addresses", func() bool {
		got := map[string]bool{}
		for _, r := range w.obs.Replies {
			got[r.VIP] = true
		}
		for _, r := range w.obs.Requests {
			if r.Error == "" {
				got[r.Target] = true
			}
		}
		return len(got) == 2*len(virtuals)
	})
	if err == nil {
		w.say("the client pings both addresses every 10 ms and opens a TLS connection to each every 50 ms")
	}
	return err
}

// until waits for a condition on what was seen.
func (w *watch) until(ctx context.Context, what string, holds func() bool) error {
	look := time.NewTicker(50 * time.Millisecond) // the kernel's addresses send us no word
	defer look.Stop()
	for {
		w.mu.Lock()
		ok := holds()
		w.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, ctx.Err())
		case err := <-w.fail:
			return err
		case <-look.C:
		case <-w.notify:
		}
	}
}

// priorities tells what the first holder advertises now.
func (w *watch) priorities() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := map[int]int{}
	for _, a := range w.obs.Adverts {
		last[a.VRID] = a.Priority
	}
	var out []string
	for _, v := range virtuals {
		out = append(out, fmt.Sprintf("%s %d", v.Name, last[v.VRID]))
	}
	return "priorities: " + strings.Join(out, ", ")
}

func (w *watch) holdsBoth() bool {
	addrs, err := w.lab.NS(firstHolder).Addrs(lab.Interface)
	if err != nil {
		return false
	}
	for _, v := range virtuals {
		if !slices.ContainsFunc(addrs, func(p netip.Prefix) bool { return p.Addr().String() == v.Addr }) {
			return false
		}
	}
	return true
}

func (w *watch) allFit() bool {
	for _, m := range masters {
		for _, c := range checksOf(m) {
			if w.checks[m+" "+c.name] != "online" {
				return false
			}
		}
	}
	for _, n := range workers {
		if w.checks[n+" chk_ingress"] != "offline" {
			return false
		}
	}
	return true
}

// breakIt makes the fault. The capture says when.
func (w *watch) breakIt(fault string) error {
	on := victim(fault)
	var both func(node, role string) error
	switch fault {
	case "silent":
		return w.lab.Silent(on)
	case "carrier":
		return w.lab.Carrier(on)
	case "backend":
		return w.lab.Kill(on, standin.RoleAPI)
	case "kill":
		both = w.lab.Kill
	case "term":
		both = w.lab.Term
	case "freeze":
		both = w.lab.Freeze
	}
	return w.daemons(on, both)
}

// daemons does something to what speaks VRRP on a node, and to vipnode beside it.
func (w *watch) daemons(on string, do func(node, role string) error) error {
	var err error
	if w.o.peer != "" {
		err = do(on, lab.RoleKeepalived)
	}
	return errors.Join(err, do(on, roleNode))
}

// watchOn lets the run go on for as long as it was asked for.
func (w *watch) watchOn(ctx context.Context) error {
	end := time.NewTimer(runLength(w.o.fault, w.o.until))
	forget := time.NewTicker(askAnew)
	thaw := time.NewTimer(freezeFor)
	defer end.Stop()
	defer forget.Stop()
	defer thaw.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.fail:
			return err
		case <-end.C:
			return nil
		case <-forget.C:
			// The newcomer asks anew who has the addresses: any kernel that still has
			// one answers.
			if err := w.lab.NS("newcomer").FlushNeighbours(lab.Interface); err != nil {
				return err
			}
		case <-thaw.C:
			if w.o.fault == "freeze" {
				if err := w.daemons(victim(w.o.fault), w.lab.Thaw); err != nil {
					return err
				}
			}
		case <-w.notify:
		}
	}
}

// finish ends the clients and hands out what was seen.
func (w *watch) finish() (*observation, error) {
	end := time.Now()
	for _, host := range []string{"client", "newcomer"} {
		if err := w.lab.Stop(host, roleLoad, 5*time.Second); err != nil {
			return nil, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.obs.Fault.IsZero() {
		return nil, errors.New("the capture did not see the fault's mark")
	}
	obs := w.obs
	obs.End = end
	// What came while the clients were ending is not part of the run.
	obs.Adverts = slices.DeleteFunc(slices.Clone(obs.Adverts), func(a advert) bool { return a.At.After(end) })
	obs.Replies = slices.DeleteFunc(slices.Clone(obs.Replies), func(r reply) bool { return r.At.After(end) })
	obs.Lost = int(w.lab.Captured().Lost)
	return &obs, nil
}

// keepUp prints how to enter each node, until it is interrupted.
func (w *watch) keepUp(ctx context.Context) error {
	fmt.Println("The lab is up until you press Ctrl-C. Enter a node with:")
	for _, h := range lab.Hosts() {
		enter, err := w.lab.Enter(h.Name)
		if err != nil {
			return err
		}
		fmt.Printf("  %-9s %-15v %s sh\n", h.Name, h.Addr, enter)
	}
	fmt.Println("There, for example: curl -s http://127.0.0.1:9455/status   nft list ruleset   ip address show br-ex")
	select {
	case <-ctx.Done():
		return nil
	case err := <-w.fail:
		return err
	}
}
