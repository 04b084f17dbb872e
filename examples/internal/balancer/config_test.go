package balancer

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/lastbeat/lastbeat/examples/internal/proxyproto"
	"github.com/lastbeat/lastbeat/examples/internal/yamlx"
)

func TestConfigFaults(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		want   string
	}{
		"no listen":       {Config{}, `listen "": no address: give one, such as :9445`},
		"listen":          {Config{Listen: "9445"}, "listen 9445: no address to listen on: write :port or host:port, such as :9445 or [::1]:9445"},
		"port":            {Config{Listen: ":99999"}, "listen :99999: no address to listen on: write :port or host:port, such as :9445 or [::1]:9445"},
		"same port":       {Config{Listen: ":9445", Ready: ":9445"}, "ready :9445: address is that of listen: choose another port"},
		"backend":         {Config{Listen: ":0", Backends: Servers("a:1", "b")}, `backends[1] "b": no address to connect to: write host:port, such as 192.0.2.1:6443 or [2001:db8::1]:6443`},
		"backend's port":  {Config{Listen: ":0", Backends: Servers("a:0")}, `backends[0] "a:0": no address to connect to: write host:port, such as 192.0.2.1:6443 or [2001:db8::1]:6443`},
		"twice":           {Config{Listen: ":0", Backends: Servers("a:1", "a:1")}, "backends[1] a:1: it is listed twice: remove one of the two"},
		"connect timeout": {Config{Listen: ":0", ConnectTimeout: -1}, "connect_timeout -1ns: it is negative: give a time such as 1s"},
		"grace":           {Config{Listen: ":0", Grace: -1}, "grace -1ns: it is negative: give 0s or more"},
		"queue":           {Config{Listen: ":0", Queue: new(-1)}, "queue -1: out of range: give 0 to 1000000"},
		"queue timeout":   {Config{Listen: ":0", QueueTimeout: -1}, "queue_timeout -1ns: it is negative: give a time such as 5s"},
		"kind":            {Config{Listen: ":0", Check: Check{Kind: "ping"}}, "check.kind ping: no such kind: choose https, http or tcp"},
		"path":            {Config{Listen: ":0", Check: Check{Path: "readyz"}}, `check.path "readyz": no path: write one that begins with a slash, such as /readyz`},
		"interval":        {Config{Listen: ":0", Check: Check{Interval: -time.Second}}, "check.interval -1s: out of range: give 1ms to 24h0m0s"},
		"several": {Config{Listen: ":0", Check: Check{Timeout: 2 * time.Hour, Fall: -1}},
			"check.timeout 2h0m0s: out of range: give 1ms to 1h0m0s\nbalancer: check.fall -1: out of range: give 1 to 1000"},
		"too many": {Config{Listen: ":0", MaxConn: 50_000}, "maxconn 50,000: descriptor limit 20,000 has room for 3,200: lower it to 3200 or auto, or raise the limit by ulimit -n 312499"},
		"all at once": {Config{Listen: "", Grace: -1, MaxConn: -1},
			"listen \"\": no address: give one, such as :9445\nbalancer: grace -1ns: it is negative: give 0s or more\nbalancer: maxconn -1: no number of connections: give 1 or more, or auto"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newLimited(c.config, 20_000)
			require.EqualError(t, err, "balancer: "+c.want)
			for line := range strings.Lines(err.Error()) {
				require.True(t, strings.HasPrefix(line, "balancer: "))
			}
		})
	}
}

// A program may write the configuration of another one.
func TestConfigSurvivesYAML(t *testing.T) {
	for name, c := range map[string]Config{
		"short": {Listen: ":0", Backends: Servers("a:1", "b:1")},
		"long": {Listen: ":0", Stats: ":1", Queue: new(0), SlowStart: time.Minute, Algorithm: "p2c", Backends: []Server{
			{Name: "x", Address: "a:1", Weight: new(0), Tier: 2, MaxConn: 3, SendProxy: proxyproto.V2}}},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := yaml.Marshal(c)
			require.NoError(t, err)
			var got Config
			require.NoError(t, yamlx.Decode(text, &got), "%s", text)
			require.Equal(t, c, got)
		})
	}
}

func TestAutoIsNoted(t *testing.T) {
	b, err := newLimited(Config{Listen: ":0"}, 20_000)
	require.NoError(t, err)
	require.Equal(t, "maxconn 3,200 of 40,000: descriptor limit 20,000", b.Note())
	require.Equal(t, 3_200, b.Status().MaxConn)
}
