package vrrp_test

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/vrrp"
)

// frame is a whole Ethernet frame as captured from keepalived 2.2.7 or FRR 8.4.4.
type frame struct {
	name string
	hex  string
	want vrrp.Advert
	src  string
	dst  string
	// plain and legacy are the other checksum forms of the same version 3 packet,
	// computed independently; 0 where they were not.
	plain, legacy uint16
}

var (
	vip    = netip.MustParseAddr("192.168.37.201")
	frames = []frame{
		{
			name: "keepalived v2 PASS unicast",
			hex:  "9a19f71cbd611a9a692d67b9080045c00028000c0000ff70ef1dc0a82516c0a82515 21ce4401 0101 7f1b c0a825c9 686a3468355f6170",
			src:  "192.168.37.22", dst: "192.168.37.21",
			want: vrrp.Advert{Version: 2, VRID: 206, Priority: 68, Interval: time.Second, Checksum: vrrp.ChecksumPlain,
				AuthType: vrrp.AuthPass, Auth: [8]byte([]byte("hj4h5_ap")), Addrs: []netip.Addr{vip}},
		},
		{
			name: "keepalived v2 PASS unicast, second group",
			hex:  "9a19f71cbd61723906f95bb6080045c00028000b0000ff70ef1dc0a82517c0a82515 212d5001 01016bbd c0a825ca 686a3468355f696e",
			src:  "192.168.37.23", dst: "192.168.37.21",
			want: vrrp.Advert{Version: 2, VRID: 45, Priority: 80, Interval: time.Second, Checksum: vrrp.ChecksumPlain,
				AuthType: vrrp.AuthPass, Auth: [8]byte([]byte("hj4h5_in")),
				Addrs: []netip.Addr{netip.MustParseAddr("192.168.37.202")}},
		},
		{
			name: "keepalived v2 PASS, priority 0 on SIGTERM",
			hex:  "9a19f71cbd61723906f95bb6080045c0002800370000ff70eef1c0a82517c0a82515 21ce0001 0101c31b c0a825c9 686a3468355f6170",
			src:  "192.168.37.23", dst: "192.168.37.21",
			want: vrrp.Advert{Version: 2, VRID: 206, Priority: 0, Interval: time.Second, Checksum: vrrp.ChecksumPlain,
				AuthType: vrrp.AuthPass, Auth: [8]byte([]byte("hj4h5_ap")), Addrs: []netip.Addr{vip}},
		},
		{
			name: "keepalived v2 without authentication, multicast",
			hex:  "01005e0000121a9a692d67b9080045c0002800110000ff70f4c3c0a82516e0000012 21ce5a01 00019dbd c0a825c9 0000000000000000",
			src:  "192.168.37.22", dst: "224.0.0.18",
			want: vrrp.Advert{Version: 2, VRID: 206, Priority: 90, Interval: time.Second, Checksum: vrrp.ChecksumPlain, Addrs: []netip.Addr{vip}},
		},
		{
			name: "keepalived v3 multicast",
			hex:  "01005e000012723906f95bb6080045c0002000010000ff70f4dac0a82517e0000012 31ce6401 0064bd0b c0a825c9",
			src:  "192.168.37.23", dst: "224.0.0.18",
			want: vrrp.Advert{Version: 3, VRID: 206, Priority: 100, Interval: time.Second,
				Addrs: []netip.Addr{vip}},
			plain: 0x835a,
		},
		{
			name: "keepalived v3 unicast",
			hex:  "9a19f71cbd611a9a692d67b9080045c0002000120000ff70ef1fc0a82516c0a82515 31ce5a01 0064c161 c0a825c9",
			src:  "192.168.37.22", dst: "192.168.37.21",
			want: vrrp.Advert{Version: 3, VRID: 206, Priority: 90, Interval: time.Second,
				Addrs: []netip.Addr{vip}},
			plain: 0x8d5a, legacy: 0xc70c,
		},
		{
			name: "FRR v3 multicast, virtual MAC",
			hex:  "01005e00001200005e0001cf080045c0002018ae4000ff709b43c0a82601e0000012 31cf7801 0064a720 c0a826c9",
			src:  "192.168.38.1", dst: "224.0.0.18",
			want: vrrp.Advert{Version: 3, VRID: 207, Priority: 120, Interval: time.Second,
				Addrs: []netip.Addr{netip.MustParseAddr("192.168.38.201")}},
			plain: 0x6e59,
		},
	}
)

