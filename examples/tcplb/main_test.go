package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asMain makes the test binary the program itself, in a process of its own.
const asMain = "LASTBEAT_TCPLB_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) == "1" {
		main()
	}
	os.Exit(m.Run())
}

func command(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), asMain+"=1")
	return cmd
}

func file(t *testing.T, text string) string {
	name := filepath.Join(t.TempDir(), "tcplb.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// Each bad input ends with status 2 and one line that names key, value and remedy.
func TestBadInput(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	taken := l.Addr().String()
	const backend = "192.0.2.1:6443"

	for name, c := range map[string]struct {
		args []string
		yaml string // a file that -config names; FILE in want
		want string
	}{
		"port in use": {args: []string{"-listen", taken, backend},
			want: "tcplb: listen " + taken + ": address already in use: stop the other program or choose another port"},
		"monitor port in use": {args: []string{"-listen", "127.0.0.1:0", "-monitor", taken, backend},
			want: "tcplb: monitor " + taken + ": address already in use: stop the other program or choose another port"},
		"address not here": {args: []string{"-listen", "192.0.2.1:0", backend},
			want: "tcplb: listen 192.0.2.1:0: cannot assign requested address: use an address of this machine, or none to listen on all"},
		"no listen": {args: []string{backend},
			want: `tcplb: listen "": no address: give one, such as :9445`},
		"no backend": {args: []string{"-listen", ":0"},
			want: "tcplb: no backend: name at least one as host:port, after the flags"},
		"backend twice": {args: []string{"-listen", ":0", backend, backend},
			want: "tcplb: backends[1] " + backend + ": it is listed twice: remove one of the two"},
		"unknown flag": {args: []string{"-lisen", ":0"},
			want: "tcplb: flag provided but not defined: -lisen: tcplb -help lists the flags"},
		"flag's value": {args: []string{"-maxconn", "many"},
			want: `tcplb: invalid value "many" for flag -maxconn: maxconn many: no number of connections: give 1 or more, or auto: tcplb -help lists the flags`},
		"no file": {args: []string{"-config", "/nonexistent/tcplb.yaml"},
			want: "tcplb: -config open /nonexistent/tcplb.yaml: no such file or directory: name a file that can be read"},
		"flags beside a file": {args: []string{"-listen", ":0", "-config", "x.yaml", backend},
			want: "tcplb: -config x.yaml: the file gives all settings: move -listen " + backend + " into it"},
		"unknown key": {yaml: "listen: :0\nbackend: [a:1]\n",
			want: "tcplb: FILE: line 2: backend: no such key: correct its spelling or remove it"},
		"unknown key below": {yaml: "listen: :0\nbackends: [a:1]\ncheck:\n  intervall: 5s\n",
			want: "tcplb: FILE: line 4: check.intervall: no such key: correct its spelling or remove it"},
		"no unit": {yaml: "listen: :0\nbackends: [a:1]\ncheck: {interval: 5}\n",
			want: "tcplb: FILE: line 3: check.interval 5: give a time such as 5s or 500ms"},
		"interval": {yaml: "listen: :0\nbackends: [a:1]\ncheck: {interval: 48h}\n",
			want: "tcplb: check.interval 48h0m0s: out of range: give 1ms to 24h0m0s"},
		"maxconn 0": {yaml: "listen: :0\nbackends: [a:1]\nmaxconn: 0\n",
			want: "tcplb: FILE: maxconn 0: no number of connections: give 1 or more, or auto"},
		"algorithm": {args: []string{"-listen", ":0", "-algorithm", "rr", backend},
			want: "tcplb: algorithm rr: no such algorithm: choose one of first, leastconn, maglev, p2c, random, roundrobin, source, weightedroundrobin"},
		"control for all": {args: []string{"-listen", ":0", "-control", ":9455", backend},
			want: "tcplb: control :9455: open to others, without a password: write 127.0.0.1:port, or set control_anywhere"},
		"weight": {yaml: "listen: :0\nbackends:\n  - a:1\n  - {address: b:1, weight: 300}\n",
			want: "tcplb: backends[1].weight 300: out of range: give 0 to 256"},
		"weight of another kind": {yaml: "listen: :0\nbackends:\n  - a:1\n  - address: b:1\n    weight: much\n",
			want: "tcplb: FILE: line 5: backends[1].weight much: give a whole number within its range"},
		"unknown key of a backend": {yaml: "listen: :0\nbackends:\n  - address: b:1\n    wait: 1\n",
			want: "tcplb: FILE: line 4: backends[0].wait: no such key: correct its spelling or remove it"},
		"send_proxy": {yaml: "listen: :0\nbackends:\n  - address: b:1\n    send_proxy: v3\n",
			want: "tcplb: FILE: send_proxy v3: no such version: give v1 or v2"},
		"queue": {args: []string{"-listen", ":0", "-queue", "-1", backend},
			want: "tcplb: queue -1: out of range: give 0 to 1000000"},
		"empty file": {yaml: "# nothing\n",
			want: "tcplb: FILE: backends: there is none: list at least one as host:port"},
	} {
		t.Run(name, func(t *testing.T) {
			args := c.args
			if c.yaml != "" {
				name := file(t, c.yaml)
				args = []string{"-config", name}
				c.want = strings.ReplaceAll(c.want, "FILE", name)
			}
			var stdout, stderr strings.Builder
			cmd := command(t.Context(), t, args...)
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			exit, ok := errors.AsType[*exec.ExitError](cmd.Run())
			require.True(t, ok, stderr.String())
			require.Equal(t, c.want+"\n", stderr.String())
			require.Equal(t, 2, exit.ExitCode())
			require.Empty(t, stdout.String())
		})
	}
}

// program is tcplb in a process of its own. Its log lines are read one by one.
type program struct {
	cmd  *exec.Cmd
	log  *bufio.Scanner
	seen []string
}

func start(t *testing.T, args ...string) *program {
	// It hangs, rather than fails, when a line does not come: so there is a bound.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	p := &program{cmd: command(ctx, t, args...)}
	stderr, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	p.log = bufio.NewScanner(stderr)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		cancel()
		p.cmd.Wait() // a second one only returns an error
	})
	return p
}

