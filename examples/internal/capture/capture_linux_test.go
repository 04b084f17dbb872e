package capture

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lastbeat/lastbeat/internal/netns"
	"github.com/lastbeat/lastbeat/internal/netns/nstest"
)

// segment makes a bridge br0 with two hosts, 192.0.2.1 and .2.
func segment(t *testing.T) (sw, a, b *netns.NS) {
	t.Helper()
	var ns [3]*netns.NS
	for i := range ns {
		var err error
		ns[i], err = netns.New()
		require.NoError(t, err)
		t.Cleanup(func() { ns[i].Close() })
	}
	require.NoError(t, ns[0].Bridge("br0"))
	for i := 1; i < len(ns); i++ {
		port := "p" + strconv.Itoa(i)
		require.NoError(t, netns.Veth(ns[0], port, ns[i], "eth0"))
		require.NoError(t, ns[0].Enslave(port, "br0"))
		require.NoError(t, ns[i].AddAddr("eth0", netip.MustParsePrefix("192.0.2."+strconv.Itoa(i)+"/24")))
	}
	return ns[0], ns[1], ns[2]
}

func open(t *testing.T, ns *netns.NS, c Config) (capture *Capture) {
	t.Helper()
	c.Interface = "br0"
	require.NoError(t, ns.Do(func() (err error) {
		capture, err = Open(c)
		return err
	}))
	awaitStamps(t, capture)
	return capture
}

// awaitStamps returns when the kernel stamps what it queues. It begins with it
// a moment after the first socket asked; until then a frame counts as received
// when it is read.
func awaitStamps(t *testing.T, c *Capture) {
	t.Helper()
	packet := c.config.Packet
	defer func() { c.config.Packet, c.stats = packet, Stats{} }()
	for stamped := false; !stamped; {
		require.NoError(t, c.Mark("awaiting stamps"))
		sent := time.Now()
		c.config.Packet = func(p Packet) { stamped = p.At.Before(sent) }
		r := reader{capture: c, frame: make([]byte, snapLen), oob: make([]byte, 128), drained: sent}
		require.NoError(t, control(c.in, func(fd int) error { r.drain(fd); return r.err }))
	}
}

// tcpdump reads the files that we write.
func TestPcapForTcpdump(t *testing.T) {
	var file, complaints bytes.Buffer
	w := newPcapWriter(&file)
	for _, f := range frames {
		b := unhex(f.frame)
		w.write(b, len(b), at)
	}
	cmd := exec.Command(nstest.Peer(t, "tcpdump"), "-nqr", "-", "--time-stamp-precision=nano")
	cmd.Stdin, cmd.Stderr, cmd.Env = &file, &complaints, []string{"TZ=UTC"}
	out, err := cmd.Output()
	require.NoError(t, err, complaints.String())
	require.Contains(t, string(out), "12:00:00.123456789 ARP, Reply 192.168.37.201 is-at")
	require.Contains(t, string(out), "192.168.37.23 > 224.0.0.18: VRRPv3")
}

