package capture

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/bpf"
)

var at = time.Date(2026, 8, 1, 12, 0, 0, 123456789, time.UTC)

func mac(s string) (m MAC) {
	b, err := hex.DecodeString(s)
	if err != nil || copy(m[:], b) != len(m) {
		panic(s)
	}
	return m
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

func ip(last byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, 37, last}) }

var all224 = netip.MustParseAddr("224.0.0.18")

// Frames captured with tcpdump: adverts and announcements of keepalived 2.2.7,
// FRR 8.4.4 and arping, a ping, and connections that were made, refused and ended.
var frames = []struct {
	name  string
	frame string
	want  Packet
}{
	{"advert v2 with password", "9a19f71cbd61 1a9a692d67b9 0800 45c00028000c0000ff70ef1dc0a82516c0a82515 21ce440101017f1bc0a825c9686a3468355f6170",
		Packet{Kind: Advert, DstMAC: mac("9a19f71cbd61"), SrcMAC: mac("1a9a692d67b9"), Src: ip(22), Dst: ip(21), Version: 2, VRID: 206, Priority: 68}},
	{"advert v2 of the ingress", "9a19f71cbd61 723906f95bb6 0800 45c00028000b0000ff70ef1dc0a82517c0a82515 212d500101016bbdc0a825ca686a3468355f696e",
		Packet{Kind: Advert, DstMAC: mac("9a19f71cbd61"), SrcMAC: mac("723906f95bb6"), Src: ip(23), Dst: ip(21), Version: 2, VRID: 45, Priority: 80}},
	{"advert v2 that takes leave", "9a19f71cbd61 723906f95bb6 0800 45c0002800370000ff70eef1c0a82517c0a82515 21ce00010101c31bc0a825c9686a3468355f6170",
		Packet{Kind: Advert, DstMAC: mac("9a19f71cbd61"), SrcMAC: mac("723906f95bb6"), Src: ip(23), Dst: ip(21), Version: 2, VRID: 206}},
	{"advert v2 multicast", "01005e000012 1a9a692d67b9 0800 45c0002800110000ff70f4c3c0a82516e0000012 21ce5a0100019dbdc0a825c90000000000000000",
		Packet{Kind: Advert, DstMAC: mac("01005e000012"), SrcMAC: mac("1a9a692d67b9"), Src: ip(22), Dst: all224, Version: 2, VRID: 206, Priority: 90}},
	{"advert v3 multicast", "01005e000012 723906f95bb6 0800 45c0002000010000ff70f4dac0a82517e0000012 31ce64010064bd0bc0a825c9",
		Packet{Kind: Advert, DstMAC: mac("01005e000012"), SrcMAC: mac("723906f95bb6"), Src: ip(23), Dst: all224, Version: 3, VRID: 206, Priority: 100}},
	{"advert v3 unicast", "9a19f71cbd61 1a9a692d67b9 0800 45c0002000120000ff70ef1fc0a82516c0a82515 31ce5a010064c161c0a825c9",
		Packet{Kind: Advert, DstMAC: mac("9a19f71cbd61"), SrcMAC: mac("1a9a692d67b9"), Src: ip(22), Dst: ip(21), Version: 3, VRID: 206, Priority: 90}},
	{"advert of FRR", "01005e000012 00005e0001cf 0800 45c0002018ae4000ff709b43c0a82601e0000012 31cf78010064a720c0a826c9",
		Packet{Kind: Advert, DstMAC: mac("01005e000012"), SrcMAC: mac("00005e0001cf"), Src: netip.MustParseAddr("192.168.38.1"), Dst: all224, Version: 3, VRID: 207, Priority: 120}},
	{"gratuitous ARP request", "ffffffffffff 1a9a692d67b9 0806 00010800060400011a9a692d67b9c0a825c9ffffffffffffc0a825c9",
		Packet{Kind: GratuitousARP, DstMAC: mac("ffffffffffff"), SrcMAC: mac("1a9a692d67b9"), Src: ip(201), Dst: ip(201), HW: mac("1a9a692d67b9")}},
	{"gratuitous ARP reply", "ffffffffffff 9e99aed77b47 0806 00010800060400029e99aed77b47c0a825cb9e99aed77b47c0a825cb",
		Packet{Kind: GratuitousARP, DstMAC: mac("ffffffffffff"), SrcMAC: mac("9e99aed77b47"), Src: ip(203), Dst: ip(203), Reply: true, HW: mac("9e99aed77b47")}},
	{"ARP request", "ffffffffffff 9ac09bcfade0 0806 00010800060400019ac09bcfade0c0a82564000000000000c0a825c9",
		Packet{Kind: ARP, DstMAC: mac("ffffffffffff"), SrcMAC: mac("9ac09bcfade0"), Src: ip(100), Dst: ip(201), HW: mac("9ac09bcfade0")}},
	{"ARP reply", "9ac09bcfade0 fe5c11227ee5 0806 0001080006040002fe5c11227ee5c0a825c99ac09bcfade0c0a82564",
		Packet{Kind: ARP, DstMAC: mac("9ac09bcfade0"), SrcMAC: mac("fe5c11227ee5"), Src: ip(201), Dst: ip(100), Reply: true, HW: mac("fe5c11227ee5")}},
	{"echo request", "724811e76bc5 5e75e7a2dc9b 0800 4500001cc8a740004001a5bbc0a82564c0a825c90800abb64c420007",
		Packet{Kind: EchoRequest, DstMAC: mac("724811e76bc5"), SrcMAC: mac("5e75e7a2dc9b"), Src: ip(100), Dst: ip(201), ID: 0x4c42, Seq: 7}},
	{"echo reply", "5e75e7a2dc9b 724811e76bc5 0800 4500001c8861000040012602c0a825c9c0a825640000b3b64c420007",
		Packet{Kind: EchoReply, DstMAC: mac("5e75e7a2dc9b"), SrcMAC: mac("724811e76bc5"), Src: ip(201), Dst: ip(100), ID: 0x4c42, Seq: 7}},
	{"SYN", "fe5c11227ee5 9ac09bcfade0 0800 4500003c219e400040064ca0c0a82564c0a825c9 a538192bbdf5ffd500000000a002faf0ccac0000020405b40402080a3c10567e000000000103030a",
		Packet{Kind: TCP, DstMAC: mac("fe5c11227ee5"), SrcMAC: mac("9ac09bcfade0"), Src: ip(100), Dst: ip(201), SrcPort: 42296, DstPort: 6443, Flags: SYN}},
	{"SYN ACK", "9ac09bcfade0 fe5c11227ee5 0800 4500003c0000400040066e3ec0a825c9c0a82564 192ba5384102be28bdf5ffd6a012fe88ccac0000020405b40402080a37da68183c10567e0103030a",
		Packet{Kind: TCP, DstMAC: mac("9ac09bcfade0"), SrcMAC: mac("fe5c11227ee5"), Src: ip(201), Dst: ip(100), SrcPort: 6443, DstPort: 42296, Flags: SYN | ACK}},
	{"RST", "9ac09bcfade0 fe5c11227ee5 0800 450000280000400040066e52c0a825c9c0a82564 192ba534000000009099e09150140000b3c70000",
		Packet{Kind: TCP, DstMAC: mac("9ac09bcfade0"), SrcMAC: mac("fe5c11227ee5"), Src: ip(201), Dst: ip(100), SrcPort: 6443, DstPort: 42292, Flags: RST | ACK}},
	{"FIN", "9ac09bcfade0 fe5c11227ee5 0800 450000346286400040060bc0c0a825c9c0a82564 192ba5384102c031bdf6003080110040cca400000101080a37da681b3c105681",
		Packet{Kind: TCP, DstMAC: mac("9ac09bcfade0"), SrcMAC: mac("fe5c11227ee5"), Src: ip(201), Dst: ip(100), SrcPort: 6443, DstPort: 42296, Flags: FIN | ACK}},
	{"mark", "02000000000a 02000000000a 88b5 7b2261223a317d",
		Packet{Kind: Mark, DstMAC: mac("02000000000a"), SrcMAC: mac("02000000000a"), Text: `{"a":1}`}},
}

