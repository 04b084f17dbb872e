package vrrp

import (
	"errors"
	"io/fs"
)

// addrChange is what a watcher saw.
type addrChange int

const (
	addrMaybeLost addrChange = iota + 1 // an address of ours was removed, or events were lost
	addrLinkUp                          // the interface can send again
)

// isPermission tells that the kernel refused for lack of a privilege.
func isPermission(err error) bool { return errors.Is(err, fs.ErrPermission) }
