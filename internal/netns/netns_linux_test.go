package netns_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/internal/netns"
	"github.com/lastbeat/lastbeat/internal/netns/nstest"
)

func newNS(t *testing.T) *netns.NS {
	t.Helper()
	ns, err := netns.New()
	require.NoError(t, err)
	t.Cleanup(func() { ns.Close() })
	return ns
}

// Two hosts on a bridge exchange a datagram; a third that is not cabled does not see them.
func TestKernelHostsOnABridge(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		sw, a, b := newNS(t), newNS(t), newNS(t)
		require.NoError(t, sw.Bridge("br0"))
		for i, host := range []*netns.NS{a, b} {
			port := "p" + strconv.Itoa(i)
			require.NoError(t, netns.Veth(sw, port, host, "eth0"))
			require.NoError(t, sw.Enslave(port, "br0"))
			require.NoError(t, host.AddAddr("eth0", netip.MustParsePrefix("192.0.2."+strconv.Itoa(i+1)+"/24")))
		}

		var server net.PacketConn
		require.NoError(t, b.Do(func() (err error) {
			server, err = net.ListenPacket("udp4", "192.0.2.2:0")
			return err
		}))
		defer server.Close()
		var client net.Conn
		require.NoError(t, a.Do(func() (err error) {
			client, err = net.Dial("udp4", server.LocalAddr().String())
			return err
		}))
		defer client.Close()
		_, err := client.Write([]byte("hello"))
		require.NoError(t, err)
		buf := make([]byte, 16)
		n, from, err := server.ReadFrom(buf)
		require.NoError(t, err)
		require.Equal(t, "hello", string(buf[:n]))
		require.True(t, strings.HasPrefix(from.String(), "192.0.2.1:"), from)

		addrs, err := a.Addrs("eth0")
		require.NoError(t, err)
		require.Contains(t, addrs, netip.MustParsePrefix("192.0.2.1/24"))
	})
}

// A process started inside lives there as a whole, and our own threads come back home.
func TestKernelStartLivesInside(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		host := newNS(t)
		require.NoError(t, host.Bridge("only-here"))
		cmd := exec.CommandContext(t.Context(), nstest.Peer(t, "ip"), "-o", "link")
		var out strings.Builder
		cmd.Stdout = &out
		require.NoError(t, host.Start(cmd))
		require.NoError(t, cmd.Wait())
		require.Contains(t, out.String(), "only-here")

		for range 50 { // whatever thread runs us, none has stayed in the namespace
			_, err := net.InterfaceByName("only-here")
			require.Error(t, err)
		}
	})
}

// A host that forgot its neighbour asks again; the descriptor names the namespace.
func TestKernelForgetsNeighbours(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		a, b := newNS(t), newNS(t)
		require.NoError(t, netns.Veth(a, "eth0", b, "eth0"))
		require.NoError(t, a.AddAddr("eth0", netip.MustParsePrefix("192.0.2.1/24")))
		require.NoError(t, b.AddAddr("eth0", netip.MustParsePrefix("192.0.2.2/24")))
		known := func() string {
			t.Helper()
			var table []byte
			require.NoError(t, a.Do(func() (err error) {
				table, err = os.ReadFile("/proc/thread-self/net/arp")
				return err
			}))
			return string(table)
		}
		require.NoError(t, a.Do(func() error {
			conn, err := net.Dial("tcp4", "192.0.2.2:9") // refused, so resolved
			if err == nil {
				conn.Close()
			}
			return nil
		}))
		require.Contains(t, known(), "192.0.2.2")
		require.NoError(t, a.FlushNeighbours("eth0"))
		require.NotContains(t, known(), "192.0.2.2")
		require.NoError(t, a.FlushNeighbours("eth0"), "nothing to forget")
		require.Error(t, a.FlushNeighbours("none"))

		held, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", a.Fd()))
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(held, "net:["), held)
	})
}

// The kernel ends what a dying test has left running.
func TestKernelNothingOutlivesTheProcess(t *testing.T) {
	if os.Getenv("LASTBEAT_ORPHAN") != "" {
		require.NoError(t, netns.Setup())
		// The grandchild holds our standard output open for as long as it lives.
		orphan := exec.CommandContext(context.Background(), "sleep", "1000")
		orphan.Stdout = os.Stdout
		require.NoError(t, orphan.Start())
		os.Exit(7) // without waiting, as a panic would
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "LASTBEAT_ORPHAN=1")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	if err := netns.StartIsolated(cmd); err != nil {
		nstest.Missing(t, err.Error())
	}
	buf := make([]byte, 1)
	for err == nil { // end of file comes only when the grandchild is gone too
		_, err = stdout.Read(buf)
	}
	require.Error(t, cmd.Wait())
	require.Equal(t, 7, cmd.ProcessState.ExitCode())
}
