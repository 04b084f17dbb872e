package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	kill = syscall.SIGKILL

	maxLine   = 64 << 10        // a longer line is cut into pieces
	tailLines = 20              // of standard error that are kept
	lingering = 2 * time.Second // for output from what a dead process has left running
)

type processKey struct{ node, role string }

// process is a process and all that it starts in its process group.
type process struct {
	processKey
	cmd    *exec.Cmd
	stderr tail
	done   chan struct{}
	err    error // set before done is closed

	asked, ended bool // guarded by Lab.mu
}

// Start runs a role on a node. A role runs once on a node at a time.
func (l *Lab) Start(node, role string, args ...string) error {
	if l.config.Command != nil {
		return l.start(node, role, l.config.Command(node, role, args))
	}
	return l.start(node, role, exec.Command("/proc/self/exe", append([]string{"role", role, node}, args...)...))
}

// StartProgram runs another program on a node under the name of a role.
func (l *Lab) StartProgram(node, role, path string, args ...string) error {
	return l.start(node, role, exec.Command(path, args...))
}

func (l *Lab) start(node, role string, cmd *exec.Cmd) error {
	ns := l.nodes[node]
	if ns == nil {
		return fmt.Errorf("lab: no node %q", node)
	}
	p := &process{processKey: processKey{node, role}, cmd: cmd, done: make(chan struct{})}
	stdout := &lineWriter{line: func(text string) {
		if l.config.Line != nil {
			l.call(func() { l.config.Line(Line{node, role, text}) })
		}
	}}
	stderr := &lineWriter{line: p.stderr.add}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = stdout, stderr, lingering
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return errors.New("lab: closed")
	}
	if l.running(p.processKey) != nil {
		return fmt.Errorf("lab: %s on %s runs already", role, node)
	}
	if err := ns.Start(cmd); err != nil {
		return fmt.Errorf("lab: start %s on %s: %w", role, node, err)
	}
	l.processes[p.processKey] = p
	l.ended.Go(func() {
		err := cmd.Wait()
		stdout.flush()
		stderr.flush()
		l.mu.Lock()
		p.ended = true
		asked := p.asked
		l.mu.Unlock()
		if l.config.Ended != nil {
			l.call(func() { l.config.Ended(End{node, role, err, asked, p.stderr.lines()}) })
		}
		p.err = err
		close(p.done)
	})
	return nil
}

func (l *Lab) call(f func()) {
	l.calls.Lock()
	defer l.calls.Unlock()
	f()
}

// Running tells whether a role runs on a node.
func (l *Lab) Running(node, role string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running(processKey{node, role}) != nil
}

// running finds a process that has not ended. Lab.mu is held.
func (l *Lab) running(key processKey) *process {
	if p := l.processes[key]; p != nil && !p.ended {
		return p
	}
	return nil
}

// Kill ends a role and all that it started, without a chance to clean up.
func (l *Lab) Kill(node, role string) error {
	return l.signal(node, role, Mark{Event: "fault", Fault: "kill"}, true, func(p *process) error { return p.signal(kill) })
}

// Term asks a role to end.
func (l *Lab) Term(node, role string) error {
	return l.signal(node, role, Mark{Event: "fault", Fault: "term"}, true, func(p *process) error {
		return p.cmd.Process.Signal(syscall.SIGTERM)
	})
}

// Freeze stops a role and all that it started from running, as a paused
// virtual machine; [Lab.Thaw] lets them run on.
func (l *Lab) Freeze(node, role string) error {
	return l.signal(node, role, Mark{Event: "fault", Fault: "freeze"}, false, func(p *process) error { return p.signal(syscall.SIGSTOP) })
}

// Thaw undoes Freeze.
func (l *Lab) Thaw(node, role string) error {
	return l.signal(node, role, Mark{Event: "thaw"}, false, func(p *process) error { return p.signal(syscall.SIGCONT) })
}

// Signal sends a signal to the process of a role, without a mark.
func (l *Lab) Signal(node, role string, s syscall.Signal) error {
	return l.signal(node, role, Mark{}, false, func(p *process) error { return p.cmd.Process.Signal(s) })
}

// Stop asks a role to end, without a mark, and kills it after the patience. It
// returns when the role has ended.
func (l *Lab) Stop(node, role string, patience time.Duration) error {
	var p *process
	err := l.signal(node, role, Mark{}, true, func(found *process) error {
		p = found
		return p.cmd.Process.Signal(syscall.SIGTERM)
	})
	if err != nil {
		return err
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	}
	err = p.signal(kill)
	<-p.done
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// Wait returns when a role has ended, with its fault. Of one that runs no more
// it returns the fault at once, and nil of one that never ran.
func (l *Lab) Wait(node, role string) error {
	l.mu.Lock()
	p := l.processes[processKey{node, role}]
	l.mu.Unlock()
	if p == nil {
		return nil
	}
	<-p.done
	return p.err
}

func (l *Lab) signal(node, role string, mark Mark, end bool, send func(*process) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.running(processKey{node, role})
	if p == nil {
		return fmt.Errorf("lab: %s on %s does not run", role, node)
	}
	if mark.Event != "" {
		mark.Node, mark.Role = node, role
		if err := l.Mark(mark); err != nil {
			return err
		}
	}
	p.asked = p.asked || end
	if err := send(p); err != nil {
		return fmt.Errorf("lab: signal %s on %s: %w", role, node, err)
	}
	return nil
}

// signal reaches the whole process group at once, so that no supervisor in it
// can react to the end of what it watches.
func (p *process) signal(s syscall.Signal) error { return syscall.Kill(-p.cmd.Process.Pid, s) }

// lineWriter cuts what is written to it into lines.
type lineWriter struct {
	line func(string)
	rest []byte
}

func (w *lineWriter) Write(b []byte) (int, error) {
	w.rest = append(w.rest, b...)
	for {
		end, skip := bytes.IndexByte(w.rest, '\n'), 1
		if end < 0 || end > maxLine {
			if len(w.rest) < maxLine {
				return len(b), nil
			}
			end, skip = maxLine, 0
		}
		w.line(strings.TrimSuffix(string(w.rest[:end]), "\r"))
		w.rest = w.rest[end+skip:]
	}
}

func (w *lineWriter) flush() {
	if len(w.rest) > 0 {
		w.line(string(w.rest))
		w.rest = nil
	}
}

// tail keeps the last lines.
type tail struct {
	mu   sync.Mutex
	kept []string
}

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.kept) == tailLines {
		t.kept = append(t.kept[:0], t.kept[1:]...)
	}
	t.kept = append(t.kept, line)
}

func (t *tail) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.kept...)
}