// The VRRP message of keepalived's 10 ms unicast adverts; its frame was not kept.
const fastAdvert = "31ce6401 0001b7c3 c0a825c9"

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	require.NoError(t, err)
	return b
}

// packet cuts the Ethernet header off.
func (f frame) packet(t testing.TB) []byte { return unhex(t, f.hex)[14:] }

func TestGoldenFrames(t *testing.T) {
	for _, f := range frames {
		t.Run(f.name, func(t *testing.T) {
			raw := f.packet(t)
			p, err := vrrp.ParsePacket(raw, nil)
			require.NoError(t, err)
			require.Equal(t, f.want, p.Advert)
			require.Equal(t, f.src, p.Src.String())
			require.Equal(t, f.dst, p.Dst.String())
			require.EqualValues(t, 255, p.TTL)

			b, err := p.Advert.AppendBinary(nil, p.Src, p.Dst)
			require.NoError(t, err)
			require.Equal(t, raw[20:], b, "encoded again")
		})
	}
	t.Run("keepalived v3 unicast, 10 ms", func(t *testing.T) {
		raw := unhex(t, fastAdvert)
		src, dst := netip.MustParseAddr("192.168.37.23"), netip.MustParseAddr("192.168.37.21")
		a, err := vrrp.ParseAdvert(raw, src, dst, nil)
		require.NoError(t, err)
		require.Equal(t, vrrp.Advert{Version: 3, VRID: 206, Priority: 100, Interval: 10 * time.Millisecond,
			Addrs: []netip.Addr{vip}}, a)
		b, err := a.AppendBinary(nil, src, dst)
		require.NoError(t, err)
		require.Equal(t, raw, b)
	})
}

// https://github.com/acassen/keepalived/issues/642: every implementation has its
// own idea of the version 3 checksum; all are accepted and told apart.
func TestChecksumForms(t *testing.T) {
	for _, f := range frames {
		for form, sum := range map[vrrp.ChecksumForm]uint16{vrrp.ChecksumPlain: f.plain, vrrp.ChecksumLegacy: f.legacy} {
			if sum == 0 {
				continue
			}
			src, dst := netip.MustParseAddr(f.src), netip.MustParseAddr(f.dst)
			a := f.want
			a.Checksum = form
			b, err := a.AppendBinary(nil, src, dst)
			require.NoError(t, err)
			require.Equal(t, []byte{byte(sum >> 8), byte(sum)}, b[6:8], "%s, form %d", f.name, form)
			got, err := vrrp.ParseAdvert(b, src, dst, nil)
			require.NoError(t, err)
			require.Equal(t, a, got)
		}
	}
}

// Packets that the package knows and does not implement are refused by name.
func TestRefusedByName(t *testing.T) {
	tests := []struct {
		name string
		hex  string
		want vrrp.Discard
	}{
		{"keepalived v2 AH", "01005e0000129a19f71cbd61080045c0004000010000ff33f4f9c0a82515e0000012 70040000 c0a82515 00000001 12dd180663b24035323b82fc 21ce5001 0201a5bd c0a825c9 0000000000000000", vrrp.DiscardAH},
		{"keepalived v3 IPv6", "333300000012723906f95bb686dd 6c01fde6 0028 70 ff fe80000000000000703906fffef95bb6 ff020000000000000000000000000012 31ce6402 006499f4 fe800000000000000000000000000206 fd000037000000000000000000000201", vrrp.DiscardNotIPv4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := vrrp.ParsePacket(unhex(t, tt.hex)[14:], nil)
			require.ErrorIs(t, err, tt.want)
			require.Contains(t, err.Error(), "not implemented")
		})
	}
	t.Run("the advert inside AH", func(t *testing.T) {
		ah := unhex(t, "21ce5001 0201a5bd c0a825c9 0000000000000000")
		_, err := vrrp.ParseAdvert(ah, netip.Addr{}, netip.Addr{}, nil)
		require.ErrorIs(t, err, vrrp.DiscardAH)
	})
}

