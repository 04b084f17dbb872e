package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/internal/netns/nstest"
)

// program is the program as a person starts it: in a process group of its own, as
// a shell would.
type program struct {
	t      *testing.T
	cmd    *exec.Cmd
	token  string // in the environment of all that it starts
	lines  *bufio.Scanner
	seen   []string
	stderr bytes.Buffer
}

func start(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(self(t), args...), token: t.Name() + t.TempDir()}
	p.cmd.Env = append(os.Environ(), asProgram+"="+p.token, "GORACE=atexit_sleep_ms=0")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.lines = bufio.NewScanner(stdout)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	return p
}

// until reads output up to a line with the text. Where there can be no lab the
// test ends here.
func (p *program) until(text string) {
	p.t.Helper()
	for p.lines.Scan() {
		line := p.lines.Text()
		p.seen = append(p.seen, line)
		if strings.Contains(line, errNoLab.Error()) {
			p.kill()
			nstest.Missing(p.t, line)
		}
		if strings.Contains(line, text) {
			return
		}
	}
	_ = p.cmd.Wait()
	if strings.Contains(p.stderr.String(), errNoLab.Error()) {
		nstest.Missing(p.t, p.stderr.String())
	}
	require.Fail(p.t, "the program ended without a line that contains "+text, "%s\n%s", p.output(), &p.stderr)
}

func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func (p *program) output() string { return strings.Join(p.seen, "\n") }

// wait reads the rest of the output and returns the exit status.
func (p *program) wait() int {
	for p.lines.Scan() {
		p.seen = append(p.seen, p.lines.Text())
	}
	_ = p.cmd.Wait() // the status tells
	return p.cmd.ProcessState.ExitCode()
}

// alive counts the processes that the program has started, itself included. With
// the last of them the lab's namespaces are gone: they have no names.
func (p *program) alive() int {
	n := 0
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(p.t, err)
	for _, f := range files {
		env, _ := os.ReadFile(f) // others' cannot be read, and those that have just ended
		if bytes.Contains(env, []byte(asProgram+"="+p.token+"\x00")) {
			n++
		}
	}
	return n
}

func (p *program) requireNothingLeft() {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return p.alive() == 0 }, 10*time.Second, 10*time.Millisecond)
}

// One real run. What it measures is judged generously: this is no measurement,
// and the machine may be busy.
func TestKernelSilent(t *testing.T) {
	dir := t.TempDir()
	figures, picture, frames := filepath.Join(dir, "a.json"), filepath.Join(dir, "a.svg"), filepath.Join(dir, "a.pcap")
	p := start(t, "-until", "takeover", "-json", figures, "-svg", picture, "-pcap", frames)
	p.until("fault  ")
	require.Greater(t, p.alive(), 15, "the nodes' programs")
	require.Zero(t, p.wait(), "%s\n%s", p.output(), &p.stderr)
	p.requireNothingLeft()
	t.Log("\n" + p.output())

	f := readFigures(t, figures)
	require.False(t, f.Simulated)
	require.Equal(t, "silent", f.Fault)
	require.Len(t, f.Runs, 1)
	run := f.Runs[0]
	require.Len(t, run.Results, len(virtuals))
	for _, r := range run.Results {
		require.True(t, r.Moved, r.VIP)
		require.Equal(t, firstHolder, r.OldHolder)
		require.Contains(t, masters[:2], r.NewHolder)
		require.NotNil(t, r.Takeover)
		require.Greater(t, milliseconds(*r.Takeover), 2*time.Second, "three intervals, and one may have been held up")
		require.Greater(t, milliseconds(r.Gap), time.Second)
		require.Greater(t, r.Requests, 50)
		require.Positive(t, r.Failed)
		require.Less(t, r.Failed, r.Requests)
	}
	require.Equal(t, run.Lost > 0, strings.Contains(p.output(), "these figures have holes"))
	require.Regexp(t, `API: first reply from master[01] at the client`, p.output())

	svg, err := os.Open(picture)
	require.NoError(t, err)
	defer svg.Close()
	requireXML(t, svg)
	info, err := os.Stat(frames)
	require.NoError(t, err)
	require.Greater(t, info.Size(), int64(10_000))
}

func TestKernelInterrupt(t *testing.T) {
	for _, tt := range []struct {
		name   string
		signal syscall.Signal
		group  bool // to all of the terminal's foreground, as Ctrl-C does
		status int
	}{
		{"Ctrl-C", syscall.SIGINT, true, interrupted},
		{"TERM", syscall.SIGTERM, false, interrupted},
		{"KILL", syscall.SIGKILL, false, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			picture := filepath.Join(t.TempDir(), "a.svg")
			p := start(t, "-svg", picture)
			p.until("building")
			require.Greater(t, p.alive(), 1)
			pid := p.cmd.Process.Pid
			if tt.group {
				pid = -pid
			}
			require.NoError(t, syscall.Kill(pid, tt.signal))
			require.Equal(t, tt.status, p.wait(), "%s\n%s", p.output(), &p.stderr)
			p.requireNothingLeft()
			require.Empty(t, p.stderr.String())
			require.NoFileExists(t, picture)
		})
	}
}

