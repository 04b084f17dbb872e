package nft

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/internal/netns"
	"github.com/lastbeat/lastbeat/internal/netns/nstest"
)

// host is a machine on a bridge with the addresses of both families that end in
// its number.
type host struct {
	*netns.NS
	t   *testing.T
	tab *Table
}

func newHosts(t *testing.T, n int) []host {
	t.Helper()
	newNS := func() *netns.NS {
		ns, err := netns.New()
		require.NoError(t, err)
		t.Cleanup(func() { ns.Close() })
		return ns
	}
	sw := newNS()
	require.NoError(t, sw.Bridge("br0"))
	hosts := make([]host, n)
	for i := range hosts {
		ns, port := newNS(), fmt.Sprintf("p%d", i)
		require.NoError(t, netns.Veth(sw, port, ns, "eth0"))
		require.NoError(t, sw.Enslave(port, "br0"))
		for _, format := range []string{"192.0.2.%d/24", "2001:db8::%d/64"} {
			require.NoError(t, ns.AddAddr("eth0", netip.MustParsePrefix(fmt.Sprintf(format, 11+i))))
		}
		hosts[i] = host{NS: ns, t: t, tab: newTable(t, Options{Timeout: time.Hour})}
	}
	return hosts
}

// serve answers each connection to any address of the host at a port: a line
// with the host's name and the address of the client, then every line again.
func (h host) serve(name string, port int) {
	h.t.Helper()
	var l net.Listener
	require.NoError(h.t, h.Do(func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
		return err
	}))
	h.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				from := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
				if _, err := fmt.Fprintf(c, "%s sees %s\n", name, from); err == nil {
					_, _ = io.Copy(c, c)
				}
			}()
		}
	}()
}

type client struct {
	net.Conn
	greeting string
}

// dial connects and reads the greeting.
func (h host) dial(to netip.AddrPort) client {
	h.t.Helper()
	var c net.Conn
	require.NoError(h.t, h.Do(func() (err error) {
		c, err = net.DialTimeout("tcp", to.String(), time.Minute)
		return err
	}))
	h.t.Cleanup(func() { c.Close() })
	line, err := bufio.NewReaderSize(io.LimitReader(c, 64), 16).ReadString('\n')
	require.NoError(h.t, err)
	return client{c, line[:len(line)-1]}
}

// echo shows that the connection lives.
func (c client) echo(t *testing.T) {
	t.Helper()
	_, err := io.WriteString(c, "still here\n")
	require.NoError(t, err)
	buf := make([]byte, len("still here\n"))
	_, err = io.ReadFull(c, buf)
	require.NoError(t, err)
	require.Equal(t, "still here\n", string(buf))
}

func (h host) apply(cfg Config) {
	h.t.Helper()
	require.NoError(h.t, h.Do(func() error {
		_, err := h.tab.Apply(h.t.Context(), cfg)
		return err
	}))
}

func (h host) counters() (all []Counters) {
	h.t.Helper()
	require.NoError(h.t, h.Do(func() (err error) {
		all, err = h.tab.Counters(h.t.Context())
		return err
	}))
	return all
}

func (h host) run(name string, args ...string) string {
	h.t.Helper()
	var out []byte
	cmd := exec.CommandContext(h.t.Context(), nstest.Peer(h.t, name), args...)
	require.NoError(h.t, h.Do(func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	}), "%s", out)
	return string(out)
}

// The job itself, by real connections: from a client, from the holder, and from
// a standby node whose own table stands idle; then the VIP moves.
func TestKernelTraffic(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		for name, test := range map[string]struct {
			vip     netip.Prefix
			network string // of the hosts' addresses
		}{
			"IPv4": {netip.MustParsePrefix("192.0.2.1/32"), "192.0.2."},
			"IPv6": {netip.MustParsePrefix("2001:db8::1/128"), "2001:db8::"},
		} {
			t.Run(name, func(t *testing.T) {
				hosts := newHosts(t, 3)
				outside, holder, standby := hosts[0], hosts[1], hosts[2]
				vip := netip.AddrPortFrom(test.vip.Addr(), 6443)
				cfg := Config{Redirects: []Redirect{dns4, {VIP: vip.Addr(), From: 6443, To: 9445}}}
				require.NoError(t, holder.AddAddr("eth0", test.vip))
				for name, h := range map[string]host{"holder": holder, "standby": standby} {
					h.serve(name, 9445)
					h.serve(name+"'s own server", 6443)
					h.apply(cfg)
				}
				counts := func(h host) (external, local uint64) {
					c := h.counters()
					require.Zero(t, c[0].External.Packets+c[0].Local.Packets)
					return c[1].External.Connections, c[1].Local.Connections
				}

				require.Equal(t, "holder sees "+test.network+"11", outside.dial(vip).greeting)
				e, l := counts(holder)
				require.Equal(t, []uint64{1, 0}, []uint64{e, l})
				c := holder.counters()[1]
				require.GreaterOrEqual(t, c.External.Packets, uint64(3), "SYN, ACK of the handshake and of the greeting")
				require.Zero(t, c.Local)

				external := c.External
				require.Equal(t, "holder sees "+vip.Addr().String(), holder.dial(vip).greeting)
				c = holder.counters()[1]
				require.EqualValues(t, 1, c.Local.Connections)
				require.GreaterOrEqual(t, c.Local.Packets, uint64(3))
				require.Equal(t, external.Connections, c.External.Connections, "counted apart")
				require.LessOrEqual(t, c.External.Packets, external.Packets+2, "but for the end of the first connection")

				require.Equal(t, "holder sees "+test.network+"13", standby.dial(vip).greeting)
				e, l = counts(holder)
				require.Equal(t, []uint64{2, 1}, []uint64{e, l})
				require.Zero(t, standby.counters()[1].External)
				require.Zero(t, standby.counters()[1].Local, "it left on the wire")

				own := netip.MustParseAddrPort(netip.AddrPortFrom(netip.MustParseAddr(test.network+"12"), 6443).String())
				require.Equal(t, "holder's own server sees "+test.network+"11", outside.dial(own).greeting, "other addresses are not touched")

				require.NoError(t, holder.DelAddr("eth0", test.vip))
				require.NoError(t, standby.AddAddr("eth0", test.vip))
				for _, h := range hosts {
					h.run("ip", "neigh", "flush", "all")
				}
				require.Equal(t, "standby sees "+test.network+"11", outside.dial(vip).greeting, "the same table, now at work")
				require.Equal(t, "standby sees "+test.network+"12", holder.dial(vip).greeting, "the former holder's own connection leaves on the wire")
				e, l = counts(standby)
				require.Equal(t, []uint64{2, 0}, []uint64{e, l})

				standby.apply(Config{})
				require.Equal(t, "standby's own server sees "+test.network+"11", outside.dial(vip).greeting)
			})
		}
	})
}

