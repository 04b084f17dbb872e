package vrrp

import (
	"net/netip"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// FuzzRoutingMessage shows that no routing message, however cut, makes the
// watcher or the listing fail otherwise than by an error.
func FuzzRoutingMessage(f *testing.F) {
	a := &Addresses{cfg: AddressesConfig{Interface: "eth0", Label: "eth0:vip", Protocol: 76}}
	for _, p := range []string{"192.0.2.1/24", "2001:db8::1/64"} {
		msg := a.newAddrRequest(2, netip.MustParsePrefix(p), 5).Serialize()[unix.SizeofNlMsghdr:]
		f.Add(uint16(unix.RTM_DELADDR), msg)
		e, index, err := parseAddrMessage(msg)
		require.NoError(f, err)
		require.Equal(f, 2, index)
		require.Equal(f, addrEntry{prefix: netip.MustParsePrefix(p), protocol: 76}, e)
	}
	link := nl.NewIfInfomsg(unix.AF_UNSPEC)
	link.Index, link.Flags = 2, unix.IFF_UP|unix.IFF_RUNNING
	name := nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated("eth0"))
	changes := nl.NewRtAttr(unix.IFLA_CARRIER_CHANGES, nl.Uint32Attr(7))
	msg := append(append(link.Serialize(), name.Serialize()...), changes.Serialize()...)
	l, ok := parseLinkMessage(msg)
	require.True(f, ok)
	require.Equal(f, addrLinkState{"eth0", 2, true, 7}, l)
	f.Add(uint16(unix.RTM_NEWLINK), msg)
	f.Add(uint16(unix.RTM_DELLINK), msg[:20])

	f.Fuzz(func(t *testing.T, typ uint16, b []byte) {
		_, _, _ = parseAddrMessage(b)
		w := addrWatcher{iface: "eth0", prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}}
		c := w.judge(syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: typ}, Data: b})
		require.Contains(t, []addrChange{0, addrMaybeLost, addrLinkUp}, c)
	})
}
