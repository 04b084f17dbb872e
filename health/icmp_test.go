package health

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/internal/cksum"
)

func TestEchoRequest(t *testing.T) {
	e := echo{0x1234, 7, []byte("abc")}
	require.Equal(t, "dead"+"08"+"00"+"2162"+"1234"+"0007"+"616263", hex.EncodeToString(e.appendRequest([]byte{0xde, 0xad}, false)))
	require.Equal(t, "80"+"00"+"0000"+"1234"+"0007"+"616263", hex.EncodeToString(e.appendRequest(nil, true)))
	for n := range 20 {
		e.payload = bytes.Repeat([]byte{0xa5}, n)
		require.Zero(t, cksum.Finish(cksum.Sum(0, e.appendRequest(nil, false))), "%d bytes", n)
	}
}

func TestEchoAnsweredBy(t *testing.T) {
	e := echo{0x1234, 7, []byte("abc")}
	good := []byte{0, 0, 0xff, 0xff, 0x12, 0x34, 0, 7, 'a', 'b', 'c'}
	require.True(t, e.answeredBy(good, false, false))
	require.True(t, e.answeredBy(good, false, true))
	for n := range good {
		require.False(t, e.answeredBy(good[:n], false, true), "cut to %d bytes", n)
	}
	for i := range good {
		b := bytes.Clone(good)
		b[i] ^= 0x80
		require.Equal(t, i == 2 || i == 3, e.answeredBy(b, false, false), "byte %d is another", i)
		require.Equal(t, i >= 2 && i <= 5, e.answeredBy(b, false, true), "byte %d is another, and any identifier will do", i)
	}
	require.False(t, e.answeredBy(append(bytes.Clone(good), 0), false, false), "longer")
	require.False(t, e.answeredBy(good, true, false), "of the other family")
	require.False(t, e.answeredBy(e.appendRequest(nil, false), false, false), "our own request")
	good[0] = 129
	require.True(t, e.answeredBy(good, true, false))
}

func TestSkipIPv4(t *testing.T) {
	for _, tc := range []struct {
		name string
		b    []byte
		want []byte
	}{
		{"no options", append([]byte{0x45, 19: 0}, "abc"...), []byte("abc")},
		{"options", append([]byte{0x46, 23: 0}, "abc"...), []byte("abc")},
		{"nothing follows", []byte{0x45, 19: 0}, []byte{}},
		{"empty", nil, nil},
		{"cut", []byte{0x45, 18: 0}, nil},
		{"options cut", []byte{0x46, 22: 0}, nil},
		{"header shorter than a header", []byte{0x44, 30: 0}, nil},
		{"IPv6", []byte{0x65, 60: 0}, nil},
	} {
		require.Equal(t, tc.want, skipIPv4(tc.b), tc.name)
	}
}

// Nothing but the mirror image of a request is its reply.
func FuzzEcho(f *testing.F) {
	f.Add([]byte{0x45, 19: 0, 20: 0, 21: 0, 22: 0xff, 23: 0xff, 24: 0x12, 25: 0x34, 26: 0, 27: 7, 28: 'a'}, false)
	f.Add([]byte{0x81, 0, 0, 0, 0x12, 0x34, 0, 7, 'a'}, true)
	f.Add([]byte{0x4f}, false)
	f.Fuzz(func(t *testing.T, b []byte, v6 bool) {
		e := echo{0x1234, 7, []byte("a")}
		if !v6 {
			b = skipIPv4(b)
		}
		if !e.answeredBy(b, v6, false) {
			return
		}
		want := e.appendRequest(nil, v6)
		want[0], want[2], want[3] = map[bool]byte{false: 0, true: 129}[v6], b[2], b[3]
		require.Equal(t, want, b)
	})
}
