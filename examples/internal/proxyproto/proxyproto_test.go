package proxyproto

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGolden(t *testing.T) {
	const sig = "\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a"
	for name, c := range map[string]struct {
		from, to string
		v1, v2   string
	}{
		"IPv4": {"192.0.2.7:49152", "198.51.100.1:443",
			"PROXY TCP4 192.0.2.7 198.51.100.1 49152 443\r\n",
			sig + "\x21\x11\x00\x0c\xc0\x00\x02\x07\xc6\x33\x64\x01\xc0\x00\x01\xbb"},
		"IPv6": {"[2001:db8::7]:49152", "[2001:db8:1::1]:443",
			"PROXY TCP6 2001:db8::7 2001:db8:1::1 49152 443\r\n",
			sig + "\x21\x21\x00\x24\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07" +
				"\x20\x01\x0d\xb8\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\xc0\x00\x01\xbb"},
		"mapped, as a dual-stack socket sees IPv4": {"[::ffff:192.0.2.7]:49152", "[::ffff:198.51.100.1]:443",
			"PROXY TCP4 192.0.2.7 198.51.100.1 49152 443\r\n",
			sig + "\x21\x11\x00\x0c\xc0\x00\x02\x07\xc6\x33\x64\x01\xc0\x00\x01\xbb"},
		"zone": {"[fe80::7%eth0]:1", "[fe80::1%eth0]:65535",
			"PROXY TCP6 fe80::7 fe80::1 1 65535\r\n",
			sig + "\x21\x21\x00\x24\xfe\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07" +
				"\xfe\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x01\xff\xff"},
		"one of each": {"192.0.2.7:1", "[2001:db8::1]:2",
			"PROXY TCP6 ::ffff:192.0.2.7 2001:db8::1 1 2\r\n",
			sig + "\x21\x21\x00\x24\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xc0\x00\x02\x07" +
				"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x01\x00\x02"},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := netip.MustParseAddrPort(c.from), netip.MustParseAddrPort(c.to)
			require.Equal(t, "x"+c.v1, string(V1.Append([]byte("x"), from, to)))
			require.Equal(t, "x"+c.v2, string(V2.Append([]byte("x"), from, to)))
			require.Equal(t, "x", string(None.Append([]byte("x"), from, to)))
		})
	}
	require.Equal(t, "PROXY UNKNOWN\r\n", string(V1.AppendLocal(nil)))
	require.Equal(t, sig+"\x20\x00\x00\x00", string(V2.AppendLocal(nil)))
	require.Empty(t, None.AppendLocal(nil))
}

// The longest line is as long as the text says (section 2.1).
func TestLongestLine(t *testing.T) {
	six := netip.MustParseAddrPort("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535")
	require.Len(t, V1.Append(nil, six, six), 104)
	four := netip.MustParseAddrPort("255.255.255.255:65535")
	require.Len(t, V1.Append(nil, four, four), 56)
}

func TestVersionText(t *testing.T) {
	for _, v := range []Version{None, V1, V2} {
		var got Version
		text, err := v.MarshalText()
		require.NoError(t, err)
		require.NoError(t, got.UnmarshalText(text))
		require.Equal(t, v, got)
	}
	require.EqualError(t, new(Version).UnmarshalText([]byte("v3")), "send_proxy v3: no such version: give v1 or v2")
	require.Equal(t, "version(9)", Version(9).String())
}
