package vrrp

import (
	"context"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lastbeat/lastbeat/internal/netns"
	"github.com/lastbeat/lastbeat/internal/netns/nstest"
)

// kernelCapture reads ARP frames at the peer's end of the cable.
type kernelCapture struct {
	t    *testing.T
	conn *packet.Conn
}

func newKernelCapture(t *testing.T, peer *netns.NS) *kernelCapture {
	t.Helper()
	c := &kernelCapture{t: t}
	require.NoError(t, peer.Do(func() error {
		ifi, err := net.InterfaceByName("peer0")
		if err != nil {
			return err
		}
		c.conn, err = packet.Listen(ifi, packet.Raw, garpEtherType, nil)
		return err
	}))
	t.Cleanup(func() { c.conn.Close() })
	return c
}

// frame returns the next frame, or nil when none comes in time.
func (c *kernelCapture) frame(wait time.Duration) []byte {
	c.t.Helper()
	require.NoError(c.t, c.conn.SetReadDeadline(time.Now().Add(wait)))
	b := make([]byte, 256)
	n, _, err := c.conn.ReadFrom(b)
	if err != nil {
		require.ErrorIs(c.t, err, os.ErrDeadlineExceeded)
		return nil
	}
	return b[:n]
}

// garp waits for a gratuitous frame for addr.
func (c *kernelCapture) garp(addr netip.Addr) GratuitousARP {
	c.t.Helper()
	for {
		b := c.frame(kernelWait)
		require.NotNil(c.t, b, "no announcement of %v", addr)
		if g, err := ParseGratuitousARP(b); err == nil && g.Addr == addr {
			return g
		}
	}
}

// drain drops what has come so far.
func (c *kernelCapture) drain() {
	for c.frame(time.Millisecond) != nil {
	}
}

// kernelHolder is a Holder that runs in the test's namespace.
type kernelHolder struct {
	*Holder
	events chan HolderEvent
	stop   func()
}

func startKernelHolder(t *testing.T, c HolderConfig) *kernelHolder {
	t.Helper()
	k := &kernelHolder{events: make(chan HolderEvent, 1024)}
	c.Interface = "eth0"
	c.OnEvent = func(e HolderEvent) { k.events <- e }
	if c.Prefixes == nil {
		c.Prefixes = []netip.Prefix{kernelVIP}
	}
	h, err := NewHolder(c)
	require.NoError(t, err)
	k.Holder = h
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	stopped := false
	k.stop = func() {
		t.Helper()
		if stopped {
			return
		}
		stopped = true
		cancel()
		require.NoError(t, <-done)
	}
	t.Cleanup(k.stop)
	return k
}

// wait returns the next event of the kind.
func (k *kernelHolder) wait(t *testing.T, kind HolderEventKind) HolderEvent {
	t.Helper()
	timeout := time.After(kernelWait)
	for {
		select {
		case e := <-k.events:
			if e.Kind == kind {
				return e
			}
			require.NotEqual(t, HolderFault, e.Kind, "%v", e.Err)
		case <-timeout:
			require.FailNow(t, "no event", "%v", kind)
		}
	}
}

// The frames on the wire are the captured ones, padded to 60 bytes.
func TestKernelAnnouncerFrames(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		host, peer := kernelHost(t)
		mac, err := host.MAC("eth0")
		require.NoError(t, err)
		capture := newKernelCapture(t, peer)
		a, err := NewAnnouncer(AnnouncerConfig{Interface: "eth0", Reply: true})
		require.NoError(t, err)
		defer a.Close()
		require.NoError(t, a.Announce(kernelVIP.Addr()))
		for _, reply := range []bool{false, true} {
			want, err := GratuitousARP{MAC: [6]byte(mac), Addr: kernelVIP.Addr(), Reply: reply}.AppendBinary(nil)
			require.NoError(t, err)
			require.Equal(t, append(want, make([]byte, 60-len(want))...), capture.frame(kernelWait))
		}
		require.ErrorContains(t, a.Announce(kernelVIP6.Addr()), "only IPv4 addresses can be announced")
	})
}

