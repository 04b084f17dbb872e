package vrrp_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/internal/netns"
	"github.com/lastbeat/lastbeat/internal/netns/nstest"
)

// A router whose interface comes back hears the others again: it takes over
// because the holder said goodbye to the group, not because it heard nothing.
func TestKernelInterfaceComesBack(t *testing.T) {
	for name, interrupt := range map[string]func(t *testing.T, s *segment, host *netns.NS){
		"up again": func(t *testing.T, s *segment, host *netns.NS) {
			require.NoError(t, host.SetDown("eth0"))
			s.said(1, "Backup>Fault")
			require.NoError(t, host.SetUp("eth0"))
		},
		"made anew": func(t *testing.T, s *segment, host *netns.NS) {
			require.NoError(t, host.Delete("eth0"))
			s.said(1, "Backup>Fault")
			s.attach(1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			nstest.Run(t, func(t *testing.T) {
				s := newSegment(t)
				cfg := nodeConfig{Version: 3, Interval: 100 * time.Millisecond, Multicast: true}
				cfg.Priority = 100
				s.ours(0, cfg)
				s.holder(0, "alone")
				cfg.Priority = 90
				s.ours(1, cfg)
				s.said(1, "Initialize>Backup")
				interrupt(t, s, s.hosts[1])
				s.said(1, "Fault>Backup")
				s.holder(0, "the other keeps it")
				s.stop(0)
				s.said(1, "Backup>Active: "+hostAddr(0).String()+" left with priority 0")
				s.holder(1, "it took over")
			})
		})
	}
}

// attach plugs host i into the switch by a new interface.
func (s *segment) attach(i int) {
	s.t.Helper()
	require.NoError(s.t, netns.Veth(s.sw, "anew", s.hosts[i], "eth0"))
	require.NoError(s.t, s.sw.Enslave("anew", "br0"))
	require.NoError(s.t, s.hosts[i].AddAddr("eth0", netip.PrefixFrom(hostAddr(i), 24)))
}

// said waits until the node on host i has told of something.
func (s *segment) said(i int, what string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return strings.Contains(s.procs[i].out.String(), what) },
		20*time.Second, 10*time.Millisecond, "host %d says %q", i, what)
}
