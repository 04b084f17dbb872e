package lab

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func scripts() map[string]string {
	m := map[string]string{}
	for _, c := range allChecks() {
		m[c.Name] = "/usr/local/bin/probe " + c.Name
	}
	return m
}

func TestKeepalivedConfig(t *testing.T) {
	for _, tt := range []struct {
		golden string
		config KeepalivedConfig
	}{
		{"master2.conf", KeepalivedConfig{Node: "master2", Scripts: scripts()}},
		{"master0-100ms.conf", KeepalivedConfig{Node: "master0", Advert: 100 * time.Millisecond, Scripts: scripts()}},
		{"worker1.conf", KeepalivedConfig{Node: "worker1", Scripts: scripts()}},
	} {
		t.Run(tt.golden, func(t *testing.T) {
			got, err := tt.config.Render()
			require.NoError(t, err)
			path := filepath.Join("testdata", tt.golden)
			if *update {
				require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
		})
	}
}

func TestKeepalivedConfigFaults(t *testing.T) {
	s := scripts()
	s["chk_mcs"] = `/bin/sh -c "exit 0"`
	delete(s, "chk_ingress")
	_, err := KeepalivedConfig{Node: "master0", Advert: 15 * time.Millisecond, Scripts: s}.Render()
	for _, want := range []string{"advert interval 15ms", `chk_mcs: command line "/bin/sh -c \"exit 0\""`, `chk_ingress: command line ""`} {
		require.ErrorContains(t, err, want)
	}
	for _, node := range []string{"client", "master9"} {
		_, err = KeepalivedConfig{Node: node, Scripts: scripts()}.Render()
		require.ErrorContains(t, err, node)
	}
}

func TestTopology(t *testing.T) {
	seen := map[string]bool{}
	for _, h := range Hosts() {
		got, ok := HostNamed(h.Name)
		require.True(t, ok)
		require.Equal(t, h, got)
		require.False(t, seen[h.Addr.String()], "%v twice", h.Addr)
		seen[h.Addr.String()] = true
		require.True(t, h.Prefix().Contains(API().VIP) && h.Prefix().Contains(Ingress().VIP))
		require.LessOrEqual(t, len("p-"+h.Name), 15, "a name for an interface")
	}
	_, ok := HostNamed("master3")
	require.False(t, ok)

	// The highest priorities that the checks add up to, and who hears adverts.
	for _, tt := range []struct {
		instance Instance
		highest  int
		peers    map[string]int
	}{
		{API(), 68, map[string]int{"master0": 2}},
		{Ingress(), 80, map[string]int{"master0": 4, "worker1": 4}},
	} {
		sum := int(tt.instance.Priority)
		for _, c := range tt.instance.Checks() {
			sum += c.Weight
			require.Less(t, c.Timeout, c.Interval)
		}
		require.Equal(t, tt.highest, sum)
		for _, h := range Hosts() {
			if n, ok := tt.peers[h.Name]; ok {
				require.True(t, tt.instance.Includes(h))
				require.Len(t, tt.instance.Peers(h), n)
				require.NotContains(t, tt.instance.Peers(h), h.Addr)
			}
		}
	}
	client, _ := HostNamed("client")
	worker, _ := HostNamed("worker0")
	require.False(t, API().Includes(worker))
	require.False(t, Ingress().Includes(client))
}
