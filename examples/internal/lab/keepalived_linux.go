package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// RoleKeepalived is the role under which keepalived runs.
const RoleKeepalived = "keepalived"

// StartKeepalived runs the real keepalived on a node with the given text as its
// keepalived.conf. Its log goes to standard error. Kill ends parent and child
// at once, which leaves the address on the node; Term is an orderly end.
func (l *Lab) StartKeepalived(node, config string) error {
	path, err := FindKeepalived()
	if err != nil {
		return err
	}
	dir := filepath.Join(l.dir, node)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	file := filepath.Join(dir, "keepalived.conf")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	pid, vpid := filepath.Join(dir, "keepalived.pid"), filepath.Join(dir, "vrrp.pid")
	for _, stale := range []string{pid, vpid} { // a killed one leaves them, and the next refuses to start
		if err := os.Remove(stale); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("lab: %w", err)
		}
	}
	return l.StartProgram(node, RoleKeepalived, path, "--dont-fork", "--log-console", "--log-detail", "--vrrp",
		"--use-file", file, "--pid", pid, "--vrrp_pid", vpid)
}

// FindKeepalived returns the path of keepalived, or an error that names the remedy.
func FindKeepalived() (string, error) {
	for _, name := range []string{"keepalived", "/usr/sbin/keepalived", "/sbin/keepalived"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("lab: keepalived is not installed: on Debian, apt-get install keepalived")
}
