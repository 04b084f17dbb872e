package vrrp_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/vrrp"
)

func TestConfigFaults(t *testing.T) {
	tests := []struct {
		name string
		edit func(*vrrp.Config)
		want string
	}{
		{"VRID 0", func(c *vrrp.Config) { c.VRID = 0 }, "VRID 0: must be 1 to 255"},
		{"version 1", func(c *vrrp.Config) { c.Version = 1 }, "version 1: must be 2 or 3"},
		{"version 2 below a second", func(c *vrrp.Config) { c.Interval = 400 * ms }, "interval 400ms: version 2 carries whole seconds"},
		{"no source", func(c *vrrp.Config) { c.Source = netip.Addr{} }, "source invalid IP: needs an IPv4 address of our own"},
		{"no address", func(c *vrrp.Config) { c.Addrs = nil }, "0 virtual addresses: needs 1 to 255"},
		{"IPv6 address", func(c *vrrp.Config) { c.Addrs = []netip.Addr{netip.MustParseAddr("2001:db8::1")} }, "IPv6 is not implemented"},
		{"own address as virtual", func(c *vrrp.Config) { c.Addrs = []netip.Addr{ownAddr} }, "only an owner (priority 255) may own it"},
		{"no peers", func(c *vrrp.Config) { c.Peers = nil }, "no peers: list the other routers for unicast, or set Multicast"},
		{"peers and multicast", func(c *vrrp.Config) { c.Multicast = true }, "choose one"},
		{"itself as peer", func(c *vrrp.Config) { c.Peers = []netip.Addr{ownAddr} }, "our own source"},
		{"a peer twice", func(c *vrrp.Config) { c.Peers = []netip.Addr{lowAddr, lowAddr} }, "listed twice"},
		{"IPv6 peer", func(c *vrrp.Config) { c.Peers = []netip.Addr{netip.IPv6LinkLocalAllRouters()} }, "must be IPv4"},
		{"65 peers", func(c *vrrp.Config) {
			c.Peers = nil
			for i := range 65 {
				c.Peers = append(c.Peers, netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + i)}))
			}
		}, "65 peers: must be at most 64"},
		{"password in version 3", func(c *vrrp.Config) { c.Version = 3 }, "version 3 has none"},
		{"negative preempt delay", func(c *vrrp.Config) { c.PreemptDelay = -1 }, "must not be negative"},
		{"rank delay", func(c *vrrp.Config) { c.RankDelay = 2 * time.Second }, "must not be above the interval"},
		{"lifetime of a second", func(c *vrrp.Config) { c.Lifetime = time.Second }, "at least 2s and two intervals"},
		{"lifetime of a fraction", func(c *vrrp.Config) { c.Lifetime = 3500 * ms }, "must be whole seconds"},
		{"checksum", func(c *vrrp.Config) { c.Checksum = 9 }, "checksum form 9: unknown"},
		{"track without name", func(c *vrrp.Config) { c.Tracks = []vrrp.Track{{}} }, "a track needs a name"},
		{"track twice", func(c *vrrp.Config) { c.Tracks = []vrrp.Track{{Name: "a"}, {Name: "a"}} }, "names must be unique"},
		{"weight", func(c *vrrp.Config) { c.Tracks = []vrrp.Track{{Name: "a", Weight: 254}} }, "must be -253 to 253"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := baseConfig()
			tt.edit(&cfg)
			_, err := vrrp.NewMachine(cfg)
			require.ErrorContains(t, err, tt.want)
			for line := range strings.Lines(err.Error()) {
				require.True(t, strings.HasPrefix(line, "vrrp: "), line)
			}
		})
	}
	t.Run("all faults at once", func(t *testing.T) {
		_, err := vrrp.NewMachine(vrrp.Config{})
		for _, want := range []string{"VRID", "source", "virtual addresses", "peers"} {
			require.ErrorContains(t, err, want)
		}
	})
	t.Run("the caller's slices are not kept", func(t *testing.T) {
		cfg := baseConfig()
		m, err := vrrp.NewMachine(cfg)
		require.NoError(t, err)
		cfg.Addrs[0] = lowAddr
		require.Equal(t, testVIP, m.Advert(1).Addrs[0])
	})
}

func TestConfigWarnings(t *testing.T) {
	require.Empty(t, baseConfig().Warnings())
	c := baseConfig()
	c.Password = "hj4h5_api_vip" // https://github.com/kubernetes-retired/contrib/issues/460
	require.Equal(t, []string{`password has 13 bytes: only the first 8 go on the wire, "hj4h5_ap"`}, c.Warnings())
	c = baseConfig()
	c.Version, c.Password, c.Interval = 3, "", 50*ms
	require.Len(t, c.Warnings(), 1)
	c = baseConfig() // https://github.com/acassen/keepalived/issues/942
	c.NoPreempt, c.Tracks = true, []vrrp.Track{{Name: "a", Weight: 5}}
	require.Len(t, c.Warnings(), 1)
	c.Tracks = append(c.Tracks, vrrp.Track{Name: "b"})
	require.Empty(t, c.Warnings())
}

// The addresses of a killed holder end no sooner than another router may have
// them, whatever its priority.
func TestDefaultLifetime(t *testing.T) {
	for _, tt := range []struct {
		version        uint8
		interval, want time.Duration
	}{
		{2, time.Second, 5 * time.Second},
		{2, 255 * time.Second, 767 * time.Second},
		{3, 10 * ms, 3 * time.Second},
		{3, 100 * ms, 3 * time.Second},
		{3, time.Second, 5 * time.Second},
		{3, 40950 * ms, 165 * time.Second},
	} {
		r := active(t, func(c *vrrp.Config) {
			if c.Version, c.Interval = tt.version, tt.interval; tt.version == 3 {
				c.Password = ""
			}
		})
		r.next()
		require.Equal(t, fmt.Sprintf("advert 68, hold %v", tt.want), r.did(), "version %d, %v", tt.version, tt.interval)
	}
}

func TestAdvertOfMachine(t *testing.T) {
	m, err := vrrp.NewMachine(baseConfig())
	require.NoError(t, err)
	require.Equal(t, vrrp.ChecksumPlain, m.Advert(1).Checksum, "version 2 knows no other")
	cfg := baseConfig()
	cfg.Version, cfg.Password, cfg.Checksum = 3, "", vrrp.ChecksumLegacy
	m, err = vrrp.NewMachine(cfg)
	require.NoError(t, err)
	require.Equal(t, vrrp.ChecksumLegacy, m.Advert(1).Checksum)
}
