package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lastbeat/lastbeat/examples/internal/capture"
	"github.com/lastbeat/lastbeat/examples/internal/load"
	"github.com/lastbeat/lastbeat/examples/internal/standin"
	"github.com/lastbeat/lastbeat/internal/netns"
	"github.com/lastbeat/lastbeat/internal/netns/nstest"
)

const roleEnv = "LASTBEAT_LAB_ROLE"

// TestRole is what the labs of the tests run on their nodes.
func TestRole(t *testing.T) {
	role := strings.Split(os.Getenv(roleEnv), " ")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var err error
	switch role[0] {
	case "":
		return
	case standin.RoleAPI:
		var s *standin.Server
		if s, err = standin.ForRole(role[0], role[1]); err == nil {
			err = s.Run(ctx, func([]net.Addr) { fmt.Println("listening") })
		}
	case "load":
		var c load.Config
		if err = json.Unmarshal([]byte(role[2]), &c); err == nil {
			err = load.Lines(ctx, c, os.Stdout)
		}
	case "wait":
		fmt.Println("up")
		<-ctx.Done()
	case "fail":
		fmt.Println("hello")
		fmt.Fprintln(os.Stderr, "why")
		os.Exit(3)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// rig is a lab whose output a test waits for.
type rig struct {
	*Lab
	t       *testing.T
	packets chan capture.Packet
	lines   chan Line
	ends    chan End
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, packets: make(chan capture.Packet, 1<<16), lines: make(chan Line, 1<<16), ends: make(chan End, 100)}
	var err error
	r.Lab, err = New(Config{
		Command: func(node, role string, args []string) *exec.Cmd {
			cmd := exec.Command("/proc/self/exe", "-test.run=^TestRole$")
			cmd.Env = append(os.Environ(), roleEnv+"="+role+" "+node+" "+strings.Join(args, " "))
			return cmd
		},
		Packet: func(p capture.Packet) { r.packets <- p },
		Line:   func(l Line) { r.lines <- l },
		Ended:  func(e End) { r.ends <- e },
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.Zero(t, r.Captured().Lost)
		require.NoError(t, r.Close())
		require.Empty(t, children(t), "nothing is left running")
		require.NoDirExists(t, r.Dir())
		goleak.VerifyNone(t)
	})
	return r
}

// children lists all processes below this one.
func children(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", "cat /proc/"+hostPid(t)+"/task/*/children").Output()
	require.NoError(t, err)
	var left []string
	for pid := range strings.FieldsSeq(string(out)) {
		if name, err := os.ReadFile("/proc/" + pid + "/cmdline"); err == nil && len(name) > 0 && !bytes.HasPrefix(name, []byte("sh\x00-c")) {
			left = append(left, string(name))
		}
	}
	return strings.Join(left, "\n")
}

func hostPid(t *testing.T) string {
	t.Helper()
	pid, err := os.Readlink("/proc/self")
	require.NoError(t, err)
	return pid
}

// next waits for a packet that matches.
func (r *rig) next(what string, match func(capture.Packet) bool) capture.Packet {
	r.t.Helper()
	return wait(r.t, what, r.packets, match)
}

func (r *rig) mark(text string) capture.Packet {
	r.t.Helper()
	return r.next(text, func(p capture.Packet) bool { return p.Kind == capture.Mark && strings.Contains(p.Text, text) })
}

func (r *rig) line(what string, match func(Line) bool) Line {
	r.t.Helper()
	return wait(r.t, what, r.lines, match)
}

// wait takes values until one matches; the time only bounds a test that fails.
func wait[T any](t *testing.T, what string, c chan T, match func(T) bool) T {
	t.Helper()
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	for {
		select {
		case v := <-c:
			if match(v) {
				return v
			}
		case <-limit.C:
			require.FailNow(t, "no "+what)
		}
	}
}

// eventually waits for what the kernel does in its own time.
func (r *rig) eventually(what string, f func() bool) {
	r.t.Helper()
	require.Eventually(r.t, f, 30*time.Second, 5*time.Millisecond, what)
}

// ping starts to ping from a node, every few milliseconds.
func (r *rig) ping(from string, to ...netip.Addr) {
	r.t.Helper()
	r.load(from, load.Config{Pings: to, PingEvery: 5 * time.Millisecond})
}

func (r *rig) load(from string, c load.Config) {
	r.t.Helper()
	b, err := json.Marshal(c)
	require.NoError(r.t, err)
	require.NoError(r.t, r.Start(from, "load", string(b)))
}

// linked tells whether a node sees a carrier.
func (r *rig) linked(node string) (running bool) {
	r.t.Helper()
	require.NoError(r.t, r.NS(node).Do(func() error {
		ifi, err := net.InterfaceByName(Interface)
		if err == nil {
			running = ifi.Flags&net.FlagRunning != 0
		}
		return err
	}))
	return running
}

func isReply(from, to netip.Addr) func(capture.Packet) bool {
	return func(p capture.Packet) bool { return p.Kind == capture.EchoReply && p.Src == from && p.Dst == to }
}

// Every host reaches every other, and the capture tells the nodes apart.
func TestKernelHostsReachEachOther(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		r := newRig(t)
		missing := map[string]bool{}
		for _, a := range Hosts() {
			var others []netip.Addr
			for _, b := range Hosts() {
				if a != b {
					others = append(others, b.Addr)
					missing[a.Name+" answers "+b.Name] = true
				}
			}
			r.ping(a.Name, others...)
		}
		names := map[netip.Addr]string{}
		for _, h := range Hosts() {
			names[h.Addr] = h.Name
		}
		r.next("answers of all to all", func(p capture.Packet) bool {
			if p.Kind == capture.EchoReply {
				require.Equal(t, names[p.Src], r.NodeOf(p.SrcMAC))
				delete(missing, names[p.Src]+" answers "+names[p.Dst])
			}
			return len(missing) == 0
		})
	})
}

// A silent cut stops the traffic and leaves the carrier; a lost carrier shows.
func TestKernelCuts(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		r := newRig(t)
		client, _ := HostNamed("client")
		master2, _ := HostNamed("master2")
		answer := isReply(master2.Addr, client.Addr)
		r.ping("client", master2.Addr)
		first := r.next("answer", answer)
		require.True(t, r.linked("master2"))

		require.NoError(t, r.Silent("master2"))
		require.True(t, r.linked("master2"))
		fault := r.mark(`{"event":"fault","fault":"silent","node":"master2"}`)
		require.True(t, first.At.Before(fault.At))
		// What had crossed the switch before the cut may still come in.
		require.NoError(t, r.Lab.Mark(Mark{Event: "after"}))
		r.mark("after")
		unanswered := 0
		r.next("unanswered requests", func(p capture.Packet) bool {
			require.False(t, answer(p), "an answer through the cut")
			if p.Kind == capture.EchoRequest {
				unanswered++
			}
			return unanswered == 10
		})
		require.NoError(t, r.Restore("master2"))
		r.mark("restore")
		r.next("answer after the cut", answer)

		require.NoError(t, r.Carrier("master2"))
		r.eventually("carrier lost", func() bool { return !r.linked("master2") })
		r.mark("carrier")
		require.NoError(t, r.Restore("master2"))
		r.eventually("carrier back", func() bool { return r.linked("master2") })
		r.mark("restore")
		r.next("answer with the carrier back", answer)

		for _, f := range []func(string) error{r.Silent, r.Carrier, r.Restore} {
			require.ErrorContains(t, f("master9"), `no node "master9"`)
		}
	})
}

// The client's requests are answered, time out while the server is cut off, and
// are answered again.
func TestKernelLoadThroughFault(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		r := newRig(t)
		require.NoError(t, r.Start("master2", standin.RoleAPI))
		r.line("listening", func(l Line) bool { return l == Line{"master2", standin.RoleAPI, "listening"} })
		master2, _ := HostNamed("master2")
		r.load("client", load.Config{
			Targets: []load.Target{{Name: "api", URL: "https://" + master2.Addr.String() + standin.APIAddr + "/readyz"}},
			Every:   20 * time.Millisecond,
			Timeout: 400 * time.Millisecond,
		})
		record := func(l Line) (rec load.Record) {
			require.Equal(t, "load", l.Role)
			require.NoError(t, json.Unmarshal([]byte(l.Text), &rec))
			return rec
		}
		served := func(l Line) bool {
			rec := record(l)
			return rec.Error == "" && rec.Server == "master2" && rec.Status == 200
		}
		r.line("success", served)
		r.next("connection", func(p capture.Packet) bool {
			return p.Kind == capture.TCP && p.Flags == capture.SYN && p.Dst == master2.Addr && p.DstPort == 6443
		})
		require.NoError(t, r.Silent("master2"))
		r.line("time-out", func(l Line) bool { return record(l).TimedOut })
		require.NoError(t, r.Restore("master2"))
		r.line("success after the fault", served)

		require.NoError(t, r.Term("client", "load"))
		require.NoError(t, r.Wait("client", "load"))
		require.NoError(t, r.Kill("master2", standin.RoleAPI))
		require.ErrorContains(t, r.Wait("master2", standin.RoleAPI), "killed")
	})
}

func TestKernelProcesses(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		r := newRig(t)
		end := func(role string) End {
			t.Helper()
			return wait(t, role+"'s end", r.ends, func(e End) bool { return e.Role == role })
		}
		up := func(node string) {
			t.Helper()
			r.line("up", func(l Line) bool { return l == Line{node, "wait", "up"} })
		}

		require.NoError(t, r.Start("master0", "fail"))
		failed := end("fail")
		require.ErrorContains(t, failed.Err, "exit status 3")
		require.False(t, failed.Asked)
		require.Equal(t, []string{"why"}, failed.Stderr)
		require.Equal(t, Line{"master0", "fail", "hello"}, <-r.lines)
		require.ErrorContains(t, r.Wait("master0", "fail"), "exit status 3")
		require.False(t, r.Running("master0", "fail"))

		require.NoError(t, r.Start("master0", "wait"))
		require.NoError(t, r.Start("master1", "wait"), "the same role on another node")
		require.ErrorContains(t, r.Start("master0", "wait"), "wait on master0 runs already")
		require.ErrorContains(t, r.Start("master9", "wait"), `no node "master9"`)
		up("master0")

		require.NoError(t, r.Freeze("master0", "wait"))
		r.mark(`{"event":"fault","fault":"freeze","node":"master0","role":"wait"}`)
		require.NoError(t, r.Signal("master0", "wait", syscall.SIGTERM))
		r.eventually("stopped", func() bool { return strings.Contains(state(t, r, "master0"), "T (stopped)") })
		require.NoError(t, r.Thaw("master0", "wait"))
		r.mark(`{"event":"thaw","node":"master0","role":"wait"}`)
		require.NoError(t, r.Wait("master0", "wait"), "the signal was waiting")
		require.Equal(t, End{Node: "master0", Role: "wait"}, end("wait"))

		require.NoError(t, r.Start("master0", "wait"), "once ended it starts again")
		up("master0")
		require.NoError(t, r.Kill("master0", "wait"))
		r.mark(`{"event":"fault","fault":"kill","node":"master0","role":"wait"}`)
		killed := end("wait")
		require.True(t, killed.Asked)
		require.ErrorContains(t, killed.Err, "killed")
		require.ErrorContains(t, r.Kill("master0", "wait"), "does not run")

		require.NoError(t, r.Stop("master1", "wait", time.Minute))
		require.True(t, end("wait").Asked)
		require.NoError(t, r.StartProgram("master1", "deaf", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done"))
		r.line("up", func(l Line) bool { return l.Role == "deaf" })
		require.NoError(t, r.Stop("master1", "deaf", time.Millisecond), "killed after the patience")
		require.Error(t, r.StartProgram("master1", "none", "/nonexistent"))
	})
}

func state(t *testing.T, r *rig, node string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	inner := r.processes[processKey{node, "wait"}].cmd.Process.Pid
	out, err := exec.Command("sh", "-c", "cat /proc/"+hostPid(t)+"/task/*/children").Output()
	require.NoError(t, err)
	for pid := range strings.FieldsSeq(string(out)) {
		status, _ := os.ReadFile("/proc/" + pid + "/status")
		if own, _ := parseStatus(string(status)); own == inner {
			return string(status)
		}
	}
	return ""
}

// What a dead process leaves behind is taken away when it has ended too.
func TestKernelReapsOrphans(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		r := newRig(t)
		require.NoError(t, r.StartProgram("master0", "parent", "sh", "-c", "sleep 0.05 >/dev/null 2>&1 & exit 0"))
		require.NoError(t, r.Wait("master0", "parent"))
		r.eventually("an orphan of ours", func() bool { return len(deadChildren()) > 0 })
		r.eventually("no orphan", func() bool { return len(deadChildren()) == 0 })
	})
}