func TestDecode(t *testing.T) {
	for _, tt := range frames {
		t.Run(tt.name, func(t *testing.T) {
			frame := unhex(tt.frame)
			tt.want.At = at
			got, ok := Decode(frame, at)
			require.True(t, ok)
			require.Equal(t, tt.want, got)
			require.NotEqual(t, "unknown", got.Kind.String())

			padded, ok := Decode(append(bytes.Clone(frame), make([]byte, 18)...), at)
			require.True(t, ok, "with Ethernet padding")
			require.Equal(t, got, padded, "with Ethernet padding")

			// Every truncation is refused until all that is reported is there.
			for n := range len(frame) {
				if p, ok := Decode(frame[:n], at); ok {
					switch tt.want.Kind {
					case Mark:
						require.NotEmpty(t, p.Text, "cut to %d bytes", n)
					case TCP: // options are not needed
						require.Equal(t, tt.want, p, "cut to %d bytes", n)
						require.GreaterOrEqual(t, n, 14+20+20)
					default:
						require.Fail(t, "accepted", "cut to %d bytes", n)
					}
				}
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, tt := range []struct{ name, frame string }{
		{"ACK alone", "9ac09bcfade0 fe5c11227ee5 0800 450000346283400040060bc3c0a825c9c0a82564 192ba5384102be29bdf6003080100040cca400000101080a37da68183c10567e"},
		{"advert with a wrong checksum", "01005e000012 723906f95bb6 0800 45c0002000010000ff70f4dac0a82517e0000012 31ce64010064bd0cc0a825c9"},
		{"advert in AH", "01005e000012 9a19f71cbd61 0800 45c0004000010000ff33f4f9c0a82515e0000012 70040000c0a825150000000112dd180663b24035323b82fc21ce50010201a5bdc0a825c90000000000000000"},
		{"advert for IPv6", "333300000012 723906f95bb6 86dd 6c01fde6002870fffe80000000000000703906fffef95bb6ff020000000000000000000000000012 31ce6402006499f4fe800000000000000000000000000206fd000037000000000000000000000201"},
		{"ARP for another network", "ffffffffffff 1a9a692d67b9 0806 00060800060400011a9a692d67b9c0a825c9ffffffffffffc0a825c9"},
		{"RARP operation", "ffffffffffff 1a9a692d67b9 0806 00010800060400031a9a692d67b9c0a825c9ffffffffffffc0a825c9"},
		{"later fragment", "fe5c11227ee5 9ac09bcfade0 0800 4500003c219e000140064ca0c0a82564c0a825c9 a538192bbdf5ffd500000000a002faf0ccac0000020405b40402080a3c10567e000000000103030a"},
		{"unreachable message", "fe5c11227ee5 9ac09bcfade0 0800 4500001c0001400040010000c0a82564c0a825c9 0301000000000000"},
		{"UDP", "fe5c11227ee5 9ac09bcfade0 0800 4500001c0001400040110000c0a82564c0a825c9 0301000000000000"},
		{"empty mark", "02000000000a 02000000000a 88b5 0000"},
		{"IPv6 header in an IPv4 frame", "fe5c11227ee5 9ac09bcfade0 0800 6500001c0001400040010000c0a82564c0a825c9 0800000000000000"},
		{"header length 4", "fe5c11227ee5 9ac09bcfade0 0800 4100001c0001400040010000c0a82564c0a825c9 0800000000000000"},
		{"total length 4", "fe5c11227ee5 9ac09bcfade0 0800 450000040001400040010000c0a82564c0a825c9 0800000000000000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, ok := Decode(unhex(tt.frame), at)
			require.False(t, ok)
			require.Zero(t, p)
		})
	}
}

// A probe for a free address (RFC 5227) has no sender address: it announces nothing.
func TestDecodeARPProbe(t *testing.T) {
	p, ok := Decode(unhex("ffffffffffff 1a9a692d67b9 0806 00010800060400011a9a692d67b9 00000000 000000000000 00000000"), at)
	require.True(t, ok)
	require.Equal(t, ARP, p.Kind)
}

// The header's length decides where the payload starts, in the kernel's filter too.
func TestOptionsInHeader(t *testing.T) {
	frame := unhex("fe5c11227ee5 9ac09bcfade0 0800 47000024 0001 4000 4001 0000 c0a82564 c0a825c9 01010101 01010101 0800 0000 4c42 0009")
	p, ok := Decode(frame, at)
	require.True(t, ok)
	require.Equal(t, uint16(9), p.Seq)
	require.True(t, passes(t, frame))
}

// The filter lets every frame pass that Decode wants, and keeps the bulk out.
func TestFilter(t *testing.T) {
	for _, tt := range frames {
		require.True(t, passes(t, unhex(tt.frame)), tt.name)
	}
	for name, frame := range map[string]string{
		"data":          "fe5c11227ee5 9ac09bcfade0 0800 4500008e21a0400040064c4cc0a82564c0a825c9 a538192bbdf5ffd64102be298018003fccfe00000101080a3c10567e37da6818474554202f",
		"UDP":           "fe5c11227ee5 9ac09bcfade0 0800 4500001c0001400040110000c0a82564c0a825c9 0301000000000000",
		"unreachable":   "fe5c11227ee5 9ac09bcfade0 0800 4500001c0001400040010000c0a82564c0a825c9 0301000000000000",
		"IPv6":          "333300000012 723906f95bb6 86dd 6c01fde6002870ff",
		"fragment":      "fe5c11227ee5 9ac09bcfade0 0800 4500003c219e000140064ca0c0a82564c0a825c9 a538192bbdf5ffd500000000a002faf0",
		"ping fragment": "fe5c11227ee5 9ac09bcfade0 0800 4500001c0001000140010000c0a82564c0a825c9 0800000000000000",
	} {
		require.False(t, passes(t, unhex(frame)), name)
	}
}

func passes(t testing.TB, frame []byte) bool {
	vm, err := bpf.NewVM(filter())
	require.NoError(t, err)
	n, err := vm.Run(frame)
	require.NoError(t, err)
	return n >= min(len(frame), snapLen)
}

func FuzzDecode(f *testing.F) {
	for _, tt := range frames {
		f.Add(unhex(tt.frame))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		p, ok := Decode(frame, at)
		if !ok {
			require.Zero(t, p)
			return
		}
		require.True(t, passes(t, frame), "the kernel's filter would have dropped %v", p.Kind)
		require.Equal(t, at, p.At)
		require.NotEqual(t, "unknown", p.Kind.String())
	})
}

func TestArrival(t *testing.T) {
	now := time.Now() // with a monotonic reading
	wall := now.Round(0)
	for _, tt := range []struct {
		name    string
		drained time.Duration // before now
		stamp   time.Duration // before now
		want    time.Duration // before now
	}{
		{"just read", time.Second, 300 * time.Microsecond, 300 * time.Microsecond},
		{"waited for a busy reader", time.Second, 900 * time.Millisecond, 900 * time.Millisecond},
		{"stamped before the queue was empty, queued after", time.Millisecond, 5 * time.Millisecond, 5 * time.Millisecond},
		{"the clock was set back", time.Second, -time.Hour, 0},
		{"the clock was set forward", time.Second, time.Hour, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := arrival(now, now.Add(-tt.drained), wall.Add(-tt.stamp))
			require.Equal(t, tt.want, now.Sub(got))
			require.Contains(t, got.String(), "m=", "the monotonic reading is kept")
		})
	}
}

func TestPcap(t *testing.T) {
	var out bytes.Buffer
	w := newPcapWriter(&out)
	w.write([]byte{1, 2, 3}, 9000, at)
	require.NoError(t, w.err)
	require.Equal(t, "4d3cb2a1"+"02000400"+"0000000000000000"+"00080000"+"01000000", hex.EncodeToString(out.Bytes()[:24]))
	require.Equal(t, "c0df6d6a"+"15cd5b07"+"03000000"+"28230000"+"010203", hex.EncodeToString(out.Bytes()[24:]))
}

// A disk that fills up keeps the error and does not write half a file on.
func TestPcapFails(t *testing.T) {
	failing := &failAfter{n: 1}
	w := newPcapWriter(failing)
	w.write([]byte{1}, 1, at)
	w.write([]byte{1}, 1, at)
	require.ErrorIs(t, w.err, bytes.ErrTooLarge)
	require.Equal(t, 2, failing.calls)
}

type failAfter struct{ n, calls int }

func (f *failAfter) Write(b []byte) (int, error) {
	f.calls++
	if f.calls > f.n {
		return 0, bytes.ErrTooLarge
	}
	return len(b), nil
}

func TestNames(t *testing.T) {
	require.Equal(t, "SYN|ACK", (SYN | ACK).String())
	require.Equal(t, "unknown", Kind(0).String())
	require.Equal(t, "unknown", Kind(99).String())
	require.Equal(t, "1a:9a:69:2d:67:b9", mac("1a9a692d67b9").String())
}
