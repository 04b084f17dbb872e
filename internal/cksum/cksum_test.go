package cksum_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastbeat/lastbeat/internal/cksum"
)

func TestSum(t *testing.T) {
	tests := []struct {
		name string
		in   []byte
		want uint16
	}{
		{"RFC 1071, section 3", []byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}, ^uint16(0xddf2)},
		{"empty", nil, 0xffff},
		{"odd length", []byte{0x01}, ^uint16(0x0100)},
		{"all ones", []byte{0xff, 0xff, 0xff, 0xff}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, cksum.Finish(cksum.Sum(0, tt.in)))
		})
	}
}

// A message of any length that carries its own checksum sums to zero, and the
// sum does not depend on where the message is cut into even pieces.
func TestSumProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		msg := rapid.SliceOfN(rapid.Byte(), 2, 2000).Draw(t, "msg")
		cut := rapid.IntRange(0, len(msg)/2).Draw(t, "cut") * 2
		whole := cksum.Finish(cksum.Sum(0, msg))
		require.Equal(t, whole, cksum.Finish(cksum.Sum(cksum.Sum(0, msg[:cut]), msg[cut:])))

		msg[0], msg[1] = 0, 0
		binary.BigEndian.PutUint16(msg, cksum.Finish(cksum.Sum(0, msg)))
		require.Zero(t, cksum.Finish(cksum.Sum(0, msg)))
	})
}

// A megabyte of ones does not overflow the running sum.
func TestSumLong(t *testing.T) {
	require.Zero(t, cksum.Finish(cksum.Sum(0, bytes.Repeat([]byte{0xff}, 1<<20))))
}
