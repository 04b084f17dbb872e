package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/lastbeat/lastbeat/internal/netns"
)

const (
	insideEnv  = "LASTBEAT_FAILOVER_INSIDE"
	exitNoLab  = 77 // of the inner process: this machine has no namespaces for us
	labTimeout = 90 * time.Second
)

// runLab runs this program again inside namespaces of its own. All that it
// starts there ends with it.
func runLab(ctx context.Context, o options) (int, error) {
	if os.Getenv(insideEnv) != "" {
		if err := netns.Setup(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return exitNoLab, nil
		}
		return runInside(ctx, o)
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	var why tailWriter
	cmd.Stdout, cmd.Stderr = os.Stdout, &why

	// The child dies with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := netns.StartIsolated(cmd); err != nil {
		return 0, fmt.Errorf("%w: %w", errNoLab, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	err := cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if exit.ExitCode() == exitNoLab {
			return 0, fmt.Errorf("%w: %s", errNoLab, why.last())
		}
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}

// tailWriter passes standard error on and keeps its last line.
type tailWriter struct{ line []byte }

func (w *tailWriter) Write(b []byte) (int, error) {
	w.line = append([]byte(nil), b...)
	return os.Stderr.Write(b)
}

func (w *tailWriter) last() string { return string(trimNL(w.line)) }

func trimNL(b []byte) []byte {
	for len(b) > 0 && b[len(b)-1] == '\n' {
		b = b[:len(b)-1]
	}
	return b
}

// runInside makes the runs, each in a fresh lab.
func runInside(ctx context.Context, o options) (int, error) {
	var runs []outcome
	for i := range o.runs {
		if o.runs > 1 {
			fmt.Printf("run %d of %d\n", i+1, o.runs)
		}
		out, err := runOnce(ctx, o)
		if err != nil {
			return 1, err
		}
		if out == nil {
			return 0, nil // -fault none, or interrupted
		}
		runs = append(runs, *out)
	}
	if err := finish(o, runs, ""); err != nil {
		return 1, err
	}
	return 0, nil
}

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
	// The fault comes at any moment of an interval.
	phase := rand.N(2 * o.advert)
	if !wait(ctx, 2*time.Second+phase) {
		return nil, nil
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