func TestEveryTruncation(t *testing.T) {
	for _, f := range frames {
		raw := f.packet(t)
		for n := range len(raw) {
			_, err := vrrp.ParsePacket(raw[:n:n], nil)
			require.Error(t, err, "%s cut to %d bytes", f.name, n)
			var d vrrp.Discard
			require.ErrorAs(t, err, &d)
		}
		msg := raw[20:]
		for n := range len(msg) {
			_, err := vrrp.ParseAdvert(msg[:n:n], netip.MustParseAddr(f.src), netip.MustParseAddr(f.dst), nil)
			require.ErrorIs(t, err, vrrp.DiscardTruncated, "%s cut to %d bytes", f.name, n)
		}
		// Ethernet pads short frames; the header's total length says where to stop.
		p, err := vrrp.ParsePacket(append(raw, make([]byte, 18)...), nil)
		require.NoError(t, err)
		require.Equal(t, f.want, p.Advert)
	}
}

func TestParseFaults(t *testing.T) {
	v2, v3 := frames[0], frames[5]
	tests := []struct {
		name  string
		from  frame
		edit  func(b []byte) []byte
		want  vrrp.Discard
		fixed bool // compute the checksum anew, so that it is not the fault
	}{
		{"checksum", v2, func(b []byte) []byte { b[26]++; return b }, vrrp.DiscardChecksum, false},
		{"v3 checksum", v3, func(b []byte) []byte { b[26]++; return b }, vrrp.DiscardChecksum, false},
		{"a flipped address bit", v3, func(b []byte) []byte { b[28] ^= 1; return b }, vrrp.DiscardChecksum, false},
		{"version 1", v2, func(b []byte) []byte { b[20] = 0x11; return b }, vrrp.DiscardVersion, false},
		{"version 4", v2, func(b []byte) []byte { b[20] = 0x41; return b }, vrrp.DiscardVersion, false},
		{"type 2", v2, func(b []byte) []byte { b[20] = 0x22; return b }, vrrp.DiscardType, false},
		{"VRID 0", v2, func(b []byte) []byte { b[21] = 0; return b }, vrrp.DiscardVRID, false},
		{"no address", v3, func(b []byte) []byte { b[23] = 0; return b }, vrrp.DiscardNoAddress, false},
		{"more addresses than bytes", v3, func(b []byte) []byte { b[23] = 2; return b }, vrrp.DiscardTruncated, false},
		{"bytes behind the message", v3, func(b []byte) []byte { b[3] += 4; return append(b, 0, 0, 0, 0) }, vrrp.DiscardLength, false},
		{"interval 0, v2", v2, func(b []byte) []byte { b[25] = 0; return b }, vrrp.DiscardInterval, true},
		{"interval 0, v3", v3, func(b []byte) []byte { b[24], b[25] = 0xf0, 0; return b }, vrrp.DiscardInterval, true},
		{"authentication type 3", v2, func(b []byte) []byte { b[24] = 3; return b }, vrrp.DiscardAuthType, true},
		{"first fragment", v2, func(b []byte) []byte { b[6] |= 0x20; return b }, vrrp.DiscardFragment, false},
		{"last fragment", v2, func(b []byte) []byte { b[7] = 1; return b }, vrrp.DiscardFragment, false},
		{"UDP", v2, func(b []byte) []byte { b[9] = 17; return b }, vrrp.DiscardProtocol, false},
		{"header length 16", v2, func(b []byte) []byte { b[0] = 0x44; return b }, vrrp.DiscardTruncated, false},
		{"total length beyond the packet", v2, func(b []byte) []byte { b[3] = 41; return b }, vrrp.DiscardTruncated, false},
		{"total length inside the header", v2, func(b []byte) []byte { b[3] = 19; return b }, vrrp.DiscardTruncated, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := tt.edit(tt.from.packet(t))
			if tt.fixed {
				refit(b[20:])
			}
			p, err := vrrp.ParsePacket(b, nil)
			require.ErrorIs(t, err, tt.want)
			require.Equal(t, tt.from.src, p.Src.String(), "the culprit is named")
		})
	}
}

// refit gives a message the plain checksum, which every version accepts.
func refit(msg []byte) {
	msg[6], msg[7] = 0, 0
	var sum uint32
	for i := 0; i < len(msg); i += 2 {
		sum += uint32(msg[i])<<8 | uint32(msg[i+1])
	}
	sum = sum&0xffff + sum>>16
	sum = ^(sum&0xffff + sum>>16)
	msg[6], msg[7] = byte(sum>>8), byte(sum)
}

