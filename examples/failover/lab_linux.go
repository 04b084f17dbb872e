package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/lastbeat/lastbeat/examples/internal/lab"
	"github.com/lastbeat/lastbeat/internal/netns"
)

const (
	insideEnv   = "LASTBEAT_FAILOVER_INSIDE"
	reasonFD    = 3 // of the inner process: takes why there can be no lab
	interrupted = 130
	labTimeout  = 90 * time.Second
)

// runLab runs this program again inside namespaces of its own, and returns its
// exit status. All that it starts there ends with it.
func runLab(ctx context.Context, o options) (int, error) {
	if os.Getenv(insideEnv) != "" {
		reason := os.NewFile(reasonFD, "reason")
		if err := netns.Setup(); err != nil {
			_, _ = fmt.Fprint(reason, err) // nobody is left to tell
			return 1, nil
		}
		reason.Close()
		return runInside(ctx, o)
	}
	if o.peer != "" {
		if err := keepalivedFits(); err != nil {
			return 2, err
		}
	}
	read, write, err := os.Pipe()
	if err != nil {
		return 1, err
	}
	defer read.Close()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stderr, []*os.File{write}

	// The child dies with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = netns.StartIsolated(cmd)
	write.Close()
	if err != nil {
		return 1, fmt.Errorf("%w: %w", errNoLab, err)
	}
	stop := context.AfterFunc(ctx, func() {
		signal.Reset() // a second Ctrl-C ends us, and the lab with us
		_ = cmd.Process.Signal(syscall.SIGTERM)
	})
	defer stop()
	reason, err := io.ReadAll(read) // until the namespaces are made
	ended := cmd.Wait()
	if len(reason) > 0 {
		return 1, fmt.Errorf("%w: %s", errNoLab, reason)
	}
	if exit, ok := errors.AsType[*exec.ExitError](ended); ok {
		return exit.ExitCode(), err
	}
	return 0, errors.Join(err, ended)
}

// attempts bounds how often a run is begun: what is measured must begin with the
// one holder.
const attempts = 3

// errRestless says that a lab did not stand still until its fault.
var errRestless = errors.New(firstHolder + " lost an address before the fault, as on a machine that is too busy")

// keepalivedFits tells why the real keepalived cannot be shown here. In a user
// namespace its children may not call setgroups before they run a check; they
// give up with exit status 0, and every check counts as good.
func keepalivedFits() error {
	if _, err := lab.FindKeepalived(); err != nil {
		return err
	}
	groups, err := os.ReadFile("/proc/self/setgroups")
	if os.Geteuid() != 0 || err == nil && strings.TrimSpace(string(groups)) == "deny" {
		return errors.New("-peer keepalived: it takes every check for good where it may not call setgroups, as in a user namespace: run as root")
	}
	return nil
}

// runInside makes the runs, each in a fresh lab. When it is interrupted, the runs
// that came to their end are reported.
func runInside(ctx context.Context, o options) (int, error) {
	var runs []outcome
	code := 0
	for i := range o.runs {
		if o.runs > 1 {
			fmt.Printf("run %d of %d\n", i+1, o.runs)
		}
		out, err := runOnce(ctx, o)
		for again := 1; errors.Is(err, errRestless) && again < attempts; again++ {
			fmt.Printf("%v: again\n", err)
			out, err = runOnce(ctx, o)
		}
		if err != nil {
			return 1, err
		}
		if out == nil {
			if o.fault != "none" {
				code = interrupted
			}
			break
		}
		runs = append(runs, *out)
	}
	if err := finish(o, runs, ""); err != nil {
		return 1, err
	}
	return code, nil
}

// runOnce returns nil when it was interrupted, which is how -fault none ends.
func runOnce(ctx context.Context, o options) (*outcome, error) {
	w, err := newWatch(o)
	if err != nil {
		return nil, err
	}
	defer w.close()
	if err := w.bringUp(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, nil
		}
		return nil, err
	}
	if o.fault == "none" {
		return nil, w.keepUp(ctx)
	}
	if err := w.startClients(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, nil
		}
		return nil, err
	}
	// The fault comes at any moment of an interval.
	phase := rand.N(2 * o.advert)
	if !wait(ctx, 2*time.Second+phase) {
		return nil, nil
	}
	if !w.holdsBoth() {
		return nil, errRestless
	}
	if err := w.breakIt(o.fault); err != nil {
		return nil, err
	}
	if err := w.watchOn(ctx); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, nil
	}
	obs, err := w.finish()
	if err != nil {
		return nil, err
	}
	out := judge(obs)
	return &out, out.writeResults(os.Stdout)
}

// wait returns false when ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
