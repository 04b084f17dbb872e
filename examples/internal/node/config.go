package node

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/lastbeat/lastbeat/examples/internal/balancer"
	"github.com/lastbeat/lastbeat/examples/internal/yamlx"
	"github.com/lastbeat/lastbeat/health"
	"github.com/lastbeat/lastbeat/nft"
	"github.com/lastbeat/lastbeat/vrrp"
)

// Config is the YAML file of a node. Every part but Name may be left out.
type Config struct {
	// Name of the node, for people.
	Name string `yaml:"name"`
	// Status is the address of the status page, such as 127.0.0.1:9455.
	Status string `yaml:"status"`
	// Balancer is the TCP balancer of this node.
	Balancer *balancer.Config `yaml:"balancer"`
	// Redirect sends a port of the virtual addresses to the balancer.
	Redirect *Redirect `yaml:"redirect"`
	// Checks are what the instances' priorities depend on.
	Checks []Check `yaml:"checks"`
	// Instances are the virtual routers.
	Instances []Instance `yaml:"instances"`
}

// Redirect is a rule in the kernel that stands while the local balancer has a
// live backend.
type Redirect struct {
	VIPs []netip.Addr `yaml:"vips"`
	From uint16       `yaml:"from"` // the port that clients use
	To   uint16       `yaml:"to"`   // the balancer's port
	// Interval is how often the balancer is asked. Default 6s.
	Interval time.Duration `yaml:"interval"`
	// Rise is how many good answers in a row put the rule in. Default 3.
	Rise int `yaml:"rise"`
	// Fall is how many bad ones take it out. Default 11.
	Fall int `yaml:"fall"`
}

// Check is a named probe whose verdict instances track.
type Check struct {
	Name     string `yaml:"name"`
	Probe    `yaml:",inline"`
	Interval time.Duration `yaml:"interval"` // between two probes; default 2s
	Timeout  time.Duration `yaml:"timeout"`  // of one probe; default 95 % of the interval
	Rise     int           `yaml:"rise"`     // good probes in a row to be up; default 3
	Fall     int           `yaml:"fall"`     // bad ones to be down; default 3
}

// Probe is exactly one of these.
type Probe struct {
	HTTP     string  `yaml:"http"`     // a URL that must answer 200 to 299; any certificate will do
	TCP      string  `yaml:"tcp"`      // a host:port that must accept connections
	Redirect bool    `yaml:"redirect"` // the redirect must stand in the kernel as it should
	All      []Probe `yaml:"all"`      // all of these
	Any      []Probe `yaml:"any"`      // one of these
}

// Instance is a virtual router; see [vrrp.Config] for the fields of equal name.
type Instance struct {
	Name         string         `yaml:"name"`
	Interface    string         `yaml:"interface"`
	VRID         uint8          `yaml:"vrid"`
	Version      uint8          `yaml:"version"`
	Priority     uint8          `yaml:"priority"`
	Interval     time.Duration  `yaml:"interval"`
	Source       netip.Addr     `yaml:"source"`
	Peers        []netip.Addr   `yaml:"peers"`
	Multicast    bool           `yaml:"multicast"`
	Password     string         `yaml:"password"`
	Addresses    []netip.Prefix `yaml:"addresses"`
	Label        string         `yaml:"label"`
	NoPreempt    bool           `yaml:"nopreempt"`
	PreemptDelay time.Duration  `yaml:"preempt_delay"`
	Lifetime     time.Duration  `yaml:"lifetime"`
	Tracks       map[string]int `yaml:"tracks"` // weight by check; 0 means Fault while it is down
}

// Parse reads a YAML file's content. Its error says line, key, value and remedy.
func Parse(data []byte) (Config, error) {
	var c Config
	if err := yamlx.Decode(data, &c); err != nil {
		return Config{}, err
	}
	return c, nil
}

// fault is what is wrong with a key, in one line.
func fault(key string, value any, remedy string) error {
	return fmt.Errorf("%s: %v: %s", key, value, remedy)
}

// complete fills in the defaults and returns all faults joined.
func (c Config) complete() (Config, error) {
	var faults []error
	add := func(err error) {
		if err != nil {
			faults = append(faults, err)
		}
	}
	if c.Status != "" {
		if _, err := netip.ParseAddrPort(c.Status); err != nil {
			add(fault("status", c.Status, "write ADDRESS:PORT, such as 127.0.0.1:9455"))
		}
	}
	if c.Redirect != nil {
		r, err := c.Redirect.complete(c.Balancer != nil)
		c.Redirect = &r
		add(err)
	}
	c.Checks = slices.Clone(c.Checks)
	names := map[string]bool{}
	for i := range c.Checks {
		key := fmt.Sprintf("checks[%d]", i)
		if name := c.Checks[i].Name; name == "" || names[name] {
			add(fault(key+".name", fmt.Sprintf("%q", name), "every check needs a name of its own"))
		}
		names[c.Checks[i].Name] = true
		var err error
		c.Checks[i], err = c.Checks[i].complete(key, c.Redirect != nil)
		add(err)
	}
	routers := map[string]string{}
	for i, inst := range c.Instances {
		key := fmt.Sprintf("instances[%d]", i)
		if inst.Name != "" {
			key = "instances." + inst.Name
		}
		add(inst.check(key, names))
		router := fmt.Sprintf("%s/%d", inst.Interface, inst.VRID)
		if other := routers[router]; other != "" {
			add(fault(key+".vrid", inst.VRID, fmt.Sprintf("is that of %s on %s too: give each instance of an interface its own", other, inst.Interface)))
		}
		routers[router] = key
	}
	return c, errors.Join(faults...)
}

