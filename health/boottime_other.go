//go:build !linux

package health

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

// BootAhead is for Linux. Here it returns an error that matches
// [errors.ErrUnsupported].
func BootAhead() (time.Duration, error) {
	return 0, fmt.Errorf("health: no boot-time clock on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
