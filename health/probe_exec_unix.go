//go:build unix

package health

import (
	"os/exec"
	"syscall"
)

// ownGroup makes cmd start in a process group of its own, and be killed with it.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// killGroup kills what is left of the group of a cmd that has been waited for. The
// kernel gives a group's number to nobody while the group has members. If it had
// none left, a stranger is hit only if all other numbers were given away since.
func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
