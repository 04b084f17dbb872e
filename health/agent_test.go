package health

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseAgent(t *testing.T) {
	for _, tc := range []struct {
		line string
		want AgentReport
	}{
		{"up", AgentReport{"up", "", -1, -1, ""}},
		{"up\n", AgentReport{"up", "", -1, -1, ""}},
		{"up\r\n", AgentReport{"up", "", -1, -1, ""}},
		{"up\ndown\n", AgentReport{"up", "", -1, -1, ""}},
		{"UP", AgentReport{"up", "", -1, -1, ""}},
		{"down", AgentReport{"down", "", -1, -1, ""}},
		{"fail#disk is full", AgentReport{"fail", "", -1, -1, "disk is full"}},
		{"stopped # by hand, # twice\r\n", AgentReport{"stopped", "", -1, -1, "by hand, # twice"}},
		{"ready", AgentReport{"", "ready", -1, -1, ""}},
		{"drain", AgentReport{"", "drain", -1, -1, ""}},
		{"maint", AgentReport{"", "maint", -1, -1, ""}},
		{"75%", AgentReport{"", "", 75, -1, ""}},
		{"0%", AgentReport{"", "", 0, -1, ""}},
		{"25600%", AgentReport{"", "", 25600, -1, ""}},
		{"maxconn:30", AgentReport{"", "", -1, 30, ""}},
		{"MaxConn:0", AgentReport{"", "", -1, 0, ""}},
		{"75%,maxconn:30,maint,down\n", AgentReport{"down", "maint", 75, 30, ""}},
		{" ,\t up ,, ready\t50% ", AgentReport{"up", "ready", 50, -1, ""}},
		{"down up 10% 20%", AgentReport{"up", "", 20, -1, ""}},
	} {
		got, err := ParseAgent(tc.line)
		require.NoError(t, err, "%q", tc.line)
		require.Equal(t, tc.want, got, "%q", tc.line)
	}
	for _, line := range []string{
		"", "\n", " , ", "#only words for people", "\nup", "hello", "up hello", "upp", "%", "75", "-1%", "+1%", "1.5%", "25601%",
		"99999999999999999999%", "maxconn:", "maxconn: 3", "maxconn:-1", "maxconn:2147483648", "200 OK", "up\x00",
	} {
		got, err := ParseAgent(line)
		require.ErrorIs(t, err, ErrAgent, "%q", line)
		require.Zero(t, got, "%q", line)
	}
	_, err := ParseAgent("up " + strings.Repeat("x", 1000))
	require.Less(t, len(err.Error()), 250)
}

// What is understood can be said again and means the same.
func FuzzParseAgent(f *testing.F) {
	for _, line := range []string{"up\r\n", "75%,maxconn:30,maint,down#so # what\n", "\t ready 0%", "DRAIN fail", "up\u0085", "#", "maxconn:007"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		r, err := ParseAgent(line)
		if err != nil {
			require.ErrorIs(t, err, ErrAgent)
			require.Zero(t, r)
			return
		}
		again, err := ParseAgent(r.String())
		require.NoError(t, err, "%q", r)
		require.Equal(t, r, again)
	})
}
