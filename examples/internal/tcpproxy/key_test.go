package tcpproxy

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeyIsTheAddressWithoutPort(t *testing.T) {
	key := func(text string) uint64 { return keyOf(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text))) }
	require.Equal(t, key("192.0.2.1:1"), key("192.0.2.1:2"))
	require.Equal(t, key("192.0.2.1:1"), key("[::ffff:192.0.2.1]:1"), "as a dual-stack socket sees it")
	seen := map[uint64]bool{}
	for i := range 256 {
		seen[key(fmt.Sprintf("192.0.2.%d:1", i))] = true
		seen[key(fmt.Sprintf("[2001:db8:%x::1]:1", i))] = true
	}
	require.Len(t, seen, 512)
}
