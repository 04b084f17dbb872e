//go:build !linux

package netns

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
)

// StartIsolated starts nothing here: namespaces are a part of Linux.
func StartIsolated(*exec.Cmd) error { return unsupported() }

// Setup reports that there are no namespaces here.
func Setup() error { return unsupported() }

func unsupported() error {
	return fmt.Errorf("netns: %w on %s: %w", ErrUnavailable, runtime.GOOS, errors.ErrUnsupported)
}
