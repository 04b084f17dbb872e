package health

import (
	"net"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// reportUnreachable makes a socket that is about to be connected report all ICMP
// errors. By default the kernel reports only a closed port, and keeps a dead
// neighbour and a router's "no route" for itself, since TCP would have to endure
// them.
func reportUnreachable(network, _ string, conn syscall.RawConn) error {
	level, option := unix.IPPROTO_IP, unix.IP_RECVERR
	if strings.HasSuffix(network, "6") {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	}
	var err error
	if e := conn.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) }); e != nil {
		return e
	}
	return err
}

// pendingError takes the error that a socket has not reported yet.
func pendingError(conn net.Conn) error {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	var number int
	if e := raw.Control(func(fd uintptr) { number, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR) }); e != nil {
		return e
	}
	if err == nil && number != 0 {
		err = unix.Errno(number)
	}
	return err
}
