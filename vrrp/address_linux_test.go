package vrrp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/lastbeat/lastbeat/internal/netns"
	"github.com/lastbeat/lastbeat/internal/netns/nstest"
)

var (
	kernelVIP   = netip.MustParsePrefix("192.0.2.1/24")
	kernelVIP2  = netip.MustParsePrefix("192.0.2.2/24")
	kernelVIP6  = netip.MustParsePrefix("2001:db8::1/64")
	kernelOwn   = netip.MustParsePrefix("192.0.2.21/24")
	kernelOther = netip.MustParsePrefix("192.0.2.99/24")
)

// kernelWait bounds waits for something that comes within seconds. It is
// generous, since the machine may be busy with other tests.
const kernelWait = 30 * time.Second

// kernelHost joins this process's namespace, by eth0, to a peer's, by peer0.
func kernelHost(t *testing.T) (host, peer *netns.NS) {
	t.Helper()
	host, err := netns.Current()
	require.NoError(t, err)
	t.Cleanup(func() { host.Close() })
	peer, err = netns.New()
	require.NoError(t, err)
	t.Cleanup(func() { peer.Close() })
	require.NoError(t, netns.Veth(host, "eth0", peer, "peer0"))
	require.NoError(t, host.AddAddr("eth0", kernelOwn))
	return host, peer
}

func kernelAddresses(t *testing.T, c AddressesConfig) *Addresses {
	t.Helper()
	if c.Interface == "" {
		c.Interface = "eth0"
	}
	a, err := NewAddresses(c)
	require.NoError(t, err)
	return a
}

// kernelAddr reads an address back by the netlink package's own listing.
func kernelAddr(t *testing.T, p netip.Prefix) (netlink.Addr, bool) {
	t.Helper()
	list, err := netlink.AddrList(kernelLink(t), netlink.FAMILY_ALL)
	require.NoError(t, err)
	i := slices.IndexFunc(list, func(a netlink.Addr) bool { return a.IPNet.String() == p.String() })
	if i < 0 {
		return netlink.Addr{}, false
	}
	return list[i], true
}

// kernelEntry returns what our own listing says about an address.
func kernelEntry(t *testing.T, a *Addresses, p netip.Prefix) addrEntry {
	t.Helper()
	entries, err := a.dump()
	require.NoError(t, err)
	i := slices.IndexFunc(entries, func(e addrEntry) bool { return e.prefix == p && e.onInterface })
	require.GreaterOrEqual(t, i, 0, "%v is not there: %v", p, entries)
	return entries[i]
}

// kernelUpdates subscribes to the address events of the namespace.
func kernelUpdates(t *testing.T) <-chan netlink.AddrUpdate {
	t.Helper()
	ch, done := make(chan netlink.AddrUpdate, 1024), make(chan struct{})
	require.NoError(t, netlink.AddrSubscribe(ch, done))
	t.Cleanup(func() { close(done) })
	return ch
}

// kernelUpdate waits until p is added (or renewed) or removed.
func kernelUpdate(t *testing.T, ch <-chan netlink.AddrUpdate, p netip.Prefix, added bool) {
	t.Helper()
	timeout := time.After(kernelWait)
	for {
		select {
		case u := <-ch:
			if u.LinkAddress.String() == p.String() && u.NewAddr == added {
				return
			}
		case <-timeout:
			require.FailNow(t, "no address event", "%v, added %v", p, added)
		}
	}
}

