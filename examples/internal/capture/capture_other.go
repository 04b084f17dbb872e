//go:build !linux

package capture

import (
	"context"
	"errors"
	"fmt"
	"runtime"
)

// Capture cannot be opened here: packet sockets are a part of Linux.
type Capture struct{}

// Open fails with an error that matches [errors.ErrUnsupported].
func Open(Config) (*Capture, error) { return nil, unsupported() }

// Run fails.
func (*Capture) Run(context.Context) error { return unsupported() }

// Mark fails.
func (*Capture) Mark(string) error { return unsupported() }

// Stats returns zeros.
func (*Capture) Stats() Stats { return Stats{} }

// Close does nothing.
func (*Capture) Close() error { return nil }

func unsupported() error {
	return fmt.Errorf("capture: packet sockets on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
