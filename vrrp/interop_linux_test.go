package vrrp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lastbeat/lastbeat/internal/netns"
	"github.com/lastbeat/lastbeat/internal/netns/nstest"
	"github.com/lastbeat/lastbeat/vrrp"
)

const nodeEnv = "LASTBEAT_VRRP_NODE"

// TestNodeProcess is no test of its own: it is the node that other tests start
// in a namespace. It runs an instance until it is told to stop.
func TestNodeProcess(t *testing.T) {
	text := os.Getenv(nodeEnv)
	if text == "" {
		t.Skip("runs only as a node of another test")
	}
	var node nodeConfig
	require.NoError(t, json.Unmarshal([]byte(text), &node))
	cfg := vrrp.InstanceConfig{
		Config: vrrp.Config{
			VRID: 206, Version: node.Version, Priority: node.Priority, Interval: node.Interval,
			Source: node.Source, Peers: node.Peers, Multicast: node.Multicast, Password: node.Password,
		},
		Interface: "eth0", Prefixes: []netip.Prefix{segmentVIP},
	}
	cfg.OnEvent = func(e vrrp.Event) { fmt.Printf("%v>%v: %v\n", e.From, e.To, e.Reason) }
	inst, err := vrrp.NewInstance(cfg)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends when the parent closes it
		stop()
	}()
	require.NoError(t, inst.Run(ctx))
}

// nodeConfig is what differs between the nodes of these tests.
type nodeConfig struct {
	Version, Priority uint8
	Interval          time.Duration
	Source            netip.Addr
	Peers             []netip.Addr
	Multicast         bool
	Password          string
}

// segment is a bridge with three hosts on it.
type segment struct {
	t     *testing.T
	sw    *netns.NS
	hosts []*netns.NS
	procs []*proc
}

type proc struct {
	cmd  *exec.Cmd
	in   io.Closer
	out  *syncBuffer
	done chan struct{}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

var (
	segmentVIP = netip.MustParsePrefix("192.168.37.201/24")
	segmentNet = "192.168.37."
)

func hostAddr(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("%s%d", segmentNet, 21+i)) }

func newSegment(t *testing.T) *segment {
	t.Helper()
	sw, err := netns.New()
	require.NoError(t, err)
	t.Cleanup(func() { sw.Close() })
	require.NoError(t, sw.Bridge("br0"))
	s := &segment{t: t, sw: sw, procs: make([]*proc, 3)}
	for i := range 3 {
		host, err := netns.New()
		require.NoError(t, err)
		t.Cleanup(func() { host.Close() })
		port := fmt.Sprintf("p%d", i)
		require.NoError(t, netns.Veth(sw, port, host, "eth0"))
		require.NoError(t, sw.Enslave(port, "br0"))
		require.NoError(t, host.AddAddr("eth0", netip.PrefixFrom(hostAddr(i), 24)))
		s.hosts = append(s.hosts, host)
	}
	return s
}

func (s *segment) start(i int, cmd *exec.Cmd) {
	s.t.Helper()
	in, err := cmd.StdinPipe()
	require.NoError(s.t, err)
	p := &proc{cmd: cmd, in: in, out: &syncBuffer{}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.out, p.out
	require.NoError(s.t, s.hosts[i].Start(cmd))
	go func() { _ = cmd.Wait(); close(p.done) }()
	s.procs[i] = p
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.done
		if s.t.Failed() {
			s.t.Logf("host %d:\n%s", i, p.out)
		}
	})
}

// ours starts a node of ours.
func (s *segment) ours(i int, cfg nodeConfig) {
	s.t.Helper()
	cfg.Source = hostAddr(i)
	if !cfg.Multicast {
		for j := range s.hosts {
			if j != i {
				cfg.Peers = append(cfg.Peers, hostAddr(j))
			}
		}
	}
	text, err := json.Marshal(cfg)
	require.NoError(s.t, err)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestNodeProcess$", "-test.v")
	cmd.Env = append(os.Environ(), nodeEnv+"="+string(text), "GORACE=atexit_sleep_ms=0")
	s.start(i, cmd)
}

// keepalived starts the real one.
func (s *segment) keepalived(i int, path, instance string) {
	s.t.Helper()
	dir := s.t.TempDir()
	conf := filepath.Join(dir, "keepalived.conf")
	require.NoError(s.t, os.WriteFile(conf, []byte(instance), 0o600))
	s.start(i, exec.Command(path, "-n", "-D", "-l", "-P", "-f", conf,
		"-p", filepath.Join(dir, "pid"), "-r", filepath.Join(dir, "vpid")))
}

