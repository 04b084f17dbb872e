package health

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lastbeat/lastbeat/internal/cksum"
	"github.com/lastbeat/lastbeat/internal/netns/nstest"
)

func ping(t *testing.T, address, source string) *ICMP {
	c := ICMPConfig{Address: netip.MustParseAddr(address)}
	if source != "" {
		c.Source = netip.MustParseAddr(source)
	}
	p, err := NewICMP(c)
	require.NoError(t, err)
	return p
}

// allowPing opens unprivileged echo sockets to group 0. A fresh namespace has them
// open to nobody, which can't be written back where group 1 does not exist, as in a
// user namespace.
func allowPing(t *testing.T) {
	require.NoError(t, os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 0"), 0o644))
}

// eachSocket runs f with raw and then with unprivileged sockets.
func eachSocket(t *testing.T, f func(t *testing.T)) {
	for _, name := range []string{"raw", "unprivileged"} {
		t.Run(name, func(t *testing.T) {
			if name == "unprivileged" {
				allowPing(t)
			}
			conn, err := openEcho(netip.MustParseAddr("127.0.0.1"), netip.Addr{})
			require.NoError(t, err)
			require.NoError(t, conn.Close())
			require.Equal(t, name == "raw", conn.raw)
			f(t)
		})
	}
}

func TestKernelICMP(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		lan(t)
		eachSocket(t, func(t *testing.T) {
			for _, tc := range []struct {
				name, address, source string
				want                  Outcome
				as                    string // part of the error
			}{
				{"alive", "192.0.2.2", "", Good, ""},
				{"alive, IPv6", "2001:db8::2", "", Good, ""},
				{"ourselves", "192.0.2.1", "", Good, ""},
				{"loopback", "::1", "", Good, ""},
				{"4in6", "::ffff:192.0.2.2", "", Good, ""},
				{"source", "192.0.2.2", "192.0.2.1", Good, ""},
				{"source, IPv6", "2001:db8::2", "2001:db8::1", Good, ""},
				{"source that is not ours", "192.0.2.2", "192.0.2.9", LocalError, "source 192.0.2.9: bind: "},
				{"dead neighbour", "192.0.2.3", "", Bad, "unreachable: read icmp: no route to host"},
				{"dead neighbour, IPv6", "2001:db8::3", "", Bad, "unreachable: read icmp: no route to host"},
				{"no route from here", "198.51.100.1", "", LocalError, "network is unreachable"},
				{"no such zone", "fe80::1%nowhere", "", LocalError, "zone nowhere"},
			} {
				t.Run(tc.name, func(t *testing.T) {
					err := ping(t, tc.address, tc.source).Probe(t.Context())
					require.Equal(t, tc.want, Classify(err), "%v", err)
					if err != nil {
						require.ErrorContains(t, err, tc.as)
					}
				})
			}
			t.Run("no time left to send anything", func(t *testing.T) {
				require.Equal(t, LocalError, Classify(ping(t, "127.0.0.1", "").Probe(expired())))
			})
		})
	})
}

// Many probes at once, of several hosts and of one, take only their own replies.
func TestKernelICMPSeveralAtOnce(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		there := lan(t)
		for i := 10; i < 20; i++ {
			require.NoError(t, there.AddAddr("there", netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/24", i))))
		}
		eachSocket(t, func(t *testing.T) {
			var all sync.WaitGroup
			var wrong [10][6]error
			for i := range wrong {
				p, dead := ping(t, fmt.Sprint("192.0.2.", i+10), ""), ping(t, fmt.Sprint("192.0.2.", i+110), "")
				for n := range 5 {
					all.Go(func() { wrong[i][n] = p.Probe(t.Context()) })
				}
				all.Go(func() {
					if err := dead.Probe(t.Context()); Classify(err) != Bad {
						wrong[i][5] = fmt.Errorf("dead, but %w", err)
					}
				})
			}
			all.Wait()
			require.Equal(t, [10][6]error{}, wrong)
		})
	})
}