func TestKernelAnnouncerFaults(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		host, peer := kernelHost(t)
		nowhere, err := NewAnnouncer(AnnouncerConfig{Interface: "nope0"})
		require.NoError(t, err)
		require.ErrorIs(t, nowhere.Open(), ErrNoInterface)
		require.ErrorIs(t, nowhere.Announce(kernelVIP.Addr()), ErrNoInterface)

		loopback, err := NewAnnouncer(AnnouncerConfig{Interface: "lo"})
		require.NoError(t, err)
		require.Error(t, loopback.Announce(kernelVIP.Addr()))

		kernelWithout(t, unix.CAP_NET_RAW, func() {
			a, err := NewAnnouncer(AnnouncerConfig{Interface: "eth0"})
			require.NoError(t, err)
			err = a.Open()
			require.ErrorIs(t, err, fs.ErrPermission)
			require.EqualError(t, err, "vrrp: announce on eth0: needs CAP_NET_RAW: run as root or inside a user namespace")
		})

		// An interface without an IPv4 address opens; it sends once it has one.
		require.NoError(t, netns.Veth(host, "bare0", peer, "bare1"))
		bare, err := NewAnnouncer(AnnouncerConfig{Interface: "bare0"})
		require.NoError(t, err)
		defer bare.Close()
		require.NoError(t, bare.Open())
		require.Error(t, bare.Announce(kernelVIP.Addr()))
		require.NoError(t, host.AddAddr("bare0", kernelVIP))
		require.NoError(t, bare.Announce(kernelVIP.Addr()))

		// The socket follows an interface that is made anew.
		require.NoError(t, host.Delete("bare0"))
		require.Error(t, bare.Announce(kernelVIP.Addr()))
		require.NoError(t, netns.Veth(host, "bare0", peer, "bare1"))
		require.NoError(t, host.AddAddr("bare0", kernelVIP))
		require.NoError(t, bare.Announce(kernelVIP.Addr()))
	})
}

// An address that is renewed outlives three lifetimes, and is gone after Run.
func TestKernelHolderRenews(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		_, peer := kernelHost(t)
		capture := newKernelCapture(t, peer)
		updates := kernelUpdates(t)
		h := startKernelHolder(t, HolderConfig{Lifetime: 3 * time.Second, Prefixes: []netip.Prefix{kernelVIP, kernelVIP6}})
		h.Hold(time.Now().Add(time.Hour))
		require.Equal(t, GratuitousARP{MAC: capture.garp(kernelVIP.Addr()).MAC, Addr: kernelVIP.Addr()}, capture.garp(kernelVIP.Addr()))
		for begun := time.Now(); time.Since(begun) < 3*3*time.Second; {
			select {
			case u := <-updates:
				require.True(t, u.NewAddr, "%v was removed", u.LinkAddress)
			case <-time.After(kernelWait):
				require.FailNow(t, "no renewal")
			}
			require.Equal(t, HolderHeld, h.Status().State)
		}
		h.stop()
		_, ok := kernelAddr(t, kernelVIP)
		require.False(t, ok)
		_, ok = kernelAddr(t, kernelVIP6)
		require.False(t, ok)
		require.Equal(t, HolderUnknown, h.Status().State)
	})
}

// kernelOwnerEnv makes a kernel test be the process that owns the address.
const kernelOwnerEnv = "LASTBEAT_TEST_HOLDER_OWNER"

// kernelOwner runs a Holder until it is killed, if this process is to.
func kernelOwner() {
	if os.Getenv(kernelOwnerEnv) == "" {
		return
	}
	h, err := NewHolder(HolderConfig{Interface: "eth0", Prefixes: []netip.Prefix{kernelVIP}, Lifetime: 2 * time.Second})
	if err == nil {
		h.Hold(time.Now().Add(time.Hour))
		err = h.Run(context.Background())
	}
	panic(err)
}

// startKernelOwner starts the owner and waits until it has the address.
func startKernelOwner(t *testing.T, capture *kernelCapture) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), kernelOwnerEnv+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	capture.garp(kernelVIP.Addr())
	return cmd
}

// https://github.com/kube-vip/kube-vip/issues/788 and others: the address of a
// killed owner stays for ever. Ours vanishes by itself.
func TestKernelHolderKilled(t *testing.T) {
	kernelOwner()
	nstest.Run(t, func(t *testing.T) {
		_, peer := kernelHost(t)
		capture := newKernelCapture(t, peer)
		updates := kernelUpdates(t)
		owner := startKernelOwner(t, capture)
		kernelUpdate(t, updates, kernelVIP, true)
		require.NoError(t, owner.Process.Kill())
		killed := time.Now()
		kernelUpdate(t, updates, kernelVIP, false)
		t.Logf("with a lifetime of 2s the address was gone %v after SIGKILL", time.Since(killed))
		_, ok := kernelAddr(t, kernelVIP)
		require.False(t, ok)

		// A new owner that starts before that cleans up at once.
		a := kernelAddresses(t, AddressesConfig{})
		require.NoError(t, a.Add(time.Hour, kernelVIP))
		h := startKernelHolder(t, HolderConfig{})
		kernelUpdate(t, updates, kernelVIP, false)
		h.stop()
	})
}

// https://github.com/acassen/keepalived/issues/220: after a freeze the address
// stays dark. A stopped owner loses it, and takes it again when it goes on.
func TestKernelHolderFrozen(t *testing.T) {
	kernelOwner()
	nstest.Run(t, func(t *testing.T) {
		_, peer := kernelHost(t)
		capture := newKernelCapture(t, peer)
		updates := kernelUpdates(t)
		owner := startKernelOwner(t, capture)
		require.NoError(t, owner.Process.Signal(syscall.SIGSTOP))
		kernelUpdate(t, updates, kernelVIP, false)
		capture.drain()
		require.NoError(t, owner.Process.Signal(syscall.SIGCONT))
		kernelUpdate(t, updates, kernelVIP, true)
		capture.garp(kernelVIP.Addr())
	})
}

