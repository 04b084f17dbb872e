package nft

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The bytes are those that nft 1.0.6 sends for the same elements, as shown by
// nft --debug=netlink; they do not depend on the machine's byte order.
func TestKeyBytes(t *testing.T) {
	require.Equal(t, "c0000201"+"06000000"+"192b0000", hex.EncodeToString([]byte(api4.key())))
	require.Equal(t, "c0000201"+"24e50000", hex.EncodeToString([]byte(api4.value())))
	require.Equal(t, "c0000201"+"11000000"+"00350000", hex.EncodeToString([]byte(dns4.key())))
	require.Equal(t, "20010db8000000000000000000000001"+"06000000"+"192b0000", hex.EncodeToString([]byte(api6.key())))
	require.Equal(t, "20010db8000000000000000000000001"+"24e50000", hex.EncodeToString([]byte(api6.value())))
}

// Whatever another tool stored is printed without a crash, and as an element only
// when the same bytes come out of the text's parts.
func FuzzKeyText(f *testing.F) {
	for _, r := range []Redirect{api4, api6, dns4} {
		f.Add([]byte(r.key()))
		f.Add([]byte(r.value()))
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		require.Equal(t, b, append([]byte{}, parse(t, keyText(string(b)), b, true)...))
		require.Equal(t, b, append([]byte{}, parse(t, valueText(string(b)), b, false)...))
	})
}

// parse reads text back; padding, which text does not show, is taken from b.
func parse(t *testing.T, text string, b []byte, isKey bool) []byte {
	parts := strings.Split(text, " . ")
	if len(parts) == 1 {
		raw, err := hex.DecodeString(text)
		require.NoError(t, err)
		return raw
	}
	out := netip.MustParseAddr(parts[0]).AsSlice()
	if isKey {
		proto := map[string]int{"tcp": 6, "udp": 17}[parts[1]]
		if proto == 0 {
			var err error
			proto, err = strconv.Atoi(parts[1])
			require.NoError(t, err)
		}
		out = append(out, byte(proto))
		out = append(out, b[len(out):len(out)+3]...)
	}
	port, err := strconv.ParseUint(parts[len(parts)-1], 10, 16)
	require.NoError(t, err)
	out = binary.BigEndian.AppendUint16(out, uint16(port))
	return append(out, b[len(b)-2:]...)
}
