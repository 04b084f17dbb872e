package main

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lastbeat/lastbeat/examples/internal/node"
	"github.com/lastbeat/lastbeat/internal/netns/nstest"
)

// Each cause alone, and what it does to the priority. The rule of the default
// ingress outweighs the rest, as keepalived's weights have it.
func TestKernelPriorities(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		r := newRig(t)
		d := r.start(fast)
		d.holding()
		block := func() {
			r.run(r.nft, "add table inet fault; add chain inet fault in { type filter hook input priority 0; }; "+
				"add rule inet fault in tcp dport 9444 reject with tcp reset")
		}
		unblock := func() { r.run(r.nft, "delete table inet fault") }
		dead := func(backend int) { // what changes no priority must have been noticed all the same
			d.until("a dead backend", func(s node.Status) bool { return s.Balancer.Backends[backend].State == "offline" })
		}
		for _, c := range []struct {
			name         string
			fail, repair func()
			api, ingress uint8
			fault        string
		}{
			{"a backend", func() { r.other.stop(); dead(1) }, r.other.start, 68, 80, ""},
			{"the local API server", func() { r.api.stop(); dead(0) }, r.api.start, 68, 80, ""},
			{"the balancer's ready port", block, unblock, 48, 80, ""},
			{"machine config server", r.mcs.stop, r.mcs.start, 65, 80, ""},
			{"balancer and API server", func() { block(); r.api.stop() }, func() { unblock(); r.api.start() }, 43, 80, ""},
			{"all backends", func() { r.api.stop(); r.other.stop() }, func() { r.api.start(); r.other.start() }, 43, 80, ""},
			{"the router's readiness", func() { r.router.now.SetReady(false) }, func() { r.router.now.SetReady(true) }, 68, 70, ""},
			{"default ingress", r.ingress.stop, r.ingress.start, 68, 30, ""},
			{"the router", r.router.stop, r.router.start, 68, 70, "chk_ingress is down"},
		} {
			c.fail()
			s := d.until(fmt.Sprintf("%s: %d, %d", c.name, c.api, c.ingress), func(s node.Status) bool {
				api, ingress := s.Instances["API"], s.Instances["INGRESS"]
				return api.Priority == c.api && ingress.Priority == c.ingress &&
					(ingress.State == "Fault") == (c.fault != "")
			})
			if c.fault != "" {
				require.Equal(t, c.fault, s.Instances["INGRESS"].Reason)
			}
			t.Logf("%-26s API %d %-6s INGRESS %d %s", c.name, s.Instances["API"].Priority, s.Instances["API"].State,
				s.Instances["INGRESS"].Priority, s.Instances["INGRESS"].State)
			c.repair()
			d.holding()
		}
		require.NotContains(t, d.out.String(), "level=ERROR")
	})
}

// A rule that somebody deletes costs the balancer's weight until it is repaired.
func TestKernelRedirectRepaired(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		r := newRig(t)
		d := r.start(fast)
		d.holding()
		require.Contains(t, r.ruleset(), "192.168.37.201")
		r.run(r.nft, "delete table inet lastbeat")
		d.logged("name=chk_ocp_lb state=offline")
		d.logged("redirect repaired")
		d.holding()
		require.Contains(t, r.ruleset(), "192.168.37.201")
	})
}

// SIGTERM tells the others, and leaves nothing.
func TestKernelTerm(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		r := newRig(t)
		d := r.start(fast)
		s := d.holding()
		require.ElementsMatch(t, []string{"192.168.37.201/24", "192.168.37.202/24"}, r.addresses())
		for name, v := range map[string]node.Verdict{
			"instance": s.Instances["API"].Verdict, "addresses": s.Instances["API"].Addresses,
			"check": s.Checks["chk_ocp_lb"], "redirect": s.Redirect.Verdict,
		} {
			require.False(t, v.Since.IsZero(), name)
			require.True(t, v.ValidUntil.After(v.Since), name)
			require.NotEmpty(t, v.Reason, name)
		}
		require.Equal(t, "192.168.37.21", s.Instances["API"].Holder)
		d.signal(syscall.SIGTERM)
		r.heard(0, 206, 45)
		<-d.ended
		require.Zero(t, d.cmd.ProcessState.ExitCode(), d.out.String())
		require.Empty(t, r.addresses())
		require.Empty(t, r.ruleset())
	})
}