// Where namespaces are forbidden the program says so, once, and simulates.
func TestKernelWithoutNamespaces(t *testing.T) {
	forbidden := func(args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
		const limit = "/proc/sys/user/max_net_namespaces"
		script := `echo 0 >` + limit + ` || exit 99; exec "$0" "$@"`
		cmd := exec.Command("sh", append([]string{"-c", script, self(t)}, args...)...)
		cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0")
		asRootOfUserNamespace(cmd) // the limit is that namespace's
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() == 99 {
			nstest.Missing(t, fmt.Sprintf("needs a user namespace with a limit of its own: %v %s", err, &stderr))
		}
		return cmd, &stdout, &stderr
	}
	cmd, stdout, stderr := forbidden("-until", "takeover", "-svg", "")
	require.Zero(t, cmd.ProcessState.ExitCode())
	require.Empty(t, stderr.String())
	require.Equal(t, 1, strings.Count(stdout.String(), errNoLab.Error()))
	require.Contains(t, stdout.String(), "max_user_namespaces", "the remedy")
	require.Contains(t, stdout.String(), "API: first reply from")
	for line := range strings.Lines(stdout.String()) {
		require.True(t, strings.HasPrefix(line, "simulated"), line)
	}

	cmd, stdout, stderr = forbidden("-fault", "none")
	require.Equal(t, 2, cmd.ProcessState.ExitCode())
	require.Empty(t, stdout.String())
	require.Regexp(t, `\Afailover: `+errNoLab.Error()+`.*\n\z`, stderr.String())
}

// Only -peer keepalived needs anything installed.
func TestKernelWithoutKeepalived(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		for _, dir := range []string{"/usr/sbin", "/sbin"} {
			require.NoError(t, syscall.Mount("none", dir, "tmpfs", 0, ""))
		}
		cmd := exec.Command(self(t), "-peer", "keepalived")
		cmd.Env = []string{"PATH=/nowhere"}
		requireUsageOf(t, cmd, "keepalived is not installed")
	})
}

// In a user namespace keepalived takes every check for good: no comparison.
func TestKernelKeepalivedWithoutRoot(t *testing.T) {
	nstest.Peer(t, "keepalived")
	if err := asRootOfUserNamespace(exec.Command("true")).Run(); err != nil {
		nstest.Missing(t, "needs user namespaces: "+err.Error())
	}
	requireUsageOf(t, asRootOfUserNamespace(exec.Command(self(t), "-peer", "keepalived")), "run as root")
}

// asRootOfUserNamespace lets a command be root in a user namespace of its own.
func asRootOfUserNamespace(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	return cmd
}

func requireUsage(t *testing.T, args []string, want string) {
	t.Helper()
	requireUsageOf(t, exec.Command(self(t), args...), want)
}

// requireUsageOf wants one line and exit status 2, and nothing else.
func requireUsageOf(t *testing.T, cmd *exec.Cmd, want string) {
	t.Helper()
	cmd.Env = append(append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0"), cmd.Env...)
	cmd.Dir = t.TempDir() // where the picture can be written
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	require.NotNil(t, cmd.ProcessState, err)
	require.Equal(t, 2, cmd.ProcessState.ExitCode(), stderr.String())
	require.Empty(t, stdout.String())
	require.Regexp(t, `\Afailover: [^\n]*`+regexp.QuoteMeta(want)+`[^\n]*\n\z`, stderr.String())
}

func TestBadFlags(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "no", "file")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"-fault", "fire"}, "-fault fire: choose one of silent, carrier"},
		{[]string{"-advert", "500ms"}, "-advert 500ms: choose 1s or 100ms"},
		{[]string{"-advert", "soon"}, `"soon" for flag -advert`},
		{[]string{"-until", "doomsday"}, "-until doomsday: choose one of takeover"},
		{[]string{"-runs", "0"}, "-runs 0: at least 1"},
		{[]string{"-peer", "ucarp"}, "-peer ucarp: only keepalived"},
		{[]string{"-peer", "keepalived", "-simulate"}, "choose one"},
		{[]string{"-fault", "none", "-simulate"}, "leave out -simulate"},
		{[]string{"-pcap", "a", "-simulate"}, "choose one"},
		{[]string{"-seed", "1"}, "add -simulate"},
		{[]string{"-color"}, "-color"},
		{[]string{"silent"}, `"silent": flags only`},
		{[]string{"-json", missing}, "-json: open " + missing},
		{[]string{"-svg", missing}, "name a file that can be written"},
		{[]string{"-simulate", "-svg", t.TempDir()}, "-svg: open "},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) { requireUsage(t, tt.args, tt.want) })
	}
}

func TestHelp(t *testing.T) {
	out := runs(t, self(t), "-help")
	for _, flag := range []string{"-fault", "-until", "-peer", "-simulate"} {
		require.Contains(t, out, flag)
	}
}