func TestAppendFaults(t *testing.T) {
	src, dst := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	valid := frames[5].want
	tests := []struct {
		name string
		edit func(a *vrrp.Advert)
		want string
	}{
		{"version", func(a *vrrp.Advert) { a.Version = 4 }, "version 4: must be 2 or 3"},
		{"VRID", func(a *vrrp.Advert) { a.VRID = 0 }, "VRID 0: must be 1 to 255"},
		{"no address", func(a *vrrp.Advert) { a.Addrs = nil }, "address count 0"},
		{"256 addresses", func(a *vrrp.Advert) { a.Addrs = make([]netip.Addr, 256) }, "address count 256"},
		{"IPv6", func(a *vrrp.Advert) { a.Addrs = []netip.Addr{netip.IPv6Unspecified()} }, "IPv6 is not implemented"},
		{"v2 400 ms", func(a *vrrp.Advert) { a.Version, a.Interval = 2, 400*time.Millisecond }, "whole seconds"},
		{"v2 256 s", func(a *vrrp.Advert) { a.Version, a.Interval = 2, 256*time.Second }, "1s to 255s"},
		{"v3 5 ms", func(a *vrrp.Advert) { a.Interval = 5 * time.Millisecond }, "10ms to 40.95s"},
		{"v3 15 ms", func(a *vrrp.Advert) { a.Interval = 15 * time.Millisecond }, "steps of 10ms"},
		{"v3 41 s", func(a *vrrp.Advert) { a.Interval = 41 * time.Second }, "10ms to 40.95s"},
		{"v3 password", func(a *vrrp.Advert) { a.AuthType = vrrp.AuthPass }, "version 3 has no authentication"},
		{"AH", func(a *vrrp.Advert) { a.Version, a.AuthType = 2, 2 }, "must be none or password"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := valid
			tt.edit(&a)
			b, err := a.AppendBinary([]byte("kept"), src, dst)
			require.ErrorContains(t, err, tt.want)
			require.Equal(t, "kept", string(b))
		})
	}
	t.Run("pseudo header without addresses", func(t *testing.T) {
		b, err := valid.AppendBinary(nil, netip.Addr{}, dst)
		require.ErrorContains(t, err, "checksum needs IPv4 source")
		require.Empty(t, b)
	})
}

func TestCodecDoesNotAllocate(t *testing.T) {
	for _, f := range frames {
		raw := f.packet(t)
		addrs := make([]netip.Addr, 0, 4)
		buf := make([]byte, 0, 64)
		var p vrrp.Packet
		var err error
		require.Zero(t, testing.AllocsPerRun(100, func() { p, err = vrrp.ParsePacket(raw, addrs) }), "decode "+f.name)
		require.NoError(t, err)
		require.Zero(t, testing.AllocsPerRun(100, func() { _, err = p.Advert.AppendBinary(buf, p.Src, p.Dst) }), "encode "+f.name)
		require.NoError(t, err)
		raw[26]++ // garbage costs nothing either
		require.Zero(t, testing.AllocsPerRun(100, func() { _, err = vrrp.ParsePacket(raw, addrs) }), "discard "+f.name)
		require.ErrorIs(t, err, vrrp.DiscardChecksum)
	}
}

func FuzzParsePacket(f *testing.F) {
	for _, fr := range frames {
		f.Add(fr.packet(f))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := vrrp.ParsePacket(b, nil)
		if err != nil {
			var d vrrp.Discard
			require.ErrorAs(t, err, &d)
			return
		}
		again, err := p.Advert.AppendBinary(nil, p.Src, p.Dst)
		require.NoError(t, err)
		q, err := vrrp.ParseAdvert(again, p.Src, p.Dst, nil)
		require.NoError(t, err)
		require.Equal(t, p.Advert, q)
	})
}

func BenchmarkParsePacket(b *testing.B) {
	raw := frames[0].packet(b)
	addrs := make([]netip.Addr, 0, 4)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := vrrp.ParsePacket(raw, addrs); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendAdvert(b *testing.B) {
	a := frames[0].want
	src, dst := netip.MustParseAddr(frames[0].src), netip.MustParseAddr(frames[0].dst)
	buf := make([]byte, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.AppendBinary(buf, src, dst); err != nil {
			b.Fatal(err)
		}
	}
}