// SIGHUP changes checks, weights and backends under an address that stays.
func TestKernelHangup(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		r := newRig(t)
		d := r.start(fast)
		before := d.holding()

		// Faulty: nothing changes, not even what is right in it.
		d.rewrite(strings.NewReplacer("chk_mcs: 3", "chk_mcs: 30", "127.0.0.2:6443]", "127.0.0.2]").Replace(fast))
		d.logged(`balancer.backends[1] \"127.0.0.2\": no address to connect to`)
		require.Equal(t, before.Instances["API"].Priority, d.status().Instances["API"].Priority)
		require.Len(t, d.status().Balancer.Backends, 2)

		// A weight, a check, a backend; and what needs a restart.
		changed := strings.NewReplacer("chk_mcs: 3", "chk_mcs: 4, chk_more: 5",
			"checks:\n", "checks:\n  - {name: chk_more, http: \"http://localhost:1937/\", interval: 50ms}\n",
			"127.0.0.2:6443]", "127.0.0.2:6443, 127.0.0.3:6443]",
			"priority: 40", "priority: 41", "status: 127.0.0.1:9455", "status: 127.0.0.1:9456").Replace(fast)
		d.rewrite(changed)
		d.logged(`msg="changes that need a restart" keys="status instances.API"`)
		after := d.until("the new weights", func(s node.Status) bool { return s.Instances["API"].Priority == 40+20+5+4+5 })
		require.Len(t, after.Balancer.Backends, 3)
		require.Equal(t, before.Instances["API"].Since, after.Instances["API"].Since)
		require.Equal(t, before.Instances["API"].Addresses.Since, after.Instances["API"].Addresses.Since)

		// An instance that leaves the file runs until a restart, and so do its checks.
		gone := fast[:strings.Index(fast, "  - name: INGRESS")]
		var kept []string
		for line := range strings.Lines(gone) {
			if !strings.Contains(line, "name: chk_ingress,") {
				kept = append(kept, line)
			}
		}
		d.rewrite(strings.Join(kept, ""))
		d.logged(`keys="instances.INGRESS checks.chk_ingress"`)
		d.until("the old weights", func(s node.Status) bool { return s.Instances["API"].Priority == 68 })
		require.Equal(t, "online", d.status().Checks["chk_ingress"].State)
		require.Equal(t, before.Instances["INGRESS"].Since, d.status().Instances["INGRESS"].Since)
		require.NotContains(t, d.out.String(), "kind=removed")
	})
}

// What a killed node leaves ends by itself.
func TestKernelKill(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		r := newRig(t)
		d := r.start(fast)
		d.holding()
		d.signal(syscall.SIGKILL)
		<-d.ended
		require.Len(t, r.addresses(), 2, "the kernel has them still")
		require.Contains(t, r.ruleset(), "192.168.37.201")
		r.eventually("addresses and elements end", func() bool {
			return len(r.addresses()) == 0 && !strings.Contains(r.ruleset(), "192.168.37.201")
		})
	})
}

// A restart does not wait for that.
func TestKernelRestartSweeps(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		r := newRig(t)
		d := r.start(fast)
		d.holding()
		d.signal(syscall.SIGKILL)
		<-d.ended
		require.Len(t, r.addresses(), 2)
		require.Contains(t, r.ruleset(), "192.168.37.201")

		// The rule could not come again within the hour.
		d = r.start(strings.Replace(fast, "to: 9445, interval: 50ms", "to: 9445, interval: 1h", 1))
		d.logged("kind=swept address=192.168.37.201/24")
		d.logged("kind=swept address=192.168.37.202/24")
		d.until("an answer", func(s node.Status) bool { return s.Redirect != nil && s.Redirect.State == "absent" })
		require.Empty(t, r.ruleset())
		d.until("the address again", func(s node.Status) bool { return s.Instances["INGRESS"].Addresses.State == "held" })
	})
}

// A second node on the host is refused, and does no harm to the first.
func TestKernelSecondNode(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		r := newRig(t)
		d := r.start(fast)
		before := d.holding()
		var stderr strings.Builder
		second := file(t, strings.NewReplacer("9455", "9456", "9445", "9446", "9444", "9447").Replace(fast))
		cmd := vipnode(t, second)
		cmd.Stderr = &stderr
		require.Equal(t, 2, exitStatus(t, cmd.Run()))
		require.Equal(t, "vipnode: "+second+": name master0: another node runs in this network namespace: stop it first\n", stderr.String())
		require.Len(t, r.addresses(), 2)
		after := d.status()
		require.Equal(t, before.Instances["API"].Addresses.Since, after.Instances["API"].Addresses.Since)
		require.Equal(t, before.Redirect.Since, after.Redirect.Since)
	})
}