// line returns the next log line that matches, and what its groups matched.
func (p *program) line(t *testing.T, pattern string) []string {
	wanted := regexp.MustCompile(pattern)
	for p.log.Scan() {
		p.seen = append(p.seen, p.log.Text())
		if m := wanted.FindStringSubmatch(p.log.Text()); m != nil {
			return m
		}
	}
	require.FailNow(t, "no such line", "want %s after\n%s", pattern, strings.Join(p.seen, "\n"))
	return nil
}

func serve(t *testing.T, name string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.WriteString(conn, name)
				io.Copy(conn, conn)
			}()
		}
	}()
	return l.Addr().String()
}

func connect(t *testing.T, address, want string) net.Conn {
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	name := make([]byte, len(want))
	_, err = io.ReadFull(conn, name)
	require.NoError(t, err)
	require.Equal(t, want, string(name))
	return conn
}

func TestServeReloadDrain(t *testing.T) {
	a, b := serve(t, "a"), serve(t, "b")
	const head = "listen: 127.0.0.1:0\nready: 127.0.0.1:0\nmonitor: 127.0.0.1:0\nmaxconn: 100\ngrace: 1h\ncheck: {kind: tcp}\n"
	config := file(t, head+"backends: ["+a+"]\n")
	p := start(t, "-config", config)
	m := p.line(t, `serving listen=(\S+) ready=(\S+) monitor=(\S+) .*maxconn=100 backends=1`)
	listen, ready, monitor := m[1], m[2], m[3]
	p.line(t, `backend=`+a+` up=true state=online`)
	for _, port := range []string{ready, monitor} {
		response, err := http.Get("http://" + port + "/")
		require.NoError(t, err)
		response.Body.Close()
		require.Equal(t, http.StatusOK, response.StatusCode)
	}
	old := connect(t, listen, "a")

	// A bad file changes nothing, a good one only what comes after.
	require.NoError(t, os.WriteFile(config, []byte("backnds: []\n"), 0o600))
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	p.line(t, `level=ERROR msg="not reloaded, all stays as it was" err=".*backnds: no such key`)
	connect(t, listen, "a").Close()
	require.NoError(t, os.WriteFile(config, []byte(strings.Replace(head, "maxconn: 100", "maxconn: 50", 1)+"backends: ["+b+"]\n"), 0o600))
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	p.line(t, `reloaded backends=1`)
	p.line(t, `changes that need a restart" keys=maxconn`)
	connect(t, listen, "b").Close()

	// The first signal lets connections end by themselves.
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.line(t, `msg=stopping connections=\d+ grace=1h0m0s`)
	io.WriteString(old, "x")
	_, err := io.ReadFull(old, make([]byte, 1))
	require.NoError(t, err)
	old.Close()
	p.line(t, `msg=stopped`)
	require.NoError(t, p.cmd.Wait())
}

func TestSecondSignalEnds(t *testing.T) {
	a := serve(t, "a")
	p := start(t, "-listen", "127.0.0.1:0", "-check", "tcp", "-grace", "1h", a)
	listen := p.line(t, `serving listen=(\S+)`)[1]
	connect(t, listen, "a")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.line(t, `msg=stopping`)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	for p.log.Scan() { // until it ends
	}
	exit, ok := errors.AsType[*exec.ExitError](p.cmd.Wait())
	require.True(t, ok)
	require.Equal(t, syscall.SIGTERM, exit.Sys().(syscall.WaitStatus).Signal())
}