// Replies that are not to this request do not count, and silence ends with ctx.
func TestKernelICMPWrongReplies(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		there := lan(t)
		// The other host answers nothing of itself; a responder of ours does.
		var responder *os.File
		require.NoError(t, there.Do(func() error {
			if err := os.WriteFile("/proc/sys/net/ipv4/icmp_echo_ignore_all", []byte("1"), 0o644); err != nil {
				return err
			}
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_ICMP)
			if err != nil {
				return err
			}
			responder = os.NewFile(uintptr(fd), "responder")
			return unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}})
		}))
		var all sync.WaitGroup
		defer all.Wait()
		defer responder.Close()
		asked := make(chan []byte)
		all.Go(func() {
			for {
				b := make([]byte, 1500)
				n, err := responder.Read(b)
				if err != nil {
					return
				}
				if b := skipIPv4(b[:n]); len(b) > echoHeader && b[0] == echoAsk4 {
					asked <- b
				}
			}
		})
		reply := func(b []byte, change func(b []byte)) {
			b = append([]byte{}, b...)
			b[0] = echoReply4
			change(b)
			b[2], b[3] = 0, 0
			sum := cksum.Finish(cksum.Sum(0, b))
			b[2], b[3] = byte(sum>>8), byte(sum)
			_, err := responder.Write(b)
			require.NoError(t, err)
		}
		wrong := func(b []byte) {
			reply(b, func(b []byte) { b[4]++ }) // identifier
			reply(b, func(b []byte) { b[7]++ }) // sequence number
			reply(b, func(b []byte) { b[len(b)-1]++ })
			reply(b[:len(b)-1], func([]byte) {})
		}
		eachSocket(t, func(t *testing.T) {
			p := ping(t, "192.0.2.2", "")
			t.Run("then the right one", func(t *testing.T) {
				ended := make(chan error, 1)
				go func() { ended <- p.Probe(t.Context()) }()
				b := <-asked
				wrong(b)
				require.Empty(t, ended)
				reply(b, func([]byte) {})
				require.NoError(t, <-ended)
			})
			t.Run("then none", func(t *testing.T) {
				ctx := timeout{t.Context(), make(chan struct{})}
				ended := make(chan error, 1)
				go func() { ended <- p.Probe(ctx) }()
				wrong(<-asked)
				close(ctx.done)
				err := <-ended
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, Bad, Classify(err), "%v", err)
			})
		})
	})
}

// Without a permission the probe says how to get one, and accuses nobody.
func TestKernelICMPRefused(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		// Capabilities are a thread's. This one is never unlocked: it ends with us.
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		require.NoError(t, unix.Capget(&header, &data[0]))
		data[0].Effective &^= 1 << unix.CAP_NET_RAW
		require.NoError(t, unix.Capset(&header, &data[0]))
		for _, address := range []string{"127.0.0.1", "::1"} {
			err := ping(t, address, "").Probe(t.Context())
			require.Equal(t, LocalError, Classify(err))
			require.ErrorIs(t, err, unix.EPERM)
			require.ErrorContains(t, err, "health: icmp "+address+": could not probe: no socket for echo requests: "+
				"operation not permitted: give this process CAP_NET_RAW, or a group of it a place in the sysctl net.ipv4.ping_group_range")
		}
	})
}

func TestICMPConfigFaults(t *testing.T) {
	for _, tc := range []struct{ address, source, want string }{
		{"", "", "health: Address is invalid IP: want the address of one host"},
		{"0.0.0.0", "", "health: Address is 0.0.0.0: want the address of one host"},
		{"ff02::1%eth0", "", "health: Address is ff02::1%eth0: want the address of one host"},
		{"fe80::1", "", "health: Address is fe80::1: want a zone, such as %eth0, as it is link-local"},
		{"192.0.2.1", "2001:db8::1", "health: Source is 2001:db8::1: want an address of the same family as Address"},
	} {
		var c ICMPConfig
		if tc.address != "" {
			c.Address = netip.MustParseAddr(tc.address)
		}
		if tc.source != "" {
			c.Source = netip.MustParseAddr(tc.source)
		}
		_, err := NewICMP(c)
		require.ErrorIs(t, err, ErrConfig)
		require.EqualError(t, err, tc.want)
	}
}
