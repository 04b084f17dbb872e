package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/examples/internal/node"
	"github.com/lastbeat/lastbeat/examples/internal/standin"
	"github.com/lastbeat/lastbeat/internal/netns"
	"github.com/lastbeat/lastbeat/internal/netns/nstest"
	"github.com/lastbeat/lastbeat/vrrp"
)

// asMain makes the test binary the program itself, in a process of its own.
const asMain = "LASTBEAT_VIPNODE_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) == "1" {
		main()
	}
	os.Exit(m.Run())
}

// patience bounds waits for things that take a few seconds at most, so that a busy
// machine fails no test.
const patience = 40 * time.Second

// fast is a master of the example with short intervals, and without others to talk
// to but one that listens only.
const fast = `name: master0
status: 127.0.0.1:9455
balancer:
  listen: ":9445"
  ready: ":9444"
  maxconn: 20
  backends: [127.0.0.1:6443, 127.0.0.2:6443]
  check: {interval: 50ms, timeout: 5s, rise: 1, fall: 2}
redirect: {vips: [192.168.37.201], from: 6443, to: 9445, interval: 50ms}
checks:
  - name: chk_ocp_lb
    all: [{http: "http://localhost:9444/"}, {redirect: true}]
    interval: 50ms
    timeout: 5s
  - name: chk_ocp_both
    any:
      - all: [{http: "http://localhost:9444/"}, {redirect: true}]
      - http: https://localhost:6443/readyz
    interval: 50ms
    timeout: 5s
  - {name: chk_mcs, tcp: "localhost:22624", interval: 50ms, timeout: 5s}
  - {name: chk_ingress, http: "http://localhost:1936/healthz", interval: 50ms, timeout: 5s}
  - {name: chk_ingress_ready, http: "http://localhost:1936/healthz/ready", interval: 50ms, timeout: 5s}
  - {name: chk_default_ingress, http: "http://localhost:1937/", interval: 50ms, timeout: 5s}
instances:
  - name: API
    interface: br-ex
    vrid: 206
    version: 2
    priority: 40
    source: 192.168.37.21
    peers: [192.168.37.22]
    password: hj4h5_ap
    addresses: [192.168.37.201/24]
    label: vip
    tracks: {chk_ocp_lb: 20, chk_ocp_both: 5, chk_mcs: 3}
  - name: INGRESS
    interface: br-ex
    vrid: 45
    version: 2
    priority: 20
    source: 192.168.37.21
    peers: [192.168.37.22]
    password: hj4h5_in
    addresses: [192.168.37.202/24]
    label: vip
    tracks: {chk_ingress: 0, chk_ingress_ready: 10, chk_default_ingress: 50}
`

// rig is a host with an interface, its stand-in servers, and a neighbour that
// hears adverts and sends none.
type rig struct {
	t    *testing.T
	here *netns.NS
	nft  string
	peer net.PacketConn

	api, other, router, mcs, ingress *server
}

// newRig is called inside of the namespaces that nstest makes.
func newRig(t *testing.T) *rig {
	r := &rig{t: t, nft: nstest.Peer(t, "nft")}
	var err error
	r.here, err = netns.Current()
	require.NoError(t, err)
	t.Cleanup(func() { r.here.Close() })
	there, err := netns.New()
	require.NoError(t, err)
	t.Cleanup(func() { there.Close() })
	require.NoError(t, netns.Veth(r.here, "br-ex", there, "eth0"))
	require.NoError(t, r.here.AddAddr("br-ex", netip.MustParsePrefix("192.168.37.21/24")))
	require.NoError(t, there.AddAddr("eth0", netip.MustParsePrefix("192.168.37.22/24")))
	require.NoError(t, there.Do(func() (err error) {
		r.peer, err = net.ListenPacket("ip4:112", "192.168.37.22")
		return err
	}))
	t.Cleanup(func() { r.peer.Close() })
	r.api = r.serve(func() *standin.Server { return standin.API("a", "127.0.0.1:6443") })
	r.other = r.serve(func() *standin.Server { return standin.API("b", "127.0.0.2:6443") })
	r.router = r.serve(func() *standin.Server { return standin.Router("router", ":80", ":443", ":1936") })
	r.mcs = r.serve(func() *standin.Server { return standin.Process("mcs", ":22624") })
	r.ingress = r.serve(func() *standin.Server { return standin.Process("ingress", ":1937") })
	return r
}

// server is a stand-in that can be stopped and started again.
type server struct {
	t    *testing.T
	make func() *standin.Server
	now  *standin.Server
	stop func()
}

func (r *rig) serve(make func() *standin.Server) *server {
	s := &server{t: r.t, make: make}
	s.start()
	r.t.Cleanup(func() { s.stop() })
	return s
}

