//go:build !linux

package health

import (
	"net"
	"syscall"
)

// Systems other than Linux report what they report.

func reportUnreachable(string, string, syscall.RawConn) error { return nil }

func pendingError(net.Conn) error { return nil }
