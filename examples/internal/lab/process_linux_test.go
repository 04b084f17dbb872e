package lab

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLineWriter(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	for _, tt := range []struct {
		name   string
		writes []string
		want   []string
	}{
		{"whole lines", []string{"a\nb\n"}, []string{"a", "b"}},
		{"a line in pieces", []string{"a", "b", "c\nd"}, []string{"abc", "d"}},
		{"empty lines", []string{"\n\n"}, []string{"", ""}},
		{"carriage return", []string{"a\r\n"}, []string{"a"}},
		{"longest line", []string{long + "\n"}, []string{long}},
		{"too long a line", []string{long + "y\nz\n"}, []string{long, "y", "z"}},
		{"no end of line", []string{long, "y"}, []string{long, "y"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			w := &lineWriter{line: func(s string) { got = append(got, s) }}
			for _, s := range tt.writes {
				n, err := w.Write([]byte(s))
				require.NoError(t, err)
				require.Equal(t, len(s), n)
			}
			w.flush()
			require.Equal(t, tt.want, got)
		})
	}
}

func TestTail(t *testing.T) {
	var kept tail
	require.Empty(t, kept.lines())
	for c := 'a'; c <= 'z'; c++ {
		kept.add(string(c))
	}
	require.Equal(t, "ghijklmnopqrstuvwxyz", strings.Join(kept.lines(), ""))
}

func TestParseStatus(t *testing.T) {
	for _, tt := range []struct {
		name, status string
		pid          int
		zombie       bool
	}{
		{"orphan", "Name:\tsh\nState:\tZ (zombie)\nPid:\t4711\nPPid:\t4000\nNSpid:\t4711\t12\n", 12, true},
		{"alive", "Name:\tsh\nState:\tS (sleeping)\nPid:\t4711\nNSpid:\t4711\t12\n", 12, false},
		{"gone", "", 0, false},
		{"kernel without namespaces", "State:\tZ (zombie)\nPid:\t4711\n", 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pid, zombie := parseStatus(tt.status)
			require.Equal(t, tt.pid, pid)
			require.Equal(t, tt.zombie, zombie)
		})
	}
}
