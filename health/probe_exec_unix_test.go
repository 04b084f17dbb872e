//go:build unix

package health

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sh returns a prober that runs a shell script.
func sh(t *testing.T, script string, args ...string) *Exec {
	path, err := exec.LookPath("sh")
	require.NoError(t, err)
	p, err := NewExec(ExecConfig{Path: path, Args: append([]string{"-c", script, "sh"}, args...)})
	require.NoError(t, err)
	return p
}

func TestExec(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		want         Outcome
		as           string // end of the error
	}{
		{"exit 0", "echo all is well; exit 0", Good, ""},
		{"exit 1", "echo 'disk full' >&2; exit 1", Bad, `: exit status 1: "disk full"`},
		{"exit 255", "exit 255", Bad, ": exit status 255"},
		{"shell can't find it", "nobody-has-this-program 2>/dev/null", Bad, ": exit status 127"},
		{"signal", "kill -TERM $$", Bad, ": signal: terminated"},
		{"much output", "for i in 1 2 3 4 5 6 7 8 9; do printf '%1000s' $i; done; exit 3", Bad, `: exit status 3: "...9"`},
		{"no standard input", "if read line; then exit 1; fi", Good, ""},
		{"arguments are not expanded", `[ "$1" = '$HOME *' ]`, Good, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := sh(t, tc.script, "$HOME *").Probe(t.Context())
			require.Equal(t, tc.want, Classify(err), "%v", err)
			if err != nil {
				require.True(t, strings.HasPrefix(err.Error(), "health: exec /"), err.Error())
				require.True(t, strings.HasSuffix(err.Error(), tc.as), err.Error())
				require.Less(t, len(err.Error()), 700, "bounded")
			}
		})
	}
}

func TestExecCannotStart(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	require.NoError(t, os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o644))
	orphan := filepath.Join(dir, "orphan")
	require.NoError(t, os.WriteFile(orphan, []byte("#!"+dir+"/no-such-interpreter\n"), 0o755))
	for _, c := range []ExecConfig{
		{Path: filepath.Join(dir, "missing")},
		{Path: plain},
		{Path: orphan},
		{Path: dir},
		{Path: "/bin/sh", Dir: filepath.Join(dir, "missing")},
	} {
		p, err := NewExec(c)
		require.NoError(t, err)
		err = p.Probe(t.Context())
		require.ErrorIs(t, err, ErrLocal)
		require.Equal(t, LocalError, Classify(err), "%v", err)
	}
	require.Equal(t, LocalError, Classify(sh(t, "exit 1").Probe(expired())))
}

func TestExecEnvironment(t *testing.T) {
	dir := t.TempDir()
	p, err := NewExec(ExecConfig{Path: "/bin/sh", Args: []string{"-c", `[ "$A" = b ] && [ -z "$HOME" ] && [ "$(pwd -P)" = "$1" ]`, "sh", dir},
		Env: []string{"A=b"}, Dir: dir})
	require.NoError(t, err)
	require.NoError(t, p.Probe(t.Context()))
}

// caller is a socket that a process under test connects to: its end is the end of
// the process.
type caller struct {
	t *testing.T
	l net.Listener
}

// script makes a bash process hold a connection, say its part, and go on with
// "rest".
func (c caller) script(rest string) string {
	return fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d; echo here >&3; %s", c.l.Addr().(*net.TCPAddr).Port, rest)
}

// here waits until a process is there.
func (c caller) here() net.Conn {
	conn, err := c.l.Accept()
	require.NoError(c.t, err)
	_, err = io.ReadFull(conn, make([]byte, len("here\n")))
	require.NoError(c.t, err)
	return conn
}

func bash(t *testing.T, script string) *Exec {
	path, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs bash")
	}
	p, err := NewExec(ExecConfig{Path: path, Args: []string{"-c", script}})
	require.NoError(t, err)
	return p
}

// At the timeout the program dies with its children.
func TestExecTimeoutKillsTheGroup(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(timeout, context.CancelFunc)
		want Outcome
	}{
		{"time over", func(c timeout, _ context.CancelFunc) { close(c.done) }, Bad},
		{"cancelled", func(_ timeout, cancel context.CancelFunc) { cancel() }, LocalError},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := caller{t, listen(t)}
			p := bash(t, c.script("trap '' TERM; (sleep 1000) & sleep 1000; exit 0"))
			parent, cancel := context.WithCancel(t.Context())
			defer cancel()
			late := timeout{parent, make(chan struct{})}
			ended := make(chan error, 1)
			go func() {
				if tc.want == LocalError {
					ended <- p.Probe(parent)
				} else {
					ended <- p.Probe(late)
				}
			}()
			conn := c.here()
			defer conn.Close()
			tc.end(late, cancel)
			err := <-ended
			require.Equal(t, tc.want, Classify(err), "%v", err)
			require.ErrorContains(t, err, ": killed: context ")
			_, err = conn.Read(make([]byte, 1))
			require.Equal(t, io.EOF, err, "all processes that had the connection are gone")
		})
	}
}

// A child that the program leaves behind holds its output and outlives it: neither
// keeps the probe, and the child is killed.
func TestExecLeakedChild(t *testing.T) {
	c := caller{t, listen(t)}
	p := bash(t, c.script("sleep 1000 & exit 0"))
	require.NoError(t, p.Probe(t.Context()))
	conn := c.here()
	defer conn.Close()
	_, err := conn.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err)
}

// A child in a group of its own is beyond our reach, but does not hold the probe.
func TestExecEscapedChild(t *testing.T) {
	c := caller{t, listen(t)}
	p := bash(t, c.script("set -m; (read line <&3) & echo left; exit 4"))
	err := p.Probe(t.Context())
	require.ErrorContains(t, err, `: exit status 4: "left"`)
	conn := c.here()
	_, err = conn.Write([]byte("you may go\n"))
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err, "it had outlived its program")
	conn.Close()
}

func TestExecConfigFaults(t *testing.T) {
	_, err := NewExec(ExecConfig{Path: "check.sh", Dir: "here", Env: []string{"A", "=b", "C=d"}, MaxOutput: -1})
	require.ErrorIs(t, err, ErrConfig)
	require.EqualError(t, err, `health: Path is "check.sh": want an absolute path
health: Dir is "here": want an absolute path, or none
health: Env is "A": want key=value
health: Env is "=b": want key=value
health: MaxOutput is -1: want 1 to 65536`)
}

func TestTail(t *testing.T) {
	for _, tc := range []struct {
		writes []string
		want   string
	}{
		{nil, ""},
		{[]string{"\n"}, ""},
		{[]string{"abc"}, `: "abc"`},
		{[]string{"abcde"}, `: "abcde"`},
		{[]string{"abcdef"}, `: "...bcdef"`},
		{[]string{"abc", "def"}, `: "...bcdef"`},
		{[]string{"abc", "0123456789"}, `: "...56789"`},
		{[]string{"a", "b", "c", "d", "e", "f", "g"}, `: "...cdefg"`},
	} {
		out := tail{max: 5}
		for _, w := range tc.writes {
			n, err := out.Write([]byte(w))
			require.NoError(t, err)
			require.Equal(t, len(w), n)
			require.LessOrEqual(t, len(out.kept), 5)
		}
		require.Equal(t, tc.want, out.quoted(), "%q", tc.writes)
	}
}
