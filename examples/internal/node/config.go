package node

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/lastbeat/lastbeat/examples/internal/balancer"
	"github.com/lastbeat/lastbeat/examples/internal/yamlx"
	"github.com/lastbeat/lastbeat/health"
	"github.com/lastbeat/lastbeat/nft"
	"github.com/lastbeat/lastbeat/vrrp"
)

// Config is the YAML file of a node. It has instances, or a balancer, or both;
// every other part may be left out.
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
		return Config{}, balancerFaults(err)
	}
	return c, nil
}

// config is what the kernel is to do.
func (r Redirect) config() nft.Config {
	var c nft.Config
	for _, vip := range r.VIPs {
		c.Redirects = append(c.Redirects, nft.Redirect{VIP: vip, From: r.From, To: r.To})
	}
	return c
}

// health is how the balancer's answers are judged.
func (r Redirect) health() health.Config {
	return health.Config{Interval: r.Interval, Rise: r.Rise, Fall: r.Fall}
}

// health is how the check's probes are judged: the first one is believed at once,
// as a node that starts has nobody to mislead.
func (c Check) health() health.Config {
	return health.Config{Interval: c.Interval, Timeout: c.Timeout, Rise: c.Rise, Fall: c.Fall, Initial: health.InitialFirst}
}

func (i Instance) key() string { return "instances." + i.Name }

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
