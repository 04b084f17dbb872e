package node

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// example is the file beside the program; tests change lines of it.
func example(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../../vipnode/node.yaml")
	require.NoError(t, err)
	return strings.ReplaceAll(string(data), "maxconn: auto", "maxconn: 10")
}

func TestExample(t *testing.T) {
	config, err := Parse([]byte(example(t)))
	require.NoError(t, err)
	n, err := New(config, nil)
	require.NoError(t, err)
	require.Empty(t, n.Warnings())
	require.Equal(t, 68, sum(config.Instances[0]), "the API's highest priority")
	require.Equal(t, 80, sum(config.Instances[1]), "the ingress's highest priority")
}

func sum(i Instance) int {
	total := int(i.Priority)
	for _, weight := range i.Tracks {
		total += weight
	}
	return total
}

func TestDefaults(t *testing.T) {
	config, err := Config{
		Checks:    []Check{{Name: "a", Probe: Probe{TCP: "localhost:1"}}, {Name: "slow", Probe: Probe{TCP: "localhost:1"}, Interval: 20 * time.Hour}},
		Instances: []Instance{sound()},
	}.complete()
	require.NoError(t, err)
	require.Equal(t, Check{Name: "a", Probe: Probe{TCP: "localhost:1"}, Interval: 2 * time.Second,
		Timeout: 1900 * time.Millisecond, Rise: 3, Fall: 3}, config.Checks[0])
	require.Equal(t, time.Hour, config.Checks[1].Timeout, "the longest that health allows")
	r := Redirect{}.complete()
	require.Equal(t, Redirect{Interval: 6 * time.Second, Rise: 3, Fall: 11}, r)
}

// The caller's config is left as it is, also by what a node does later.
func TestConfigUnchanged(t *testing.T) {
	config, err := Parse([]byte(example(t)))
	require.NoError(t, err)
	again, err := Parse([]byte(example(t)))
	require.NoError(t, err)
	config.Checks[0].Rise, again.Checks[0].Rise = 0, 0 // a default to fill in
	n, err := New(config, nil)
	require.NoError(t, err)
	config.Instances[0].Tracks = map[string]int{}
	_, err = n.Reload(config)
	require.NoError(t, err)
	config.Instances[0].Tracks = again.Instances[0].Tracks
	require.Equal(t, again, config)
}

