//go:build !linux

package lab

import (
	"errors"
	"fmt"
	"runtime"
)

// Lab cannot be made here: namespaces are a part of Linux.
type Lab struct{}

// New fails with an error that matches [errors.ErrUnsupported].
func New(Config) (*Lab, error) {
	return nil, fmt.Errorf("lab: network namespaces on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// Close does nothing.
func (*Lab) Close() error { return nil }