func TestKernelAddressesAdd(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		kernelHost(t)
		a := kernelAddresses(t, AddressesConfig{Label: "eth0:vip"})
		require.NoError(t, a.Add(time.Minute, kernelVIP, kernelVIP6))

		got, ok := kernelAddr(t, kernelVIP)
		require.True(t, ok)
		require.Equal(t, "eth0:vip", got.Label)
		kernelLifetime(t, got.ValidLft, time.Minute)
		kernelLifetime(t, got.PreferedLft, time.Minute)
		require.NotZero(t, got.Flags&unix.IFA_F_SECONDARY, "the host's own address stays the primary one")

		got, ok = kernelAddr(t, kernelVIP6)
		require.True(t, ok)
		kernelLifetime(t, got.ValidLft, time.Minute)
		require.Zero(t, got.PreferedLft)
		require.NotZero(t, got.Flags&unix.IFA_F_NODAD)
		require.Zero(t, got.Flags&unix.IFA_F_TENTATIVE, "usable at once")

		for _, p := range []netip.Prefix{kernelVIP, kernelVIP6} {
			e := kernelEntry(t, a, p)
			require.False(t, e.permanent)
			if kernelHasTags(t) {
				require.Equal(t, DefaultProtocol, e.protocol)
			}
		}

		// The lifetime can be raised and lowered, also of one that somebody
		// made permanent meanwhile.
		for _, p := range []netip.Prefix{kernelVIP, kernelVIP6} {
			require.NoError(t, a.Renew(10*time.Minute, p))
			got, _ = kernelAddr(t, p)
			kernelLifetime(t, got.ValidLft, 10*time.Minute)
			require.NoError(t, a.Add(time.Minute, p), "adding what is ours renews it")
			got, _ = kernelAddr(t, p)
			kernelLifetime(t, got.ValidLft, time.Minute)

			require.NoError(t, netlink.AddrReplace(kernelLink(t), kernelPermanent(p)))
			require.True(t, kernelEntry(t, a, p).permanent)
			require.NoError(t, a.Renew(time.Minute, p))
			got, _ = kernelAddr(t, p)
			kernelLifetime(t, got.ValidLft, time.Minute)
		}

		owned, err := a.Owned(kernelVIP, kernelVIP2, kernelOwn, kernelVIP6)
		require.NoError(t, err)
		require.ElementsMatch(t, []netip.Prefix{kernelVIP, kernelVIP6}, owned)
		missing, err := a.missing([]netip.Prefix{kernelVIP, kernelVIP2})
		require.NoError(t, err)
		require.Equal(t, []netip.Prefix{kernelVIP2}, missing)

		require.NoError(t, a.Remove(kernelVIP, kernelVIP2, kernelVIP6))
		_, ok = kernelAddr(t, kernelVIP)
		require.False(t, ok)
		require.NoError(t, a.Remove(kernelVIP), "gone already is no fault")
		_, ok = kernelAddr(t, kernelOwn)
		require.True(t, ok)
	})
}

// kernelLifetime requires that the kernel counts down from want.
func kernelLifetime(t *testing.T, seconds int, want time.Duration) {
	t.Helper()
	got := time.Duration(seconds) * time.Second
	require.LessOrEqual(t, got, want)
	require.Greater(t, got, want-kernelWait)
}

func kernelLink(t *testing.T) netlink.Link {
	t.Helper()
	link, err := netlink.LinkByName("eth0")
	require.NoError(t, err)
	return link
}

// kernelPermanent is p as somebody else would configure it.
func kernelPermanent(p netip.Prefix) *netlink.Addr {
	bits := p.Addr().BitLen()
	return &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), bits)}}
}

// kernelHasTags tells whether this kernel knows IFA_PROTO, Linux 5.18.
func kernelHasTags(t *testing.T) bool {
	t.Helper()
	var u unix.Utsname
	require.NoError(t, unix.Uname(&u))
	var major, minor int
	_, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
	require.NoError(t, err)
	return major > 5 || major == 5 && minor >= 18
}

func TestKernelAddressesManyAtOnce(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		kernelHost(t)
		a := kernelAddresses(t, AddressesConfig{})
		many := make([]netip.Prefix, 255)
		for i := range many {
			many[i] = netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}), 32)
		}
		require.NoError(t, a.Add(time.Minute, many...))
		owned, err := a.Owned(many...)
		require.NoError(t, err)
		require.ElementsMatch(t, many, owned)
		require.NoError(t, a.Remove(many...))
		owned, err = a.Owned(many...)
		require.NoError(t, err)
		require.Empty(t, owned)
	})
}