func (r Redirect) complete(balancer bool) (Redirect, error) {
	if r.Interval == 0 {
		r.Interval = 6 * time.Second
	}
	if r.Rise == 0 {
		r.Rise = 3
	}
	if r.Fall == 0 {
		r.Fall = 11
	}
	var faults []error
	if !balancer {
		faults = append(faults, fault("redirect", r.VIPs, "needs the section balancer, to which it redirects"))
	}
	if len(r.VIPs) == 0 {
		faults = append(faults, fault("redirect.vips", "none", "list the virtual addresses"))
	}
	if err := r.config().Validate(); err != nil {
		faults = append(faults, fmt.Errorf("redirect: %w", err))
	}
	return r, errors.Join(faults...)
}

// config is what the kernel is to do.
func (r Redirect) config() nft.Config {
	var c nft.Config
	for _, vip := range r.VIPs {
		c.Redirects = append(c.Redirects, nft.Redirect{VIP: vip, From: r.From, To: r.To})
	}
	return c
}

func (c Check) complete(key string, redirect bool) (Check, error) {
	if c.Interval == 0 {
		c.Interval = 2 * time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = c.Interval * 95 / 100
	}
	if c.Rise == 0 {
		c.Rise = 3
	}
	if c.Fall == 0 {
		c.Fall = 3
	}
	return c, c.Probe.check(key, redirect)
}

func (c Check) health() health.Config {
	return health.Config{Interval: c.Interval, Timeout: c.Timeout, Rise: c.Rise, Fall: c.Fall, Initial: health.InitialFirst}
}

func (p Probe) check(key string, redirect bool) error {
	kinds := 0
	for _, set := range []bool{p.HTTP != "", p.TCP != "", p.Redirect, len(p.All) > 0, len(p.Any) > 0} {
		if set {
			kinds++
		}
	}
	var faults []error
	if kinds != 1 {
		faults = append(faults, fault(key, fmt.Sprintf("has %d kinds of probe", kinds), "give exactly one of http, tcp, redirect, all, any"))
	}
	if u, err := url.Parse(p.HTTP); p.HTTP != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		faults = append(faults, fault(key+".http", p.HTTP, "write a URL such as https://localhost:6443/readyz"))
	}
	if _, _, err := net.SplitHostPort(p.TCP); p.TCP != "" && err != nil {
		faults = append(faults, fault(key+".tcp", p.TCP, "write HOST:PORT, such as localhost:22624"))
	}
	if p.Redirect && !redirect {
		faults = append(faults, fault(key+".redirect", true, "needs the section redirect"))
	}
	for i, q := range p.All {
		faults = append(faults, q.check(fmt.Sprintf("%s.all[%d]", key, i), redirect))
	}
	for i, q := range p.Any {
		faults = append(faults, q.check(fmt.Sprintf("%s.any[%d]", key, i), redirect))
	}
	return errors.Join(faults...)
}

// check finds what is wrong in terms of the file; the rest is for vrrp to say.
func (i Instance) check(key string, checks map[string]bool) error {
	var faults []error
	if i.Name == "" {
		faults = append(faults, fault(key+".name", `""`, "every instance needs a name"))
	}
	for _, track := range slices.Sorted(maps.Keys(i.Tracks)) {
		if !checks[track] {
			faults = append(faults, fault(key+".tracks", track, "is no check: name it in the section checks"))
		}
	}
	if _, err := vrrp.NewInstance(i.config()); err != nil {
		for _, line := range Lines(err) {
			faults = append(faults, fmt.Errorf("%s: %w", key, line))
		}
	}
	return errors.Join(faults...)
}

// Lines takes joined errors apart: one line for each fault.
func Lines(err error) []error {
	if start, ok := err.(*StartError); ok {
		return Lines(start.Err)
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var out []error
		for _, e := range joined.Unwrap() {
			out = append(out, Lines(e)...)
		}
		return out
	}
	return []error{err}
}

func (i Instance) config() vrrp.InstanceConfig {
	return vrrp.InstanceConfig{
		Config: vrrp.Config{
			VRID: i.VRID, Version: i.Version, Priority: i.Priority, Interval: i.Interval,
			Source: i.Source, Peers: i.Peers, Multicast: i.Multicast, Password: i.Password,
			NoPreempt: i.NoPreempt, PreemptDelay: i.PreemptDelay, Lifetime: i.Lifetime,
			Tracks: i.tracks(),
		},
		Interface: i.Interface, Prefixes: i.Addresses, Label: i.Label,
	}
}

func (i Instance) tracks() []vrrp.Track {
	var out []vrrp.Track
	for _, name := range slices.Sorted(maps.Keys(i.Tracks)) {
		out = append(out, vrrp.Track{Name: name, Weight: i.Tracks[name]})
	}
	return out
}
