package health

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// listenUDP returns a UDP socket on a free port of loopback.
func listenUDP(t *testing.T) *net.UDPConn {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// serveUDP answers each datagram with what answer makes of it.
func serveUDP(t *testing.T, answer func([]byte) []byte) string {
	conn := listenUDP(t)
	go func() {
		b := make([]byte, maxDatagram)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			conn.WriteToUDPAddrPort(answer(b[:n]), from)
		}
	}()
	return conn.LocalAddr().String()
}

// closedUDP returns an address at which nobody is: the kernel's answer is an error.
func closedUDP(t *testing.T) string {
	conn := listenUDP(t)
	defer conn.Close()
	return conn.LocalAddr().String()
}

func TestUDP(t *testing.T) {
	echo := serveUDP(t, func(b []byte) []byte { return append([]byte("echo "), b...) })
	for _, tc := range []struct {
		name   string
		config UDPConfig
		want   Outcome
		as     string // part of the error
	}{
		{"any answer", UDPConfig{Address: echo}, Good, ""},
		{"expected answer", UDPConfig{Address: echo, Send: []byte("ping"), Expect: []byte("echo pi")}, Good, ""},
		{"wrong answer", UDPConfig{Address: echo, Send: []byte("ping"), Expect: []byte("pong")}, Bad, `answer "echo ping": want "pong" at its start`},
		{"wrong answer where silence is good", UDPConfig{Address: echo, SilenceGood: true, Expect: []byte("pong")}, Bad, `answer "echo "`},
		{"short answer", UDPConfig{Address: echo, Expect: []byte("echo and more")}, Bad, `answer "echo "`},
		{"source", UDPConfig{Address: echo, Source: netip.MustParseAddr("127.0.0.1")}, Good, ""},
		{"source that is not ours", UDPConfig{Address: echo, Source: netip.MustParseAddr("192.0.2.1")}, LocalError, "bind"},
		{"source of the other family", UDPConfig{Address: echo, Source: netip.MustParseAddr("::1")}, LocalError, ""},
		{"longest", UDPConfig{Address: echo, Send: make([]byte, maxDatagram), Expect: []byte("echo")}, Good, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := NewUDP(tc.config)
			require.NoError(t, err)
			err = p.Probe(t.Context())
			require.Equal(t, tc.want, Classify(err), "%v", err)
			if err != nil {
				require.ErrorContains(t, err, tc.as)
				require.True(t, strings.HasPrefix(err.Error(), "health: "), err.Error())
			}
		})
	}
}

// What silence means, by policy and by what ended it.
func TestUDPSilence(t *testing.T) {
	for _, tc := range []struct {
		name        string
		silenceGood bool
		cancel      bool
		want        Outcome
	}{
		{"bad by default", false, false, Bad},
		{"good by policy", true, false, Good},
		{"cancelled", false, true, LocalError},
		{"cancelled where silence is good", true, true, LocalError},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := listenUDP(t)
			p, err := NewUDP(UDPConfig{Address: server.LocalAddr().String(), SilenceGood: tc.silenceGood})
			require.NoError(t, err)
			cancelled, cancel := context.WithCancel(t.Context())
			late := timeout{t.Context(), make(chan struct{})}
			go func() { // takes the datagram, and time runs out
				server.ReadFromUDPAddrPort(make([]byte, 1))
				cancel()
				close(late.done)
			}()
			if tc.cancel {
				err = p.Probe(cancelled)
			} else {
				err = p.Probe(late)
			}
			require.Equal(t, tc.want, Classify(err), "%v", err)
			require.Equal(t, LocalError, Classify(p.Probe(expired())), "nothing sent is no silence")
		})
	}
}

func TestUDPConfigFaults(t *testing.T) {
	_, err := NewUDP(UDPConfig{Address: "x", Send: make([]byte, 1401), Expect: make([]byte, 1402)})
	require.ErrorIs(t, err, ErrConfig)
	require.ErrorContains(t, err, `health: Address is "x": want host:port`)
	require.ErrorContains(t, err, "health: Send is 1401 bytes: want at most 1400")
	require.ErrorContains(t, err, "health: Expect is 1402 bytes: want at most 1400")

	send := []byte("a")
	p, err := NewUDP(UDPConfig{Address: "192.0.2.1:53", Send: send})
	require.NoError(t, err)
	send[0] = 'b'
	require.Equal(t, "a", string(p.config.Send), "the caller may change what it passed")
}