// stop ends a node as an administrator would.
func (s *segment) stop(i int) {
	s.t.Helper()
	p := s.procs[i]
	p.in.Close()
	if strings.HasSuffix(p.cmd.Path, "keepalived") {
		require.NoError(s.t, p.cmd.Process.Signal(unix.SIGTERM))
	}
	<-p.done
}

// holders lists the hosts that have the address.
func (s *segment) holders() (on []int) {
	for k, h := range s.hosts {
		addrs, err := h.Addrs("eth0")
		require.NoError(s.t, err)
		if slices.Contains(addrs, segmentVIP) {
			on = append(on, k)
		}
	}
	return on
}

// holder waits until host i has the address, and no other.
func (s *segment) holder(i int, why string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return slices.Equal(s.holders(), []int{i}) },
		30*time.Second, 20*time.Millisecond, why)
}

// oneHolder waits until exactly one host has the address, and returns it.
func (s *segment) oneHolder(why string) (i int) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		on := s.holders()
		if len(on) == 1 {
			i = on[0]
		}
		return len(on) == 1
	}, 30*time.Second, 20*time.Millisecond, why)
	return i
}

// Two of our nodes and a real keepalived in one virtual router, each in turn the
// holder: version 2 with a password over unicast, version 3 over multicast.
func TestKernelMixedWithKeepalived(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		path := nstest.Peer(t, "keepalived")
		conf := func(version int, interval string, priority int, peers, auth string) string {
			return fmt.Sprintf(`global_defs {
 vrrp_version %d
}
vrrp_instance mixed {
 state BACKUP
 interface eth0
 virtual_router_id 206
 priority %d
 advert_int %s
 %s
 %s
 virtual_ipaddress {
  %s
 }
}
`, version, priority, interval, peers, auth, segmentVIP)
		}
		variants := []struct {
			name string
			conf func(priority int) string
			ours nodeConfig
		}{
			{
				"v2 unicast with a password, 1 s",
				func(priority int) string {
					return conf(2, "1", priority,
						"unicast_src_ip "+hostAddr(2).String()+"\n unicast_peer {\n"+hostAddr(0).String()+"\n"+hostAddr(1).String()+"\n }",
						"authentication {\n auth_type PASS\n auth_pass hj4h5_api_vip\n }")
				},
				nodeConfig{Version: 2, Password: "hj4h5_api_vip"},
			},
			{
				"v3 multicast, 100 ms",
				func(priority int) string { return conf(3, "0.1", priority, "", "") },
				nodeConfig{Version: 3, Interval: 100 * time.Millisecond, Multicast: true},
			},
		}
		for _, v := range variants {
			t.Run(v.name, func(t *testing.T) {
				s := newSegment(t)
				prio := func(p uint8) nodeConfig { c := v.ours; c.Priority = p; return c }
				s.keepalived(2, path, v.conf(80))
				s.holder(2, "keepalived alone")
				s.ours(1, prio(90))
				s.holder(1, "ours preempts keepalived")
				s.ours(0, prio(100))
				s.holder(0, "ours preempts ours")
				s.stop(0)
				s.holder(1, "ours follows ours")
				s.stop(1)
				s.holder(2, "keepalived follows ours")
				s.stop(2)
				s.ours(0, prio(100))
				s.ours(1, prio(90))
				s.holder(0, "ours alone")
				s.keepalived(2, path, v.conf(120))
				s.holder(2, "keepalived preempts ours")
				s.stop(2)
				s.holder(0, "ours follows keepalived")
			})
		}
	})
}

// Equal priorities against keepalived, which knows no rank: whoever wins a duel,
// one host has the address in the end.
func TestKernelEqualPrioritiesWithKeepalived(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		path := nstest.Peer(t, "keepalived")
		s := newSegment(t)
		conf := fmt.Sprintf("global_defs {\n vrrp_version 3\n}\nvrrp_instance equal {\n state BACKUP\n interface eth0\n"+
			" virtual_router_id 206\n priority 68\n advert_int 0.1\n virtual_ipaddress {\n  %s\n }\n}\n", segmentVIP)
		start := func(i int) {
			if i == 2 {
				s.keepalived(2, path, conf)
			} else {
				s.ours(i, nodeConfig{Version: 3, Priority: 68, Interval: 100 * time.Millisecond, Multicast: true})
			}
		}
		for i := range 3 {
			start(i)
		}
		won := make([]int, 3)
		for range 12 {
			i := s.oneHolder("the election is settled")
			won[i]++
			s.stop(i)
			s.oneHolder("its end is followed by another")
			start(i)
		}
		t.Logf("elections won by ours, ours, keepalived: %v", won)
	})
}
