//go:build unix

package balancer

import (
	"math"
	"syscall"
)

// descriptorLimit returns how many descriptors this process may have open. Package
// os has raised the soft limit to the hard one when the process started.
func descriptorLimit() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt64 // a kernel without limits
	}
	return uint64(limit.Cur)
}