// Each fault is one line that names the key as in the file, its value and a remedy.
func TestFaults(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"unknown key", "vrid: 206", "vird: 206", "line 45: instances[0].vird: no such key: correct its spelling or remove it"},
		{"unknown key in a probe", "all: [{http: \"http://localhost:9444/\"}, {redirect: true}]\n    interval", "all: [{http: \"http://localhost:9444/\"}, {redirekt: true}]\n    interval", "line 24: checks[0].all[1].redirekt: no such key: correct its spelling or remove it"},
		{"VRID 0", "vrid: 206", "vrid: 0", "instances.API.vrid: VRID 0: must be 1 to 255"},
		{"VRID 256", "vrid: 206", "vrid: 256", "line 45: instances[0].vrid 256: give a whole number within its range"},
		{"version 2 below a second", "interval: 1s\n    source: 192.168.37.21\n    peers: [192.168.37.22, 192.168.37.23]", "interval: 500ms\n    source: 192.168.37.21\n    peers: [192.168.37.22, 192.168.37.23]",
			"instances.API.interval: interval 500ms: version 2 carries whole seconds, 1s to 255s; use version 3 below 1s"},
		{"no peers", "peers: [192.168.37.22, 192.168.37.23]", "peers: []", "instances.API.peers []: nobody to talk to: list the other routers, or write multicast: true"},
		{"one VRID twice", "vrid: 45", "vrid: 206", "instances.INGRESS.vrid 206: instances.API has it on br-ex too: give each instance of an interface its own"},
		{"one address twice", "192.168.37.202/24", "192.168.37.201/24", "instances.INGRESS.addresses 192.168.37.201/24: instances.API has it too: remove one of the two"},
		{"one name twice", "name: INGRESS", "name: API", `instances[1].name "API": give each instance a name of its own`},
		{"no name", "name: INGRESS", `name: ""`, `instances[1].name "": give each instance a name of its own`},
		{"no address", "addresses: [192.168.37.202/24]", "addresses: []", "instances.INGRESS.addresses: 0 virtual addresses: needs 1 to 255"},
		{"bad source", "source: 192.168.37.21\n    peers: [192.168.37.22, 192.168.37.23]\n", "source: 192.168.37.256\n    peers: [192.168.37.22, 192.168.37.23]\n", "line 49: instances[0].source 192.168.37.256: give an address such as 192.0.2.1"},
		{"address without length", "192.168.37.202/24", "192.168.37.202", "line 64: instances[1].addresses[0] 192.168.37.202: give an address with the length of its network, such as 192.0.2.1/24"},
		{"long label", "label: vip\n    tracks: {chk_ocp_lb", "label: longer-than-fifteen\n    tracks: {chk_ocp_lb", `instances.API.label: label "longer-than-fifteen" has 19 bytes: use at most 15`},
		{"long interface", "interface: br-ex\n    vrid: 45", "interface: longer-than-fifteen\n    vrid: 45", `instances.INGRESS.interface: interface "longer-than-fifteen" has 19 bytes: an interface name has at most 15`},
		{"weight", "chk_mcs: 3", "chk_mcs: 300", `instances.API.tracks: track "chk_mcs": weight 300: must be -253 to 253`},
		{"no such check", "chk_mcs: 3", "chk_msc: 3", "instances.API.tracks chk_msc: no such check: correct its spelling or add it to the section checks"},
		{"password in version 3", "version: 2\n    priority: 40", "version: 3\n    priority: 40", "instances.API.password: password: version 3 has none; use version 2 or leave it out"},
		{"lifetime", "priority: 40", "lifetime: 1s\n    priority: 40", "instances.API.lifetime: lifetime 1s: must be whole seconds, at least 2s and two intervals"},
		{"preempt delay", "priority: 40", "preempt_delay: -1s\n    priority: 40", "instances.API.preempt_delay: preempt delay -1s: must not be negative"},
		{"maxconn beyond", "maxconn: 10", "maxconn: 100000000", "balancer.maxconn 100,000,000: descriptor limit "},
		{"maxconn", "maxconn: 10", "maxconn: many", "balancer.maxconn many: no number of connections: give 1 or more, or auto"},
		{"backend", "192.168.37.22:6443,", "192.168.37.22,", `balancer.backends[1] "192.168.37.22": no address to connect to: write host:port, such as 192.0.2.1:6443 or [2001:db8::1]:6443`},
		{"status", "status: 127.0.0.1:9455", "status: 9455", "status 9455: no address to listen on: write host:port, such as 127.0.0.1:9455"},
		{"redirect without address", "vips: [192.168.37.201]", "vips: []", "redirect.vips []: list the virtual addresses"},
		{"redirect of loopback", "vips: [192.168.37.201]", "vips: [127.0.0.1]", "redirect.vips[0] 127.0.0.1: use a unicast address that other hosts can reach"},
		{"redirect from", "from: 6443", "from: 0", "redirect.from 0: give the port that clients use, 1 to 65535"},
		{"redirect to another port", "to: 9445", "to: 9446", "redirect.to 9446: the balancer listens on :9445: give the same port in both"},
		{"redirect to loopback", `listen: ":9445"`, `listen: "127.0.0.1:9445"`, "balancer.listen 127.0.0.1:9445: gets nothing that is redirected to a virtual address: write :9445"},
		{"redirect interval", "interval: 6s", "interval: 48h", "redirect.interval 48h0m0s: out of range: give 1ms to 24h0m0s"},
		{"redirect rise", "rise: 3\n  fall: 11", "rise: -1\n  fall: 11", "redirect.rise -1: out of range: give 1 to 1000"},
		{"check twice", "name: chk_mcs", "name: chk_ocp_lb", `checks[2].name "chk_ocp_lb": give each check a name of its own, without space and slash`},
		{"check interval", `"localhost:22624", interval: 2s`, `"localhost:22624", interval: 48h`, "checks.chk_mcs.interval 48h0m0s: out of range: give 1ms to 24h0m0s"},
		{"two kinds of probe", `tcp: "localhost:22624"`, `tcp: "localhost:22624", redirect: true`, "checks.chk_mcs [tcp redirect]: give exactly one of http, tcp, redirect, all, any"},
		{"no probe", `tcp: "localhost:22624", `, "", "checks.chk_mcs []: give exactly one of http, tcp, redirect, all, any"},
		{"tcp", `"localhost:22624"`, `"22624"`, "checks.chk_mcs.tcp 22624: write host:port, such as localhost:22624"},
		{"http", "https://localhost:6443/readyz", "localhost:6443/readyz", "checks.chk_ocp_both.any[1].http localhost:6443/readyz: write a URL such as https://localhost:6443/readyz"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := example(t)
			require.Equal(t, 1, strings.Count(text, c.old), "the test's own premise: once in the example")
			lines := refused(t, strings.Replace(text, c.old, c.new, 1))
			lines = slices.DeleteFunc(lines, func(line string) bool { // what follows from a check under another name
				return strings.HasSuffix(line, "no such check: correct its spelling or add it to the section checks") && strings.HasPrefix(c.name, "check twice")
			})
			require.Len(t, lines, 1)
			if strings.HasSuffix(c.want, " ") { // the rest depends on the machine
				require.True(t, strings.HasPrefix(lines[0], c.want), lines[0])
				return
			}
			require.Equal(t, c.want, lines[0])
		})
	}
}

