package health

import (
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/internal/netns"
	"github.com/lastbeat/lastbeat/internal/netns/nstest"
)

// A closed port is bad at once, also where silence is good. Linux answers on
// loopback before the send returns.
func TestUDPClosedPort(t *testing.T) {
	for _, silenceGood := range []bool{false, true} {
		p, err := NewUDP(UDPConfig{Address: closedUDP(t), SilenceGood: silenceGood})
		require.NoError(t, err)
		err = p.Probe(t.Context())
		require.Equal(t, Bad, Classify(err), "%v", err)
		require.ErrorContains(t, err, "unreachable: ")
		require.ErrorContains(t, err, "connection refused")
	}
}

// What arrived just before the time ended is not overlooked: a read whose deadline
// has gone by does not look at the socket.
func TestUDPAnswerBeatsTimeout(t *testing.T) {
	open := func(t *testing.T, address string) *net.UDPConn {
		d := net.Dialer{Control: reportUnreachable}
		conn, err := d.DialContext(t.Context(), "udp", address)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		require.NoError(t, conn.SetDeadline(past))
		return conn.(*net.UDPConn)
	}
	b := make([]byte, 10)
	t.Run("answer", func(t *testing.T) {
		server := listenUDP(t)
		conn := open(t, server.LocalAddr().String())
		_, err := server.WriteToUDPAddrPort([]byte("pong"), conn.LocalAddr().(*net.UDPAddr).AddrPort())
		require.NoError(t, err)
		_, err = conn.Read(b)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "the premise")
		n, err := lastLook(conn, b)
		require.NoError(t, err)
		require.Equal(t, "pong", string(b[:n]))
		_, err = lastLook(conn, b)
		require.ErrorIs(t, err, syscall.EAGAIN, "taken")
	})
	t.Run("error", func(t *testing.T) {
		conn := open(t, closedUDP(t))
		_, err := lastLook(conn, b)
		require.ErrorIs(t, err, syscall.EAGAIN)
		require.NoError(t, conn.SetWriteDeadline(time.Time{}))
		_, err = conn.Write(nil)
		require.NoError(t, err)
		_, err = conn.Read(b)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "the premise")
		_, err = lastLook(conn, b)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	})
}

// lan makes a neighbour at the other end of a cable, with addresses of both
// families, in the namespaces of a kernel test.
func lan(t *testing.T) *netns.NS {
	here, err := netns.Current()
	require.NoError(t, err)
	there, err := netns.New()
	require.NoError(t, err)
	t.Cleanup(func() {
		here.Close()
		there.Close()
	})
	require.NoError(t, netns.Veth(here, "here", there, "there"))
	for _, p := range []string{"192.0.2.1/24", "2001:db8::1/64"} {
		require.NoError(t, here.AddAddr("here", netip.MustParsePrefix(p)))
	}
	for _, p := range []string{"192.0.2.2/24", "2001:db8::2/64"} {
		require.NoError(t, there.AddAddr("there", netip.MustParsePrefix(p)))
	}
	// A neighbour that is not there is given up after 3 requests; let that be quick.
	for _, family := range []string{"ipv4", "ipv6"} {
		require.NoError(t, os.WriteFile("/proc/sys/net/"+family+"/neigh/here/retrans_time_ms", []byte("10"), 0o644))
	}
	return there
}

func TestKernelUDPUnreachable(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		lan(t)
		for _, tc := range []struct {
			name, address string
			want          Outcome
			as            string
		}{
			{"closed port", "192.0.2.2:9", Bad, "connection refused"},
			{"closed port, IPv6", "[2001:db8::2]:9", Bad, "connection refused"},
			{"dead neighbour", "192.0.2.3:9", Bad, "no route to host"},
			{"dead neighbour, IPv6", "[2001:db8::3]:9", Bad, "no route to host"},
			{"no route from here", "198.51.100.1:9", LocalError, "network is unreachable"},
			{"no route from here, IPv6", "[2001:db8:1::1]:9", LocalError, "network is unreachable"},
		} {
			t.Run(tc.name, func(t *testing.T) {
				p, err := NewUDP(UDPConfig{Address: tc.address, SilenceGood: true})
				require.NoError(t, err)
				err = p.Probe(t.Context())
				require.Equal(t, tc.want, Classify(err), "%v", err)
				require.ErrorContains(t, err, tc.as)
			})
		}
	})
}
