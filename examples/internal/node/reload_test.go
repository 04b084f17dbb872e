package node

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/examples/internal/balancer"
)

func reloadable() Config {
	a, b := sound(), sound()
	b.Name, b.VRID, b.Addresses = "B", 2, []netip.Prefix{netip.MustParsePrefix("192.0.2.8/24")}
	a.Tracks = map[string]int{"one": 1, "two": 2}
	b.Tracks = map[string]int{"two": 0}
	return Config{
		Name:      "n",
		Balancer:  &balancer.Config{Listen: ":9445", MaxConn: 1, Backends: balancer.Servers("192.0.2.11:6443")},
		Checks:    []Check{{Name: "one", Probe: Probe{TCP: "localhost:1"}}, {Name: "two", Probe: Probe{TCP: "localhost:2"}}},
		Instances: []Instance{a, b},
	}
}

// known are the checks that are carried out, in no order.
func known(n *Node) (out []string) {
	for name := range n.monitor.Snapshot() {
		out = append(out, name)
	}
	return out
}

func TestReload(t *testing.T) {
	for name, c := range map[string]struct {
		edit    func(*Config)
		restart []string
		checks  []string
	}{
		"nothing": {func(c *Config) {}, nil, []string{"one", "two"}},
		"weights": {func(c *Config) { c.Instances[0].Tracks = map[string]int{"one": 5} }, nil, []string{"one", "two"}},
		"a check more": {func(c *Config) {
			c.Checks = append(c.Checks, Check{Name: "three", Probe: Probe{TCP: "localhost:3"}})
			c.Instances[0].Tracks["three"] = 3
		}, nil, []string{"one", "two", "three"}},
		"a check less": {func(c *Config) {
			c.Checks = c.Checks[1:]
			delete(c.Instances[0].Tracks, "one")
		}, nil, []string{"two"}},
		"a check changed": {func(c *Config) { c.Checks[0].TCP = "localhost:4" }, nil, []string{"one", "two"}},
		"backends":        {func(c *Config) { c.Balancer.Backends = nil }, nil, []string{"one", "two"}},
		"what needs a restart": {func(c *Config) {
			c.Name, c.Status = "m", "127.0.0.1:1"
			c.Balancer.Listen = ":9446"
			c.Redirect = &Redirect{VIPs: []netip.Addr{netip.MustParseAddr("192.0.2.9")}, From: 6443, To: 9446}
			c.Instances[0].Priority = 7
			c.Instances[1].Name = "C"
		}, []string{"name", "status", "redirect", "instances.A", "instances.B", "instances.C", "balancer.listen"}, []string{"one", "two"}},
		"balancer gone": {func(c *Config) { c.Balancer = nil }, []string{"balancer"}, []string{"one", "two"}},
		"an instance gone with its check": {func(c *Config) {
			c.Instances = c.Instances[:1]
			c.Instances[0].Tracks = nil
			c.Checks = nil
		}, []string{"instances.B", "checks.two"}, []string{"two"}},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := New(reloadable(), nil)
			require.NoError(t, err)
			fresh := reloadable()
			c.edit(&fresh)
			restart, err := n.Reload(fresh)
			require.NoError(t, err)
			require.Equal(t, c.restart, restart)
			require.ElementsMatch(t, c.checks, known(n))
			if len(fresh.Instances) > 0 {
				require.Equal(t, fresh.Instances[0].Tracks, n.config.Instances[0].Tracks)
			}

			// Once more, and back: what was kept is not forgotten.
			again, err := n.Reload(fresh)
			require.NoError(t, err)
			require.Equal(t, restart, again)
			restart, err = n.Reload(reloadable())
			require.NoError(t, err)
			require.Empty(t, restart)
			require.ElementsMatch(t, []string{"one", "two"}, known(n))
		})
	}
}

// A fault anywhere changes nothing anywhere.
func TestReloadFault(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*Config)
		want string
	}{
		"instance": {func(c *Config) { c.Instances[1].VRID = 0 }, "instances.B.vrid: VRID 0: must be 1 to 255"},
		"check":    {func(c *Config) { c.Checks[1].Fall = -1 }, "checks.two.fall -1: out of range: give 1 to 1000"},
		"backend": {func(c *Config) { c.Balancer.Backends = balancer.Servers("x") },
			`balancer.backends[0] "x": no address to connect to: write host:port, such as 192.0.2.1:6443 or [2001:db8::1]:6443`},
		"a check of a redirect that is new": {func(c *Config) {
			c.Redirect = &Redirect{VIPs: []netip.Addr{netip.MustParseAddr("192.0.2.9")}, From: 6443, To: 9445}
			c.Checks[1].Probe = Probe{Any: []Probe{{All: []Probe{{Redirect: true}}}}}
		}, "checks.two redirect: the section redirect is new: restart to have both"},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := New(reloadable(), nil)
			require.NoError(t, err)
			before := n.config
			fresh := reloadable()
			fresh.Checks = append(fresh.Checks, Check{Name: "three", Probe: Probe{TCP: "localhost:3"}})
			fresh.Instances[0].Tracks = map[string]int{"three": 9}
			fresh.Balancer.Backends = append(fresh.Balancer.Backends, balancer.Server{Address: "192.0.2.12:6443"})
			c.edit(&fresh)
			restart, err := n.Reload(fresh)
			require.EqualError(t, err, c.want)
			require.Empty(t, restart)
			require.Equal(t, before, n.config)
			require.ElementsMatch(t, []string{"one", "two"}, known(n))
			require.Len(t, n.Status(t.Context()).Balancer.Backends, 1)
		})
	}
}