// refused returns the lines that a file is refused with.
func refused(t *testing.T, text string) (lines []string) {
	t.Helper()
	config, err := Parse([]byte(text))
	if err == nil {
		_, err = New(config, nil)
	}
	require.Error(t, err)
	for _, line := range Lines(err) {
		require.NotContains(t, line.Error(), "\n")
		lines = append(lines, line.Error())
	}
	return lines
}

func TestFaultsOfSections(t *testing.T) {
	const instance = "instances: [{name: A, interface: eth0, vrid: 1, source: 192.0.2.1, peers: [192.0.2.2], addresses: [192.0.2.9/24]"
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"checks that nobody sees": {"checks: [{name: a, tcp: \"localhost:1\"}]\n",
			[]string{"instances none: there is nothing to do: list an instance, or give the section balancer, or checks with a status page"}},
		"empty file": {"# nothing\n",
			[]string{"instances none: there is nothing to do: list an instance, or give the section balancer, or checks with a status page"}},
		"redirect without balancer": {instance + "}]\nredirect: {vips: [192.0.2.9], from: 1, to: 2}\n",
			[]string{"redirect.to 2: there is nothing to redirect to: give the section balancer"}},
		"probe without redirect": {instance + "}]\nchecks: [{name: a, redirect: true}]\n",
			[]string{"checks.a.redirect true: there is none: give the section redirect"}},
		"all faults at once": {"balancer: {listen: x}\ninstances: [{name: A}]\n", []string{
			"instances.A.peers []: nobody to talk to: list the other routers, or write multicast: true",
			"instances.A.vrid: VRID 0: must be 1 to 255",
			"instances.A.source: source invalid IP: needs an IPv4 address of our own",
			"instances.A.addresses: 0 virtual addresses: needs 1 to 255",
			"instances.A.interface: interface is empty: name the interface that carries the address",
			"balancer.listen x: no address to listen on: write :port or host:port, such as :9445 or [::1]:9445",
		}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, refused(t, c.text)) })
	}
}

// A long password only warns, with what goes on the wire.
func TestLongPassword(t *testing.T) {
	config, err := Parse([]byte(strings.Replace(example(t), "hj4h5_ap", "hj4h5_api_vip", 1)))
	require.NoError(t, err)
	n, err := New(config, nil)
	require.NoError(t, err)
	require.Equal(t, []string{`instances.API: password has 13 bytes: only the first 8 go on the wire, "hj4h5_ap"`}, n.Warnings())
}

// What the README shows is a file that works.
func TestReadme(t *testing.T) {
	data, err := os.ReadFile("../../vipnode/README.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(data), "## The file\n")
	require.True(t, ok)
	var text strings.Builder
	for line := range strings.Lines(section) {
		if code, ok := strings.CutPrefix(line, "    "); ok {
			text.WriteString(code)
		} else if strings.TrimSpace(line) != "" {
			break
		}
	}
	config, err := Parse([]byte(text.String()))
	require.NoError(t, err)
	config.Balancer.MaxConn = 10 // whatever the limit here
	n, err := New(config, nil)
	require.NoError(t, err)
	require.Empty(t, n.Warnings())
	require.Len(t, config.Checks, 4)
}

// A node may have nothing but checks: somebody else, such as keepalived's scripts,
// asks the status page for them.
func TestChecksAlone(t *testing.T) {
	config, err := Parse([]byte("status: 127.0.0.1:0\nchecks: [{name: a, tcp: \"localhost:1\"}]\n"))
	require.NoError(t, err)
	_, err = New(config, nil)
	require.NoError(t, err)
}
