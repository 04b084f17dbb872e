package node

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lastbeat/lastbeat/examples/internal/balancer"
	"github.com/lastbeat/lastbeat/health"
	"github.com/lastbeat/lastbeat/nft"
	"github.com/lastbeat/lastbeat/vrrp"
)

// complete returns a copy with the defaults filled in, or all faults joined; those
// of the balancer are for the balancer to say.
func (c Config) complete() (Config, error) {
	var out faults
	// Checks alone are for others to ask, on the status page.
	if len(c.Instances) == 0 && c.Balancer == nil && (len(c.Checks) == 0 || c.Status == "") {
		out.refuse("instances", "none", "there is nothing to do: list an instance, or give the section balancer, or checks with a status page")
	}
	out.add(c.checkStatus())
	if c.Redirect != nil {
		r := c.Redirect.complete()
		c.Redirect = &r
		out.add(r.check(c.Balancer))
	}
	c.Checks = slices.Clone(c.Checks)
	known := map[string]bool{}
	for i := range c.Checks {
		check := c.Checks[i].complete()
		c.Checks[i] = check
		key := "checks." + check.Name
		if check.Name == "" || strings.ContainsAny(check.Name, "/ ") || known[check.Name] {
			key = fmt.Sprintf("checks[%d]", i)
			out.refuse(key+".name", strconv.Quote(check.Name), "give each check a name of its own, without space and slash")
		}
		known[check.Name] = true
		out.add(check.check(key, c.Redirect != nil))
	}
	c.Instances = slices.Clone(c.Instances)
	out.add(checkInstances(c.Instances, known))
	return c, out.err()
}

func (c Config) checkStatus() error {
	if c.Status == "" {
		return nil
	}
	if _, port, err := net.SplitHostPort(c.Status); err != nil || !isPort(port) {
		return fault("status", c.Status, "no address to listen on: write host:port, such as 127.0.0.1:9455")
	}
	return nil
}

func isPort(text string) bool {
	_, err := net.LookupPort("tcp", text)
	return err == nil
}

func (r Redirect) complete() Redirect {
	r.VIPs = slices.Clone(r.VIPs)
	if r.Interval == 0 {
		r.Interval = 6 * time.Second
	}
	if r.Rise == 0 {
		r.Rise = 3
	}
	if r.Fall == 0 {
		r.Fall = 11
	}
	return r
}

func (r Redirect) check(b *balancer.Config) error {
	var out faults
	if len(r.VIPs) == 0 {
		out.refuse("redirect.vips", "[]", "list the virtual addresses")
	}
	for i, vip := range r.VIPs {
		key := fmt.Sprintf("redirect.vips[%d]", i)
		if slices.Contains(r.VIPs[:i], vip) {
			out.refuse(key, vip, "listed twice: remove one of the two")
		}
		// What nft says of an address alone ends with the remedy.
		if err := (nft.Config{Redirects: []nft.Redirect{{VIP: vip, From: 1, To: 2}}}).Validate(); err != nil {
			text := err.Error()
			out.refuse(key, vip, text[strings.LastIndex(text, ": ")+2:])
		}
	}
	if r.From == 0 {
		out.refuse("redirect.from", 0, "give the port that clients use, 1 to 65535")
	}
	switch {
	case b == nil:
		out.refuse("redirect.to", r.To, "there is nothing to redirect to: give the section balancer")
	case r.To == 0:
		out.refuse("redirect.to", 0, "give the balancer's port, 1 to 65535")
	case r.To == r.From:
		out.refuse("redirect.to", r.To, "is from as well: give the balancer another port")
	default:
		out.add(r.reaches(b.Listen))
	}
	_, err := health.NewMachine(r.health())
	out.add(healthFaults("redirect", err))
	return out.err()
}

// reaches checks that the balancer, listening there, gets what is redirected: the
// kernel rewrites the port alone, so packets come for the virtual address.
func (r Redirect) reaches(listen string) error {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return nil // the balancer says so
	}
	if n, err := net.LookupPort("tcp", port); err != nil || n != int(r.To) {
		return fault("redirect.to", r.To, fmt.Sprintf("the balancer listens on %s: give the same port in both", listen))
	}
	if a, err := netip.ParseAddr(host); host != "" && (err != nil || !a.IsUnspecified()) {
		return fault("balancer.listen", listen, fmt.Sprintf("gets nothing that is redirected to a virtual address: write :%d", r.To))
	}
	return nil
}