// The printed commands lead from the host into the nodes. The test itself stays
// on the host here; a child makes the lab, and ends when it is left.
func TestKernelEnter(t *testing.T) {
	if os.Getenv("LASTBEAT_LAB_ENTER") != "" {
		if err := netns.Setup(); err != nil {
			nstest.Missing(t, err.Error())
		}
		l, err := New(Config{})
		require.NoError(t, err)
		for _, h := range Hosts() {
			enter, err := l.Enter(h.Name)
			require.NoError(t, err)
			fmt.Println("enter", h.Prefix(), enter)
		}
		_, err = l.Enter("master9")
		require.ErrorContains(t, err, `no node "master9"`)
		fmt.Println("end")
		_, err = io.Copy(io.Discard, os.Stdin)
		require.NoError(t, err)
		require.NoError(t, l.Close())
		return
	}
	nstest.Peer(t, "nsenter")
	ip := nstest.Peer(t, "ip")
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "LASTBEAT_LAB_ENTER=1")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	runtime.LockOSThread() // the child dies with the thread
	defer runtime.UnlockOSThread()
	if err := netns.StartIsolated(cmd); err != nil {
		nstest.Missing(t, err.Error())
	}
	entered := 0
	lines := bufio.NewScanner(stdout)
	for lines.Scan() && lines.Text() != "end" {
		if strings.Contains(lines.Text(), "--- SKIP") {
			nstest.Missing(t, "in its namespaces")
		}
		fields := strings.Fields(lines.Text())
		if len(fields) < 3 || fields[0] != "enter" {
			continue
		}
		command := append(fields[2:], ip, "-o", "addr", "show", "dev", Interface)
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		require.NoError(t, err, "%s: %s", command, out)
		require.Contains(t, string(out), "inet "+fields[1])
		entered++
	}
	require.NoError(t, stdin.Close())
	rest, err := io.ReadAll(stdout)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait(), "%s", rest)
	require.Equal(t, len(Hosts()), entered)
}