func TestKernelAddressesExpire(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		kernelHost(t)
		a := kernelAddresses(t, AddressesConfig{})
		updates := kernelUpdates(t)
		begun := time.Now()
		require.NoError(t, a.Add(time.Second, kernelVIP, kernelVIP6))
		kernelUpdate(t, updates, kernelVIP, false)
		t.Logf("a lifetime of 1s ended after %v", time.Since(begun))
		_, ok := kernelAddr(t, kernelVIP)
		require.False(t, ok)
		_, ok = kernelAddr(t, kernelOwn)
		require.True(t, ok)
	})
}

func TestKernelAddressesSweep(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		host, peer := kernelHost(t)
		require.NoError(t, netns.Veth(host, "eth1", peer, "peer1"))
		require.NoError(t, host.AddAddr("eth0", kernelOther))
		a := kernelAddresses(t, AddressesConfig{})
		require.NoError(t, a.Add(time.Minute, kernelVIP, kernelVIP2, kernelVIP6))
		another := kernelAddresses(t, AddressesConfig{Protocol: 99})
		anothers := netip.MustParsePrefix("192.0.2.50/24")
		require.NoError(t, another.Add(time.Minute, anothers))
		elsewhere := kernelAddresses(t, AddressesConfig{Interface: "eth1"})
		onEth1 := netip.MustParsePrefix("198.51.100.1/24")
		require.NoError(t, elsewhere.Add(time.Minute, onEth1))
		if !kernelHasTags(t) {
			nstest.Missing(t, "needs IFA_PROTO, Linux 5.18")
		}

		swept, err := a.Sweep(kernelVIP2, kernelOther)
		require.NoError(t, err)
		require.Equal(t, []netip.Prefix{kernelVIP2}, swept, "only the named, and of these only ours")

		swept, err = a.Sweep()
		require.NoError(t, err)
		require.ElementsMatch(t, []netip.Prefix{kernelVIP, kernelVIP6}, swept)
		left, err := host.Addrs("eth0")
		require.NoError(t, err)
		require.Subset(t, left, []netip.Prefix{kernelOwn, kernelOther, anothers})
		for _, p := range swept {
			require.NotContains(t, left, p)
		}
		left, err = host.Addrs("eth1")
		require.NoError(t, err)
		require.Contains(t, left, onEth1)

		swept, err = a.Sweep()
		require.NoError(t, err)
		require.Empty(t, swept)
	})
}

func TestKernelAddressesForeign(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		host, _ := kernelHost(t)
		a := kernelAddresses(t, AddressesConfig{})
		err := a.Add(time.Minute, kernelVIP, kernelOwn)
		require.ErrorIs(t, err, ErrForeignAddress)
		require.EqualError(t, err, "vrrp: hold 192.0.2.21/24 on eth0: the address is there already and is not ours: remove it there, or allow to adopt it")
		_, ok := kernelAddr(t, kernelVIP)
		require.False(t, ok, "nothing was changed")

		adopter := kernelAddresses(t, AddressesConfig{Adopt: true})
		otherLength := netip.PrefixFrom(kernelVIP.Addr(), 32)
		require.NoError(t, host.AddAddr("eth0", otherLength))
		err = adopter.Add(time.Minute, kernelVIP)
		require.ErrorIs(t, err, ErrForeignAddress)
		require.ErrorContains(t, err, "vrrp: hold 192.0.2.1/32 on eth0")
		require.NoError(t, host.DelAddr("eth0", otherLength))

		require.NoError(t, host.AddAddr("eth0", kernelVIP))
		require.NoError(t, adopter.Add(time.Minute, kernelVIP))
		require.False(t, kernelEntry(t, a, kernelVIP).permanent)
		owned, err := a.Owned(kernelVIP)
		require.NoError(t, err)
		require.Equal(t, []netip.Prefix{kernelVIP}, owned)
	})
}