func (c Check) complete() Check {
	if c.Interval == 0 {
		c.Interval = 2 * time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = min(max(c.Interval*95/100, time.Millisecond), time.Hour)
	}
	if c.Rise == 0 {
		c.Rise = 3
	}
	if c.Fall == 0 {
		c.Fall = 3
	}
	return c
}

func (c Check) check(key string, redirect bool) error {
	var out faults
	_, err := health.NewMachine(c.health())
	out.add(healthFaults(key, err))
	out.add(c.Probe.check(key, redirect))
	return out.err()
}

func (p Probe) check(key string, redirect bool) error {
	var kinds []string
	for _, k := range []struct {
		name string
		set  bool
	}{{"http", p.HTTP != ""}, {"tcp", p.TCP != ""}, {"redirect", p.Redirect}, {"all", len(p.All) > 0}, {"any", len(p.Any) > 0}} {
		if k.set {
			kinds = append(kinds, k.name)
		}
	}
	var out faults
	if len(kinds) != 1 {
		out.refuse(key, kinds, "give exactly one of http, tcp, redirect, all, any")
	}
	if u, err := url.Parse(p.HTTP); p.HTTP != "" && (err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https") {
		out.refuse(key+".http", p.HTTP, "write a URL such as https://localhost:6443/readyz")
	}
	if host, port, err := net.SplitHostPort(p.TCP); p.TCP != "" && (err != nil || host == "" || !isPort(port)) {
		out.refuse(key+".tcp", p.TCP, "write host:port, such as localhost:22624")
	}
	if p.Redirect && !redirect {
		out.refuse(key+".redirect", true, "there is none: give the section redirect")
	}
	for i, q := range p.All {
		out.add(q.check(fmt.Sprintf("%s.all[%d]", key, i), redirect))
	}
	for i, q := range p.Any {
		out.add(q.check(fmt.Sprintf("%s.any[%d]", key, i), redirect))
	}
	return out.err()
}

func checkInstances(instances []Instance, checks map[string]bool) error {
	var out faults
	named := map[string]bool{}
	routers := map[string]string{} // key by interface and VRID
	addresses := map[netip.Addr]string{}
	for n, i := range instances {
		key := i.key()
		if i.Name == "" || named[i.Name] {
			key = fmt.Sprintf("instances[%d]", n)
			out.refuse(key+".name", strconv.Quote(i.Name), "give each instance a name of its own")
		}
		named[i.Name] = true
		out.add(i.check(key, checks))

		router := fmt.Sprintf("%s %d", i.Interface, i.VRID)
		if other := routers[router]; other != "" && i.VRID != 0 {
			out.refuse(key+".vrid", i.VRID, fmt.Sprintf("%s has it on %s too: give each instance of an interface its own", other, i.Interface))
		}
		routers[router] = key
		for _, p := range i.Addresses {
			if other := addresses[p.Addr()]; other != "" && other != key {
				out.refuse(key+".addresses", p, fmt.Sprintf("%s has it too: remove one of the two", other))
			}
			addresses[p.Addr()] = key
		}
	}
	return out.err()
}

// check finds what is wrong in terms of the file; the rest is for vrrp to say.
func (i Instance) check(key string, checks map[string]bool) error {
	var out faults
	for _, track := range slices.Sorted(maps.Keys(i.Tracks)) {
		if !checks[track] {
			out.refuse(key+".tracks", track, "no such check: correct its spelling or add it to the section checks")
		}
	}
	if len(i.Peers) == 0 && !i.Multicast {
		out.refuse(key+".peers", "[]", "nobody to talk to: list the other routers, or write multicast: true")
		i.Multicast = true // the rest is looked at as if it had been written
	}
	_, err := vrrp.NewInstance(i.config())
	out.add(vrrpFaults(key, err))
	return out.err()
}
