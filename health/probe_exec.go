package health

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// ExecConfig configures an [Exec] prober.
type ExecConfig struct {
	// Path is the program, as an absolute path. There is no shell, so nothing
	// expands or splits its arguments.
	Path string
	// Args are the arguments after the program's name. Default: none.
	Args []string
	// Env is the environment, each "key=value". Default: that of this process.
	Env []string
	// Dir is the working directory. Default: that of this process.
	Dir string
	// MaxOutput is how many bytes at the end of what the program writes, to standard
	// output and error together, are kept for the reason. All of it is read. Default
	// 512, range 1 to 65,536.
	MaxOutput int
}

// Exec probes by running a program: exit status 0 is good, all else is bad,
// including death by a signal and not ending in time. A program that can't be
// started is a local error. Its standard input is empty.
//
// On Unix the program gets a process group of its own, which is killed as a whole
// when the time is over, and also when the program has ended: what it left running
// would add up probe by probe. A child that moved to another group and keeps the
// output open delays the result by 50 ms. A program that even the kernel can't kill
// (state D, on a dead disk or NFS server) holds the probe. Elsewhere only the
// program itself is killed.
//
// It needs no privilege and may be used by many goroutines at once. Make one with
// [NewExec].
type Exec struct{ config ExecConfig }

// NewExec returns a prober. Its error joins a *[ConfigError] for each bad field.
// Whether there is such a program is for each probe to see: it may be installed
// later.
func NewExec(config ExecConfig) (*Exec, error) {
	var faults []error
	if !filepath.IsAbs(config.Path) {
		faults = append(faults, &ConfigError{"", "Path", fmt.Sprintf("%q", config.Path), "an absolute path"})
	}
	if config.Dir != "" && !filepath.IsAbs(config.Dir) {
		faults = append(faults, &ConfigError{"", "Dir", fmt.Sprintf("%q", config.Dir), "an absolute path, or none"})
	}
	for _, e := range config.Env {
		if strings.Index(e, "=") < 1 {
			faults = append(faults, &ConfigError{"", "Env", fmt.Sprintf("%q", e), "key=value"})
		}
	}
	if config.MaxOutput == 0 {
		config.MaxOutput = 512
	}
	if config.MaxOutput < 1 || config.MaxOutput > 64<<10 {
		faults = append(faults, &ConfigError{"", "MaxOutput", config.MaxOutput, "1 to 65536"})
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	config.Args, config.Env = slices.Clone(config.Args), slices.Clone(config.Env)
	return &Exec{config}, nil
}

// outputDelay is how long a program that has ended may still have its output open,
// in the hands of a child.
const outputDelay = 50 * time.Millisecond

// Probe runs the program; it implements [Prober].
func (p *Exec) Probe(ctx context.Context) error {
	if err := begun(ctx); err != nil {
		return err
	}
	output := tail{max: p.config.MaxOutput}
	cmd := exec.CommandContext(ctx, p.config.Path, p.config.Args...)
	cmd.Env, cmd.Dir = p.config.Env, p.config.Dir
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.WaitDelay = outputDelay
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("health: exec %s: %w: %w", p.config.Path, ErrLocal, err)
	}
	err := cmd.Wait()
	killGroup(cmd)

	// The state of the process tells. Wait also fails when only a child of it still
	// has the output.
	switch {
	case cmd.ProcessState == nil: // the process is not ours to wait for
		return fmt.Errorf("health: exec %s: %w: %w", p.config.Path, ErrLocal, err)
	case cmd.ProcessState.Success():
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("health: exec %s: killed: %w%s", p.config.Path, ctx.Err(), output.quoted())
	}
	return fmt.Errorf("health: exec %s: %v%s", p.config.Path, cmd.ProcessState, output.quoted())
}

// tail keeps the last max bytes written to it.
type tail struct {
	max  int
	kept []byte
	lost bool
}

// Write takes all of b. os/exec does not call it twice at once.
func (t *tail) Write(b []byte) (int, error) {
	n := len(b)
	if n > t.max {
		b, t.lost = b[n-t.max:], true
	}
	if over := len(t.kept) + len(b) - t.max; over > 0 {
		t.kept, t.lost = append(t.kept[:0], t.kept[over:]...), true
	}
	t.kept = append(t.kept, b...)
	return n, nil
}

// quoted returns what was kept as the end of a sentence, empty if nothing was.
func (t *tail) quoted() string {
	text := strings.TrimSpace(string(t.kept))
	switch {
	case text == "":
		return ""
	case t.lost:
		text = "..." + text
	}
	return fmt.Sprintf(": %q", text)
}