// Marks and the packets of a connection between two other hosts appear in the
// order in which they happened, once each, with instants of one clock.
func TestKernelMarksAmongPackets(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		defer goleak.VerifyNone(t)
		sw, a, b := segment(t)
		var got []Packet
		var file bytes.Buffer
		c := open(t, sw, Config{Packet: func(p Packet) { got = append(got, p) }})
		c.pcap = newPcapWriter(&file)

		before := time.Now()
		require.NoError(t, c.Mark("first"))
		require.NoError(t, a.Do(func() error {
			conn, err := net.Dial("tcp4", "192.0.2.2:9")
			if err == nil {
				conn.Close()
			}
			require.ErrorContains(t, err, "refused")
			return nil
		}))
		require.NoError(t, c.Mark("last"))
		after := time.Now()

		ctx, cancel := context.WithCancel(t.Context())
		cancel() // all of it is queued: Run hands it out and ends
		require.NoError(t, c.in.SetReadDeadline(time.Unix(1, 0)), "as if ctx had ended before Run read anything")
		require.NoError(t, c.Run(ctx))

		var seen []string
		macs := map[MAC]string{}
		for i, p := range got {
			require.WithinRange(t, p.At, before, after)
			if i > 0 {
				require.False(t, p.At.Before(got[i-1].At), "packet %d", i)
			}
			if p.Kind == TCP {
				seen = append(seen, p.Flags.String())
				macs[p.SrcMAC] = p.Src.String()
			} else {
				seen = append(seen, p.Kind.String()+p.Text)
			}
		}
		require.Equal(t, "markfirst arp arp SYN RST|ACK marklast", strings.Join(seen, " "))
		for _, host := range []struct {
			ns   *netns.NS
			addr string
		}{{a, "192.0.2.1"}, {b, "192.0.2.2"}} {
			hw, err := host.ns.MAC("eth0")
			require.NoError(t, err)
			require.Equal(t, host.addr, macs[MAC(hw)], "the source tells the node")
		}
		require.Equal(t, Stats{Frames: 6, Packets: 6}, c.Stats())

		size := 24 // the file holds the same frames
		for range got {
			require.Greater(t, file.Len(), size+16)
			size += 16 + int(binary.LittleEndian.Uint32(file.Bytes()[size+8:]))
		}
		require.Equal(t, file.Len(), size)
	})
}

// A capture on a host of the segment shows the marks too, and none twice.
func TestKernelMarksReachHosts(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		sw, a, _ := segment(t)
		c := open(t, sw, Config{Packet: func(Packet) {}})
		defer c.Close()
		var heard []string
		var host *Capture
		require.NoError(t, a.Do(func() (err error) {
			host, err = Open(Config{Interface: "eth0", Packet: func(p Packet) { heard = append(heard, p.Text) }})
			return err
		}))
		require.NoError(t, c.Mark("from the switch"))
		require.NoError(t, host.Mark("own"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, host.Run(ctx))
		require.Equal(t, []string{"from the switch", "own"}, heard)
	})
}

// A capture whose buffer was full says how much it lost, also afterwards.
func TestKernelCountsLost(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		sw, _, _ := segment(t)
		n := 0
		c := open(t, sw, Config{Packet: func(Packet) { n++ }, Buffer: 4096})
		const sent = 200
		for range sent {
			require.NoError(t, c.Mark(strings.Repeat("x", MaxMark)))
		}
		require.NotZero(t, c.Stats().Lost)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, c.Run(ctx))
		stats := c.Stats()
		require.EqualValues(t, n, stats.Packets)
		require.EqualValues(t, sent, stats.Packets+stats.Lost)
	})
}

// A running capture is woken by packets, outlives its interface's absence, and
// ends with its context.
func TestKernelRun(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		defer goleak.VerifyNone(t)
		sw, _, _ := segment(t)
		marks := make(chan string, 10)
		c := open(t, sw, Config{Packet: func(p Packet) {
			if p.Kind == Mark {
				marks <- p.Text
			}
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		require.NoError(t, c.Mark("one"))
		require.Equal(t, "one", <-marks)
		require.NoError(t, sw.SetDown("br0"))
		require.Error(t, c.Mark("down"))
		require.NoError(t, sw.SetUp("br0"))
		require.NoError(t, c.Mark("two"))
		require.Equal(t, "two", <-marks)
		cancel()
		require.NoError(t, <-done)
		require.ErrorContains(t, c.Mark("closed"), "closed")
	})
}

func TestKernelOpenRefuses(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		_, err := Open(Config{Interface: "none", Packet: func(Packet) {}})
		require.ErrorContains(t, err, `interface "none"`)
		_, err = Open(Config{Interface: "lo"})
		require.ErrorContains(t, err, "Packet is nil")
		_, err = Open(Config{Interface: "lo", Packet: func(Packet) {}, Buffer: -1})
		require.ErrorContains(t, err, "Buffer -1")

		c, err := Open(Config{Interface: "lo", Packet: func(Packet) {}})
		require.NoError(t, err)
		for _, text := range []string{"", "zero at the end\x00", strings.Repeat("x", MaxMark+1)} {
			require.ErrorContains(t, c.Mark(text), "use 1 to 1400")
		}
		require.NoError(t, c.Close())
	})
}
