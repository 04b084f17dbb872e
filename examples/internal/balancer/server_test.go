package balancer

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/examples/internal/proxyproto"
	"github.com/lastbeat/lastbeat/examples/internal/yamlx"
)

func TestServersFromYAML(t *testing.T) {
	for name, c := range map[string]struct {
		yaml string
		want []Server
		err  string
	}{
		"addresses": {yaml: "[a:1, b:2]", want: Servers("a:1", "b:2")},
		"both forms": {yaml: "[a:1, {name: b, address: b:2, weight: 0, tier: 1, maxconn: 9}]",
			want: []Server{{Address: "a:1"}, {Name: "b", Address: "b:2", Weight: new(0), Tier: 1, MaxConn: 9}}},
		"unknown key": {yaml: "[{address: a:1, wieght: 2}]",
			err: "line 1: backends[0].wieght: no such key: correct its spelling or remove it"},
		"weight": {yaml: "[{address: a:1, weight: heavy}]",
			err: "line 1: backends[0].weight heavy: give a whole number within its range"},
		"header":         {yaml: "[{address: a:1, send_proxy: v2}]", want: []Server{{Address: "a:1", SendProxy: proxyproto.V2}}},
		"no such header": {yaml: "[{address: a:1, send_proxy: v3}]", err: "send_proxy v3: no such version: give v1 or v2"},
		"list":           {yaml: "[[a:1]]", err: "line 1: backends is of another kind: give keys and values below it"},
	} {
		t.Run(name, func(t *testing.T) {
			var config Config
			err := yamlx.Decode([]byte("backends: "+c.yaml+"\n"), &config)
			if c.err != "" {
				require.EqualError(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, config.Backends)
		})
	}
}

func TestServerFaults(t *testing.T) {
	for want, c := range map[string]Config{
		`backends[0].name "a b": no name: use up to 64 letters, digits and any of . _ - : [ ]`: {Backends: []Server{{Name: "a b", Address: "a:1"}}},
		"backends[1].name x: another server has it: give each its own":                         {Backends: []Server{{Name: "x", Address: "a:1"}, {Name: "x", Address: "b:1"}}},
		"backends[0].weight 257: out of range: give 0 to 256":                                  {Backends: []Server{{Address: "a:1", Weight: new(257)}}},
		"backends[0].tier 256: out of range: give 0 to 255":                                    {Backends: []Server{{Address: "a:1", Tier: 256}}},
		"backends[0].maxconn -1: out of range: give 0 to 1000000":                              {Backends: []Server{{Address: "a:1", MaxConn: -1}}},
		"backends[0].weight 2: roundrobin knows no weights: choose another algorithm or remove it": {
			Algorithm: "roundrobin", Backends: []Server{{Address: "a:1", Weight: new(2)}}},
		"algorithm rr: no such algorithm: choose one of first, leastconn, maglev, p2c, random, roundrobin, source, weightedroundrobin": {Algorithm: "rr"},
		"backends 10001: too many: list 10000 at most":                 {Backends: make([]Server, 10_001)},
		"slow_start 1ms: out of range: give 1s to 24h, or 0s for none": {SlowStart: 1_000_000},
	} {
		c.Listen = ":0"
		_, err := newLimited(c, 20_000)
		require.EqualError(t, err, "balancer: "+want)
	}
}

// The caller's config is left as it was.
func TestConfigIsCopied(t *testing.T) {
	c := Config{Listen: ":0", Backends: []Server{{Address: "a:1"}}}
	b, err := newLimited(c, 20_000)
	require.NoError(t, err)
	require.Equal(t, []Server{{Address: "a:1"}}, c.Backends)
	require.Equal(t, "a:1", b.Status().Backends[0].Backend)
}

// A server that is full makes clients wait, also one that gets its limit by a reload.
func TestServerLimitAndQueue(t *testing.T) {
	a := serve(t, "a")
	config := Config{Backends: []Server{{Address: a.address, MaxConn: 1}}, Check: once, Grace: time.Hour}
	r := start(t, config)
	r.await(t, a.address, true)
	first := r.connect(t)
	one := make([]byte, 1)
	_, err := io.ReadFull(first, one)
	require.NoError(t, err)
	second := r.connect(t)
	require.Eventually(t, func() bool { return r.Status().Conns.Queued == 1 }, patience, time.Millisecond)

	config.Listen, config.Ready, config.Monitor = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	config.Backends = []Server{{Address: a.address, MaxConn: 2}}
	_, err = r.Update(config)
	require.NoError(t, err)
	_, err = io.ReadFull(second, one)
	require.NoError(t, err)
	third := r.connect(t)
	require.Eventually(t, func() bool { return r.Status().Conns.Queued == 1 }, patience, time.Millisecond)
	first.Close()
	_, err = io.ReadFull(third, one)
	require.NoError(t, err)
	require.EqualValues(t, 2, r.Status().Conns.Waited)
	second.Close()
	third.Close()
}

// A name that gets another address is another server: nothing is known about it, and
// what was counted stays with the name.
func TestServerMoves(t *testing.T) {
	a, b := serve(t, "a"), serve(t, "b")
	config := Config{Backends: []Server{{Name: "one", Address: a.address}}, Check: once, Grace: time.Hour}
	r := start(t, config)
	r.await(t, "one", true)
	require.Equal(t, "a", r.name(t))
	require.Eventually(t, func() bool { return r.Status().Conns.Open == 0 }, patience, time.Millisecond)
	since := r.Status().Backends[0].Since

	config.Listen, config.Ready, config.Monitor = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	config.Backends = []Server{{Name: "one", Address: b.address}}
	_, err := r.Update(config)
	require.NoError(t, err)
	require.Equal(t, "b", r.name(t))
	require.Eventually(t, func() bool { return r.Live() == 1 }, patience, time.Millisecond)
	s := r.Status().Backends[0]
	require.True(t, s.Since.After(since))
	require.GreaterOrEqual(t, s.Ended, uint64(1))
}