// A real keepalived takes the address, keeps it in the kernel when killed, takes
// it again when restarted, and says goodbye when asked to end.
func TestKernelKeepalived(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		nstest.Peer(t, "keepalived")
		r := newRig(t)
		scripts := map[string]string{}
		for _, c := range allChecks() {
			scripts[c.Name] = "/bin/true"
		}
		config, err := KeepalivedConfig{Node: "master1", Advert: 100 * time.Millisecond, Scripts: scripts}.Render()
		require.NoError(t, err)
		vip := netip.PrefixFrom(API().VIP, PrefixBits)
		advert := func(vrid, priority uint8) func(capture.Packet) bool {
			return func(p capture.Packet) bool {
				return p.Kind == capture.Advert && r.NodeOf(p.SrcMAC) == "master1" && p.VRID == vrid && p.Priority == priority
			}
		}
		announced := func(p capture.Packet) bool {
			return p.Kind == capture.GratuitousARP && p.Src == vip.Addr() && r.NodeOf(p.HW) == "master1"
		}

		require.NoError(t, r.StartKeepalived("master1", config))
		r.next("announcement", announced)
		r.next("advert with all checks good", advert(206, 68))
		require.NoError(t, r.Kill("master1", RoleKeepalived))
		require.Error(t, r.Wait("master1", RoleKeepalived))
		addrs, err := r.NS("master1").Addrs(Interface)
		require.NoError(t, err)
		require.Contains(t, addrs, vip)

		require.NoError(t, r.StartKeepalived("master1", config))
		r.next("announcement after the restart", announced)
		require.NoError(t, r.Term("master1", RoleKeepalived))
		r.next("goodbye", advert(206, 0))
		require.NoError(t, r.Wait("master1", RoleKeepalived))
		addrs, err = r.NS("master1").Addrs(Interface)
		require.NoError(t, err)
		require.NotContains(t, addrs, vip)
	})
}