func TestKernelAddressesFaults(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		kernelHost(t)
		nowhere := kernelAddresses(t, AddressesConfig{Interface: "nope0"})
		err := nowhere.Add(time.Minute, kernelVIP)
		require.ErrorIs(t, err, ErrNoInterface)
		err = nowhere.Renew(time.Minute, kernelVIP)
		require.EqualError(t, err, "vrrp: hold 192.0.2.1/24 on nope0: no such interface")
		require.NoError(t, nowhere.Remove(kernelVIP), "gone with its interface")
		_, err = nowhere.Sweep()
		require.ErrorIs(t, err, ErrNoInterface)

		require.NoError(t, os.WriteFile("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", []byte("1"), 0))
		a := kernelAddresses(t, AddressesConfig{})
		require.EqualError(t, a.Add(time.Minute, kernelVIP, kernelVIP6),
			"vrrp: hold 2001:db8::1/64 on eth0: IPv6 is disabled there: set the sysctl net.ipv6.conf.eth0.disable_ipv6 to 0")

		require.ErrorContains(t, a.Add(1500*time.Millisecond, kernelVIP), "address lifetime 1.5s: use whole seconds")
		require.ErrorContains(t, a.Add(0, kernelVIP), "address lifetime 0s: use whole seconds")
		require.ErrorContains(t, a.Add(time.Minute), "no address")
	})
}

func TestKernelAddressesPrivilege(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		kernelHost(t)
		kernelWithout(t, unix.CAP_NET_ADMIN, func() {
			a := kernelAddresses(t, AddressesConfig{})
			for _, err := range []error{
				a.check([]netip.Prefix{kernelVIP}),
				a.Add(time.Minute, kernelVIP),
				a.Renew(time.Minute, kernelVIP),
			} {
				require.ErrorIs(t, err, fs.ErrPermission)
				require.EqualError(t, err, "vrrp: hold 192.0.2.1/24 on eth0: needs CAP_NET_ADMIN: run as root or inside a user namespace")
			}
		})
		require.NoError(t, kernelAddresses(t, AddressesConfig{}).check([]netip.Prefix{kernelVIP}))
	})
}

// kernelWithout runs f on a thread of its own that lacks a capability.
func kernelWithout(t *testing.T, capability int, f func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		err := errors.New("f did not return")
		defer func() { done <- err }()
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err = unix.Capget(&hdr, &data[0]); err != nil {
			return
		}
		data[0].Effective &^= 1 << capability
		if err = unix.Capset(&hdr, &data[0]); err != nil {
			return
		}
		f()
		err = nil
	}()
	require.NoError(t, <-done)
}

func TestKernelAddressesWatch(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		host, _ := kernelHost(t)
		a := kernelAddresses(t, AddressesConfig{})
		ctx, cancel := context.WithCancel(t.Context())
		changes, ended := make(chan addrChange, 64), make(chan error, 1)
		go func() {
			ended <- a.watch(ctx, []netip.Prefix{kernelVIP}, func(c addrChange) { changes <- c })
		}()
		next := func() addrChange {
			select {
			case c := <-changes:
				return c
			case <-time.After(kernelWait):
				require.FailNow(t, "no change was reported")
				return 0
			}
		}
		// The watcher listens at the latest when it has seen one of these.
		for heard := false; !heard; {
			require.NoError(t, a.Add(time.Minute, kernelVIP))
			require.NoError(t, host.DelAddr("eth0", kernelVIP))
			select {
			case c := <-changes:
				require.Equal(t, addrMaybeLost, c)
				heard = true
			case <-time.After(10 * time.Millisecond):
			}
		}
		require.NoError(t, host.SetDown("eth0"))
		for next() != addrMaybeLost {
		}
		require.NoError(t, host.SetUp("eth0"))
		for next() != addrLinkUp {
		}
		cancel()
		require.NoError(t, <-ended)
	})
}