// https://github.com/systemd/systemd/issues/12050: a network manager removes
// the address.
func TestKernelHolderForeignDeletion(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		host, peer := kernelHost(t)
		capture := newKernelCapture(t, peer)
		// The checks and renewals come too late to be what repairs it.
		h := startKernelHolder(t, HolderConfig{Lifetime: 10 * time.Minute, Announce: AnnounceConfig{Schedule: []time.Duration{0}, Refresh: -1}})
		h.Hold(time.Now().Add(time.Hour))
		h.wait(t, HolderAnnounced)
		capture.garp(kernelVIP.Addr())
		capture.drain()

		require.NoError(t, host.DelAddr("eth0", kernelVIP))
		e := h.wait(t, HolderLost)
		require.Equal(t, []netip.Prefix{kernelVIP}, e.Prefixes)
		h.wait(t, HolderRestored)
		capture.garp(kernelVIP.Addr())
		_, ok := kernelAddr(t, kernelVIP)
		require.True(t, ok)

		// The primary address of the network takes its secondaries along.
		h.Release("test")
		h.wait(t, HolderRemoved)
		h.Hold(time.Now().Add(time.Hour))
		h.wait(t, HolderAdded)
		require.NoError(t, os.WriteFile("/proc/sys/net/ipv4/conf/eth0/promote_secondaries", []byte("0"), 0))
		require.NoError(t, host.DelAddr("eth0", kernelOwn))
		h.wait(t, HolderLost)
		h.wait(t, HolderRestored)
	})
}

// After Release has returned no frame leaves any more.
func TestKernelHolderRelease(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		_, peer := kernelHost(t)
		capture := newKernelCapture(t, peer)
		marker, err := NewAnnouncer(AnnouncerConfig{Interface: "eth0"})
		require.NoError(t, err)
		defer marker.Close()
		require.NoError(t, marker.Open())
		h := startKernelHolder(t, HolderConfig{Announce: AnnounceConfig{Refresh: 100 * time.Millisecond}})
		for range 10 {
			h.Hold(time.Now().Add(time.Hour))
			capture.garp(kernelVIP.Addr())
			capture.garp(kernelVIP.Addr()) // in the middle of the round
			h.Release("lost the election")
			require.NoError(t, marker.Announce(kernelOther.Addr()))
			capture.garp(kernelOther.Addr())
			for b := capture.frame(300 * time.Millisecond); b != nil; b = capture.frame(300 * time.Millisecond) {
				g, err := ParseGratuitousARP(b)
				require.False(t, err == nil && g.Addr == kernelVIP.Addr(), "announced after Release")
			}
			h.wait(t, HolderRemoved)
			_, ok := kernelAddr(t, kernelVIP)
			require.False(t, ok)
		}
	})
}

// The link goes and comes; the interface goes and comes.
func TestKernelHolderLink(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		host, peer := kernelHost(t)
		capture := newKernelCapture(t, peer)
		h := startKernelHolder(t, HolderConfig{Lifetime: 10 * time.Minute, Announce: AnnounceConfig{Schedule: []time.Duration{0}, Refresh: -1}})
		h.Hold(time.Now().Add(time.Hour))
		h.wait(t, HolderAnnounced)
		capture.garp(kernelVIP.Addr())
		capture.drain()
		require.NoError(t, peer.SetDown("peer0"))
		require.NoError(t, peer.SetUp("peer0"))
		require.Equal(t, "the link came up", h.wait(t, HolderAnnounced).Reason)

		require.NoError(t, host.Delete("eth0"))
		h.wait(t, HolderLost)
		require.NoError(t, netns.Veth(host, "eth0", peer, "peer0"))
		for e := (HolderEvent{}); e.Kind != HolderRestored; { // faults come before
			select {
			case e = <-h.events:
			case <-time.After(kernelWait):
				require.FailNow(t, "not restored", "%+v", h.Status())
			}
		}
		require.Equal(t, HolderHeld, h.Status().State)
	})
}

func TestKernelHolderFaults(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		kernelHost(t)
		run := func(iface string) error {
			h, err := NewHolder(HolderConfig{Interface: iface, Prefixes: []netip.Prefix{kernelVIP}})
			require.NoError(t, err)
			return h.Run(t.Context())
		}
		require.EqualError(t, run("nope0"), "vrrp: hold 192.0.2.1/24 on nope0: no such interface")
		kernelWithout(t, unix.CAP_NET_ADMIN, func() {
			require.EqualError(t, run("eth0"), "vrrp: hold 192.0.2.1/24 on eth0: needs CAP_NET_ADMIN: run as root or inside a user namespace")
		})
		kernelWithout(t, unix.CAP_NET_RAW, func() {
			require.EqualError(t, run("eth0"), "vrrp: announce on eth0: needs CAP_NET_RAW: run as root or inside a user namespace")
		})
		_, ok := kernelAddr(t, kernelVIP)
		require.False(t, ok)
	})
}
