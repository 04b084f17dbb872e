package health

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// BootAhead returns by how much CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC: the time
// that this machine has been suspended since it was started. It needs no privilege.
// On other platforms than Linux it returns an error that matches
// [errors.ErrUnsupported].
func BootAhead() (time.Duration, error) {
	// The two can't be read at one instant. Boot time first makes the difference
	// too small, by as long as this thread was stopped in between; the largest of
	// a few tries is the best.
	var ahead time.Duration
	for try := range 3 {
		boot, err := clock(unix.CLOCK_BOOTTIME)
		if err != nil {
			return 0, fmt.Errorf("health: reading CLOCK_BOOTTIME: %w", err)
		}
		monotonic, err := clock(unix.CLOCK_MONOTONIC)
		if err != nil {
			return 0, fmt.Errorf("health: reading CLOCK_MONOTONIC: %w", err)
		}
		if d := boot - monotonic; try == 0 || d > ahead {
			ahead = d
		}
	}
	return ahead, nil
}

func clock(id int32) (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		return 0, err
	}
	return time.Duration(t.Nano()), nil
}
