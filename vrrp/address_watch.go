package vrrp

import (
	"errors"
	"syscall"
)

// addrChange is what a watcher saw.
type addrChange int

const (
	addrMaybeLost addrChange = iota + 1 // an address of ours was removed, or events were lost
	addrLinkUp                          // the interface can send again
)

// isPermission tells that the kernel refused for lack of a privilege. EACCES,
// which errors.Is takes for the same, has other causes here.
func isPermission(err error) bool { return errors.Is(err, syscall.EPERM) }