func (s *server) start() {
	ctx, cancel := context.WithCancel(context.Background())
	listening, ended := make(chan struct{}), make(chan error, 1)
	s.now = s.make()
	go func() { ended <- s.now.Run(ctx, func([]net.Addr) { close(listening) }) }()
	select {
	case <-listening:
	case err := <-ended:
		require.FailNow(s.t, "a stand-in ended", "%v", err)
	}
	s.stop = sync.OnceFunc(func() { cancel(); <-ended })
}

// daemon is vipnode in a process of its own.
type daemon struct {
	r      *rig
	cmd    *exec.Cmd
	config string
	out    output
	ended  chan struct{}
}

// output is what a process has written so far.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func vipnode(t *testing.T, config string, args ...string) *exec.Cmd {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, append([]string{"-config", config}, args...)...)
	cmd.Env = append(os.Environ(), asMain+"=1", "GORACE=atexit_sleep_ms=0")
	return cmd
}

func file(t *testing.T, text string) string {
	name := filepath.Join(t.TempDir(), "node.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func (r *rig) start(text string) *daemon {
	d := &daemon{r: r, config: file(r.t, text), ended: make(chan struct{})}
	d.cmd = vipnode(r.t, d.config, "-text")
	d.cmd.Stdout, d.cmd.Stderr = &d.out, &d.out
	require.NoError(r.t, d.cmd.Start())
	go func() { _ = d.cmd.Wait(); close(d.ended) }()
	r.t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		<-d.ended
		if r.t.Failed() {
			r.t.Log(d.out.String())
		}
	})
	return d
}

func (d *daemon) signal(sig syscall.Signal) { require.NoError(d.r.t, d.cmd.Process.Signal(sig)) }

// rewrite changes the file and has it read again.
func (d *daemon) rewrite(text string) {
	require.NoError(d.r.t, os.WriteFile(d.config, []byte(text), 0o600))
	d.signal(syscall.SIGHUP)
}

// status asks the status page. What it does not answer is an empty status.
func (d *daemon) status() (s node.Status) {
	answer, err := http.Get("http://127.0.0.1:9455/status")
	if err != nil {
		return s
	}
	defer answer.Body.Close()
	require.NoError(d.r.t, json.NewDecoder(answer.Body).Decode(&s))
	return s
}

// until waits for a status, and returns it.
func (d *daemon) until(what string, ok func(node.Status) bool) (s node.Status) {
	d.r.t.Helper()
	d.r.eventually(what, func() bool { s = d.status(); return ok(s) })
	return s
}

// holding waits until the node has both addresses and the rule.
func (d *daemon) holding() node.Status {
	d.r.t.Helper()
	return d.until("both addresses and the rule", func(s node.Status) bool {
		return s.Instances["API"].State == "Active" && s.Instances["API"].Priority == 68 &&
			s.Instances["INGRESS"].State == "Active" && s.Instances["INGRESS"].Priority == 80 &&
			s.Instances["API"].Addresses.State == "held" && s.Instances["INGRESS"].Addresses.State == "held" &&
			s.Redirect.State == "installed"
	})
}

func (d *daemon) logged(line string) {
	d.r.t.Helper()
	d.r.eventually("the log line "+line, func() bool { return strings.Contains(d.out.String(), line) })
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	require.Eventually(r.t, ok, patience, 10*time.Millisecond, what)
}

// addresses are those of the interface that are not the host's own.
func (r *rig) addresses() (out []string) {
	all, err := r.here.Addrs("br-ex")
	require.NoError(r.t, err)
	for _, p := range all {
		if p.Addr().Is4() && p.String() != "192.168.37.21/24" {
			out = append(out, p.String())
		}
	}
	return out
}

// ruleset is what stock nft lists.
func (r *rig) ruleset() string {
	out, err := exec.Command(r.nft, "list", "ruleset").CombinedOutput()
	require.NoError(r.t, err, string(out))
	return string(out)
}

func (r *rig) run(name string, args ...string) {
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(r.t, err, "%s %s\n%s", name, strings.Join(args, " "), out)
}

// heard waits until the neighbour has received an advert with this priority from
// each of the virtual routers.
func (r *rig) heard(priority uint8, vrids ...uint8) {
	r.t.Helper()
	missing := map[uint8]bool{}
	for _, id := range vrids {
		missing[id] = true
	}
	require.NoError(r.t, r.peer.SetReadDeadline(time.Now().Add(patience)))
	var buf [1500]byte
	for len(missing) > 0 {
		n, from, err := r.peer.ReadFrom(buf[:])
		require.NoError(r.t, err, "no advert with priority %d of %v", priority, missing)
		src, _ := netip.AddrFromSlice(from.(*net.IPAddr).IP.To4())
		a, err := vrrp.ParseAdvert(buf[:n], src, netip.MustParseAddr("192.168.37.22"), nil)
		require.NoError(r.t, err)
		if a.Priority == priority {
			delete(missing, a.VRID)
		}
	}
}

// exitStatus waits for the end of a command.
func exitStatus(t *testing.T, err error) int {
	if err == nil {
		return 0
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	require.True(t, ok, fmt.Sprint(err))
	return exit.ExitCode()
}
