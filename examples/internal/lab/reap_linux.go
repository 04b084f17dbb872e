package lab

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// reap takes away the orphans. As the first process of our process namespace we
// inherit what a dead process has left behind, such as the checks of a killed
// keepalived, and nobody else can wait for it.
//
// A dead child that is still there on a second look is an orphan: those of our
// own program have somebody who waits for them.
func (l *Lab) reap(ctx context.Context) {
	if os.Getpid() != 1 {
		return
	}
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	var before map[int]bool
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := map[int]bool{}
		for _, pid := range deadChildren() {
			switch {
			case l.owns(pid):
			case before[pid]:
				unix.Wait4(pid, nil, unix.WNOHANG, nil)
			default:
				now[pid] = true
			}
		}
		before = now
	}
}

func (l *Lab) owns(pid int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.processes {
		if !p.ended && p.cmd.Process.Pid == pid {
			return true
		}
	}
	return false
}

// deadChildren lists children that nobody has waited for, by their ids in our
// own process namespace; /proc is the host's and knows them by other ids too.
func deadChildren() []int {
	var dead []int
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		b, _ := os.ReadFile(list) // the thread may have ended meanwhile
		for pid := range strings.FieldsSeq(string(b)) {
			status, _ := os.ReadFile("/proc/" + pid + "/status")
			if own, isDead := parseStatus(string(status)); isDead {
				dead = append(dead, own)
			}
		}
	}
	return dead
}

// parseStatus reads a process's innermost id and whether it is a zombie.
func parseStatus(status string) (pid int, zombie bool) {
	for line := range strings.Lines(status) {
		key, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		switch {
		case len(fields) == 0:
		case key == "State":
			zombie = fields[0] == "Z"
		case key == "NSpid":
			pid, _ = strconv.Atoi(fields[len(fields)-1])
		}
	}
	return pid, zombie && pid > 0
}