// Repair and withdrawal do not cut open connections; a removed table would.
func TestKernelOpenConnectionsLiveOn(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		outside, holder := hosts[0], hosts[1]
		require.NoError(t, holder.AddAddr("eth0", netip.MustParsePrefix("192.0.2.1/32")))
		holder.serve("holder", 9445)
		cfg := Config{Redirects: []Redirect{api4}}
		holder.apply(cfg)
		vip := netip.AddrPortFrom(api4.VIP, api4.From)
		outer, inner := outside.dial(vip), holder.dial(vip)

		holder.run("nft", "flush", "chain", "inet", "lastbeat", "prerouting")
		holder.apply(cfg) // makes the table anew
		outer.echo(t)
		inner.echo(t)
		require.Equal(t, "holder sees 192.0.2.11", outside.dial(vip).greeting)
		require.EqualValues(t, 2, holder.counters()[0].External.Connections)

		holder.apply(Config{})
		outer.echo(t)
		inner.echo(t)

		require.NoError(t, holder.Do(func() error { return holder.tab.Remove(t.Context()) }))
		require.Empty(t, holder.run("nft", "list", "ruleset"))
	})
}

// Datagrams make the counts exact: one connection, so many packets and bytes.
func TestKernelCountsConnectionsAndPackets(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		outside, holder := hosts[0], hosts[1]
		require.NoError(t, holder.AddAddr("eth0", netip.PrefixFrom(dns4.VIP, 32)))
		var server net.PacketConn
		require.NoError(t, holder.Do(func() (err error) {
			server, err = net.ListenPacket("udp", fmt.Sprintf(":%d", dns4.To))
			return err
		}))
		defer server.Close()
		holder.apply(Config{Redirects: []Redirect{dns4}})
		for _, from := range []host{outside, holder, outside} {
			var c net.Conn
			require.NoError(t, from.Do(func() (err error) {
				c, err = net.Dial("udp", netip.AddrPortFrom(dns4.VIP, dns4.From).String())
				return err
			}))
			defer c.Close()
			for range 5 {
				_, err := io.WriteString(c, "hello")
				require.NoError(t, err)
				_, _, err = server.ReadFrom(make([]byte, 16))
				require.NoError(t, err)
			}
		}
		const bytes = 20 + 8 + 5
		require.Equal(t, []Counters{{
			Redirect: dns4,
			External: Traffic{Connections: 2, Packets: 10, Bytes: 10 * bytes},
			Local:    Traffic{Connections: 1, Packets: 5, Bytes: 5 * bytes},
		}}, holder.counters())
	})
}

// localUDP gives the process's own namespace a VIP and a server for datagrams.
func localUDP(t *testing.T) (Redirect, net.PacketConn) {
	t.Helper()
	ns, err := netns.Current()
	require.NoError(t, err)
	defer ns.Close()
	require.NoError(t, ns.AddAddr("lo", netip.PrefixFrom(dns4.VIP, 32)))
	server, err := net.ListenPacket("udp", ":0")
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	r := dns4
	r.To = uint16(server.LocalAddr().(*net.UDPAddr).Port)
	return r, server
}

// sendFrom sends one datagram from a port, and sees it arrive.
func sendFrom(t *testing.T, port int, server net.PacketConn, r Redirect) {
	t.Helper()
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(r.VIP, r.From))
	c, err := net.DialUDP("udp", &net.UDPAddr{Port: port}, to)
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "hello")
	require.NoError(t, err)
	_, _, err = server.ReadFrom(make([]byte, 16))
	require.NoError(t, err)
}
