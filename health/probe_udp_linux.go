package health

import (
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

// lastLook receives what has arrived, a datagram or an error, without waiting and
// whatever the deadline. It returns EAGAIN when there is nothing.
func lastLook(conn syscall.Conn, b []byte) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var n int
	if e := raw.Control(func(fd uintptr) { n, _, err = unix.Recvfrom(int(fd), b, unix.MSG_DONTWAIT) }); e != nil {
		return 0, e
	}
	return n, err
}
