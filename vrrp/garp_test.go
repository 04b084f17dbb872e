package vrrp

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Frames captured from keepalived 2.2.7 and arping.
const (
	garpRequestFrame = "ffffffffffff1a9a692d67b90806 0001080006040001 1a9a692d67b9 c0a825c9 ffffffffffff c0a825c9"
	garpReplyFrame   = "ffffffffffff9e99aed77b470806 0001080006040002 9e99aed77b47 c0a825cb 9e99aed77b47 c0a825cb"
)

var garpGolden = []struct {
	name  string
	frame string
	want  GratuitousARP
}{
	{"request form", garpRequestFrame, GratuitousARP{
		MAC:  [6]byte{0x1a, 0x9a, 0x69, 0x2d, 0x67, 0xb9},
		Addr: netip.MustParseAddr("192.168.37.201"),
	}},
	{"reply form", garpReplyFrame, GratuitousARP{
		MAC:   [6]byte{0x9e, 0x99, 0xae, 0xd7, 0x7b, 0x47},
		Addr:  netip.MustParseAddr("192.168.37.203"),
		Reply: true,
	}},
}

func garpBytes(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	require.NoError(t, err)
	return b
}

func TestGratuitousARPGolden(t *testing.T) {
	for _, tt := range garpGolden {
		t.Run(tt.name, func(t *testing.T) {
			frame := garpBytes(t, tt.frame)
			got, err := tt.want.AppendBinary([]byte{1, 2})
			require.NoError(t, err)
			require.Equal(t, append([]byte{1, 2}, frame...), got)

			parsed, err := ParseGratuitousARP(frame)
			require.NoError(t, err)
			require.Equal(t, tt.want, parsed)

			padded, err := ParseGratuitousARP(append(frame, make([]byte, 18)...))
			require.NoError(t, err)
			require.Equal(t, tt.want, padded)

			for n := range frame {
				_, err := ParseGratuitousARP(frame[:n])
				require.ErrorIs(t, err, ErrNotGratuitousARP, "cut to %d bytes", n)
			}
		})
	}
}

func TestGratuitousARPNotBuilt(t *testing.T) {
	mac := [6]byte{2, 0, 0, 0, 0, 1}
	v4 := netip.MustParseAddr("192.0.2.1")
	tests := []struct {
		name string
		g    GratuitousARP
		want string
	}{
		{"no address", GratuitousARP{MAC: mac}, "needs an IPv4 address"},
		{"IPv6", GratuitousARP{MAC: mac, Addr: netip.MustParseAddr("2001:db8::1")}, "needs an IPv4 address"},
		{"IPv4 in IPv6", GratuitousARP{MAC: mac, Addr: netip.MustParseAddr("::ffff:192.0.2.1")}, "needs an IPv4 address"},
		{"no hardware address", GratuitousARP{Addr: v4}, "no station's hardware address"},
		{"broadcast hardware address", GratuitousARP{MAC: garpBroadcast, Addr: v4}, "no station's hardware address"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dst := []byte{7}
			got, err := tt.g.AppendBinary(dst)
			require.ErrorContains(t, err, tt.want)
			require.Equal(t, []byte{7}, got)
		})
	}
}

func TestParseGratuitousARPRefuses(t *testing.T) {
	tests := []struct {
		name string
		off  int
		b    byte
		want string
	}{
		{"another EtherType", 13, 0x00, "EtherType"},
		{"another hardware type", 15, 6, "not for Ethernet and IPv4"},
		{"another protocol type", 16, 0x86, "not for Ethernet and IPv4"},
		{"another hardware length", 18, 8, "not for Ethernet and IPv4"},
		{"another protocol length", 19, 16, "not for Ethernet and IPv4"},
		{"another operation", 21, 3, "operation 3"},
		{"an ordinary request", 41, 1, "sender 192.168.37.201, target 192.168.37.1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			frame := garpBytes(t, garpRequestFrame)
			frame[tt.off] = tt.b
			_, err := ParseGratuitousARP(frame)
			require.ErrorIs(t, err, ErrNotGratuitousARP)
			require.ErrorContains(t, err, tt.want)
		})
	}
	probe := garpBytes(t, garpRequestFrame)
	clear(probe[28:32])
	clear(probe[38:42])
	_, err := ParseGratuitousARP(probe)
	require.ErrorIs(t, err, ErrNotGratuitousARP, "0.0.0.0 is nobody's address")
}

func FuzzParseGratuitousARP(f *testing.F) {
	for _, tt := range garpGolden {
		f.Add(garpBytes(f, tt.frame))
	}
	f.Add(make([]byte, 42))
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := ParseGratuitousARP(b)
		if err != nil {
			require.ErrorIs(t, err, ErrNotGratuitousARP)
			return
		}
		built, err := g.AppendBinary(nil)
		if err != nil {
			return // a group address as sender can be seen, but not built
		}
		again, err := ParseGratuitousARP(built)
		require.NoError(t, err)
		require.Equal(t, g, again)
	})
}