// Each bad input ends with status 2 and one line that names key, value and remedy,
// and leaves no address and no rule.
func TestKernelBadInput(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		r := newRig(t)
		const apiVRRP = "version: 2\n    priority: 40\n"
		for _, c := range []struct{ name, old, new, want string }{
			{"unknown key", "vrid: 206", "vird: 206", "line 28: instances[0].vird: no such key: correct its spelling or remove it"},
			{"VIP outside every prefix", "192.168.37.201/24", "192.168.38.201/24",
				"instances.API.addresses 192.168.38.201/24: outside every network of br-ex NETWORKS: use an address inside one of them"},
			{"VRID 0", "vrid: 206", "vrid: 0", "instances.API.vrid: VRID 0: must be 1 to 255"},
			{"v2 interval below 1 s", apiVRRP, apiVRRP + "    interval: 100ms\n",
				"instances.API.interval: interval 100ms: version 2 carries whole seconds, 1s to 255s; use version 3 below 1s"},
			{"empty peer list", "source: 192.168.37.21\n    peers: [192.168.37.22]\n    password: hj4h5_ap", "source: 192.168.37.21\n    peers: []\n    password: hj4h5_ap",
				"instances.API.peers []: nobody to talk to: list the other routers, or write multicast: true"},
			{"one VRID twice", "vrid: 45", "vrid: 206",
				"instances.INGRESS.vrid 206: instances.API has it on br-ex too: give each instance of an interface its own"},
			{"port in use", "ready: \":9444\"", "ready: \":1936\"",
				"balancer.ready :1936: address already in use: stop the other program or choose another port"},
			{"status port in use", "127.0.0.1:9455", "127.0.0.1:1936",
				"status 127.0.0.1:1936: address already in use: stop the other program or choose another port"},
			{"maxconn beyond the limit", "maxconn: 20", "maxconn: 40000",
				"balancer.maxconn 40,000: descriptor limit 1,024 has room for 160: lower it to 160 or auto, or raise the limit by ulimit -n 249999"},
			{"no such interface", "interface: br-ex\n    vrid: 45", "interface: br-int\n    vrid: 45",
				"instances.INGRESS.interface br-int: no such interface: correct the name, or make the interface first"},
			{"no privilege", "", "",
				"redirect.vips [192.168.37.201]: operation not permitted: run as root, or with CAP_NET_ADMIN and CAP_NET_RAW"},
			{"no privilege, no redirect", "redirect: {", "",
				"instances.API.interface: receive adverts on br-ex: needs CAP_NET_RAW: run as root or inside a user namespace"},
		} {
			text := fast
			if c.new != "" {
				require.Equal(t, 1, strings.Count(fast, c.old), c.name)
				text = strings.Replace(fast, c.old, c.new, 1)
			}
			if c.name == "no privilege, no redirect" {
				text = withoutRedirect
			}
			config := file(t, text)
			var stderr strings.Builder
			cmd := vipnode(t, config)
			cmd.Stderr = &stderr
			require.Equal(t, 2, exitStatus(t, r.limited(cmd, strings.HasPrefix(c.name, "no privilege"))), c.name)
			line := strings.Replace(stderr.String(), networks(t, r), "NETWORKS", 1)
			require.Equal(t, "vipnode: "+config+": "+c.want+"\n", line, c.name)
			t.Log(strings.TrimSuffix(stderr.String(), "\n"))
			require.Empty(t, r.addresses(), c.name)
			require.Empty(t, r.ruleset(), c.name)
		}
	})
}

const withoutRedirect = `instances:
  - {name: API, interface: br-ex, vrid: 206, source: 192.168.37.21, peers: [192.168.37.22], addresses: [192.168.37.201/24]}
`

// networks are those of the interface as a line shows them.
func networks(t *testing.T, r *rig) string {
	all, err := r.here.Addrs("br-ex")
	require.NoError(t, err)
	return fmt.Sprint(all)
}

// limited runs a command with room for 1,024 descriptors and, if so wanted, without
// the two capabilities.
func (r *rig) limited(cmd *exec.Cmd, unprivileged bool) error {
	cmd.Args = append([]string{"sh", "-c", `ulimit -n 1024; exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	started := make(chan error)
	go func() {
		// The limits are the thread's: it is not used again, as it stays locked.
		runtime.LockOSThread()
		if unprivileged {
			for _, c := range []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW} {
				if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
					started <- err
					return
				}
			}
		}
		started <- cmd.Start()
	}()
	if err := <-started; err != nil {
		return err
	}
	return cmd.Wait()
}

// A password over 8 characters only warns, with what goes on the wire.
func TestKernelLongPassword(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		r := newRig(t)
		d := r.start(strings.Replace(fast, "hj4h5_ap", "hj4h5_api_vip", 1))
		d.logged(`level=WARN msg="instances.API: password has 13 bytes: only the first 8 go on the wire, \"hj4h5_ap\""`)
		d.until("the page", func(s node.Status) bool { return s.Name == "master0" })
	})
}

// What is wrong with the command line is one line as well.
func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "vipnode: -config: no file: give one, such as -config node.yaml\n"},
		{[]string{"-confg", "x"}, "vipnode: flag provided but not defined: -confg: vipnode -help lists the flags\n"},
		{[]string{"node.yaml"}, "vipnode: node.yaml: not a flag: name the file with -config\n"},
		{[]string{"-config", "/nonexistent/node.yaml"}, "vipnode: -config open /nonexistent/node.yaml: no such file or directory: name a file that can be read\n"},
	} {
		var stdout, stderr strings.Builder
		require.Equal(t, 2, run(c.args, &stdout, &stderr))
		require.Equal(t, c.want, stderr.String())
		require.Empty(t, stdout.String())
	}
}
