// Package nstest runs kernel tests in namespaces of their own.
//
// A test that cannot run here, because a privilege or a peer program is
// missing, is skipped with the missing thing named. With LASTBEAT_REQUIRE=1 in
// the environment, as in CI, it fails instead.
package nstest

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/lastbeat/lastbeat/internal/netns"
)

// childEnv names the test that the child process is to run in place.
const childEnv = "LASTBEAT_NETNS_CHILD"

// Run runs f in a child process that lives in fresh namespaces as a whole, so
// that goroutines, dials and children of the test all stay inside. The test
// binary is executed again for this one test; nothing that the child makes
// outlives it. Call it first in a top-level test.
func Run(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if os.Getenv(childEnv) == t.Name() {
		if err := netns.Setup(); err != nil {
			Missing(t, err.Error())
		}
		f(t)
		return
	}
	args := []string{"-test.run=^" + t.Name() + "$", "-test.v", "-test.count=1"}
	if d := flag.Lookup("test.timeout"); d != nil {
		args = append(args, "-test.timeout="+d.Value.String())
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), childEnv+"="+t.Name())
	if os.Getenv("GORACE") == "" { // the race detector would idle for a second at exit
		cmd.Env = append(cmd.Env, "GORACE=atexit_sleep_ms=0")
	}
	cmd.Stdout, cmd.Stderr = &out, &out

	// The child dies with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := netns.StartIsolated(cmd); err != nil {
		Missing(t, err.Error())
	}
	err := cmd.Wait()
	report := strings.TrimSpace(out.String())
	switch {
	case err != nil:
		t.Fatalf("in its namespaces: %v\n%s", err, report)
	case strings.Contains(report, "--- SKIP: "+t.Name()+" "):
		Missing(t, "in its namespaces:\n"+report)
	case !strings.Contains(report, "--- PASS: "+t.Name()+" "):
		t.Fatalf("the child did not run the test:\n%s", report)
	case testing.Verbose():
		t.Log("in its namespaces:\n" + report)
	}
}

// Peer returns the path of a program that a test compares with or talks to.
func Peer(t *testing.T, name string) string {
	t.Helper()
	for _, dir := range []string{"", "/usr/sbin/", "/sbin/"} {
		if path, err := exec.LookPath(dir + name); err == nil {
			return path
		}
	}
	Missing(t, "needs the program "+name+": install it, on Debian by `make peers`")
	return ""
}

// Missing skips the test with its reason, or fails it under LASTBEAT_REQUIRE=1.
func Missing(t *testing.T, reason string) {
	t.Helper()
	if os.Getenv("LASTBEAT_REQUIRE") == "1" {
		t.Fatal("required by LASTBEAT_REQUIRE=1: " + reason)
	}
	t.Skip(reason)
}
