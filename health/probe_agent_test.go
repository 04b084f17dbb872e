package health

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// serveAgent returns the address of an agent that expects a greeting and answers.
func serveAgent(t *testing.T, greeting, answer string) string {
	l := listen(t)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b := make([]byte, len(greeting))
			if _, err := io.ReadFull(conn, b); err == nil && string(b) == greeting {
				io.WriteString(conn, answer)
			}
			conn.Close()
		}
	}()
	return l.Addr().String()
}

func TestAgent(t *testing.T) {
	for _, tc := range []struct {
		name, answer string
		want         Outcome
		as           string // part of the error
		reported     bool
	}{
		{"up", "up\n", Good, "", true},
		{"no line end", "up", Good, "", true},
		{"more than a line", "up\n" + strings.Repeat("down\n", 1000), Good, "", true},
		{"only a weight", "50%\r\n", Good, "", true},
		{"drain", "up drain\n", Good, "", true},
		{"maint", "maint\n", Good, "", true},
		{"down", "down\n", Bad, `says "down"`, true},
		{"fail", "fail#no disk\n", Bad, `says "fail #no disk"`, true},
		{"stopped", "ready,stopped\n", Bad, `says "stopped ready"`, true},
		{"closed", "", Bad, "it says nothing", false},
		{"another protocol", "SSH-2.0-OpenSSH_9.2\r\n", Bad, "is no word of it", false},
		{"endless", strings.Repeat("up ", 1000), Bad, "longer than 1024 bytes", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []AgentReport
			p, err := NewAgent(AgentConfig{Address: serveAgent(t, "hello\n", tc.answer), Send: "hello\n",
				Source: netip.MustParseAddr("127.0.0.1"), OnReport: func(r AgentReport) { got = append(got, r) }})
			require.NoError(t, err)
			err = p.Probe(t.Context())
			require.Equal(t, tc.want, Classify(err), "%v", err)
			if err != nil {
				require.True(t, strings.HasPrefix(err.Error(), "health: agent 127.0.0.1:"), err.Error())
				require.ErrorContains(t, err, tc.as)
			}
			if tc.reported {
				want, err := ParseAgent(tc.answer)
				require.NoError(t, err)
				require.Equal(t, []AgentReport{want}, got)
			} else {
				require.Empty(t, got)
			}
		})
	}
}

func TestAgentSilentAndGone(t *testing.T) {
	p, err := NewAgent(AgentConfig{Address: closedPort(t)})
	require.NoError(t, err)
	require.Equal(t, Bad, Classify(p.Probe(t.Context())))
	require.Equal(t, LocalError, Classify(p.Probe(expired())))

	for _, cancelled := range []bool{false, true} {
		l := listen(t)
		p, err := NewAgent(AgentConfig{Address: l.Addr().String(), Send: "x"})
		require.NoError(t, err)
		parent, cancel := context.WithCancel(t.Context())
		ctx := timeout{t.Context(), make(chan struct{})}
		accepted := make(chan net.Conn, 1)
		go func() { // takes the question, and time runs out
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Read(make([]byte, 1))
			accepted <- conn
			cancel()
			close(ctx.done)
		}()
		want := Bad
		if cancelled {
			err, want = p.Probe(parent), LocalError
		} else {
			err = p.Probe(ctx)
		}
		(<-accepted).Close()
		require.Equal(t, want, Classify(err), "%v", err)
	}
}

func TestAgentConfigFaults(t *testing.T) {
	_, err := NewAgent(AgentConfig{Address: "x", Send: strings.Repeat("x", 1401)})
	require.ErrorIs(t, err, ErrConfig)
	require.ErrorContains(t, err, `health: Address is "x": want host:port`)
	require.ErrorContains(t, err, "health: Send is 1401 bytes: want at most 1400")
}
