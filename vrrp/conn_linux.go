package vrrp

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	recvBuffer = 1 << 18 // room for a freeze of many seconds
	// drainLimit is more than the kernel's queue can hold: it grants twice
	// recvBuffer, and counts more than 512 bytes for each packet.
	drainLimit = 1024
	tosCS6     = 0xc0 // internetwork control, as keepalived sends it
)

// rawConn is a raw socket bound to an interface. Packets stay in the kernel's
// queue until they are drained: it is bounded, and stamps them.
type rawConn struct {
	file   *os.File // non-blocking, known to the runtime's poller
	sys    syscall.RawConn
	source netip.Addr
	index  int
	signal chan struct{}
	done   chan struct{} // closed when the waiter has ended

	drained time.Time // when the queue was last seen empty
	buf     [4096]byte
	oob     [128]byte

	mu  sync.Mutex
	err error // why arrivals are no longer waited for
}

// dialRaw opens a socket for adverts on an interface. It fails with ErrNoInterface,
// or for lack of CAP_NET_RAW.
func dialRaw(ifname string, source netip.Addr, multicast bool) (transport, error) {
	ifi, err := net.InterfaceByName(ifname)
	if err != nil {
		return nil, connError(ifname, ErrNoInterface)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocolVRRP)
	if err != nil {
		return nil, connError(ifname, err)
	}
	if err := setupRaw(fd, ifi, multicast); err != nil {
		unix.Close(fd)
		return nil, connError(ifname, err)
	}
	c, err := newRawConn(fd, source, ifi.Index)
	if err != nil {
		return nil, connError(ifname, err)
	}
	return c, nil
}

// newRawConn takes over the non-blocking socket fd.
func newRawConn(fd int, source netip.Addr, index int) (*rawConn, error) {
	c := &rawConn{
		file: os.NewFile(uintptr(fd), "vrrp"), source: source, index: index,
		signal: make(chan struct{}, 1), done: make(chan struct{}), drained: time.Now(),
	}
	var err error
	if c.sys, err = c.file.SyscallConn(); err != nil {
		c.file.Close()
		return nil, err
	}
	go c.await()
	return c, nil
}

func setupRaw(fd int, ifi *net.Interface, multicast bool) error {
	set := func(level, opt, value int) error { return unix.SetsockoptInt(fd, level, opt, value) }
	err := errors.Join(
		unix.BindToDevice(fd, ifi.Name),
		set(unix.IPPROTO_IP, unix.IP_TTL, 255), // RFC 9568, Section 5.1.1.3
		set(unix.IPPROTO_IP, unix.IP_TOS, tosCS6),
		set(unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT),
		set(unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		set(unix.SOL_SOCKET, unix.SO_RCVBUF, recvBuffer),
		set(unix.SOL_SOCKET, unix.SO_PRIORITY, 6),
	)
	if !multicast {
		return err
	}
	group := multicastIPv4.As4()
	return errors.Join(err,
		set(unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, 255),
		set(unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 0),
		set(unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0),
		unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(ifi.Index)}),
		unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP,
			&unix.IPMreqn{Multiaddr: group, Ifindex: int32(ifi.Index)}),
	)
}

func (c *rawConn) ready() <-chan struct{} { return c.signal }

// await wakes the driver at each arrival, until the socket is closed.
func (c *rawConn) await() {
	defer close(c.done)
	err := c.sys.Read(func(uintptr) (done bool) {
		c.wake()
		return false // wait for the next
	})
	c.mu.Lock()
	c.err = err
	c.mu.Unlock()
	c.wake()
}

func (c *rawConn) wake() {
	select {
	case c.signal <- struct{}{}:
	default:
	}
}

// drain hands over all that had arrived when it was called. In a flood it leaves
// the rest for the next call, so that the driver's own work gets its turn.
func (c *rawConn) drain(receive func(time.Time, []byte)) error {
	c.mu.Lock()
	err := c.err
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if ctlErr := c.sys.Control(func(fd uintptr) { err = c.receive(int(fd), receive) }); ctlErr != nil {
		return ctlErr
	}
	return err
}

func (c *rawConn) receive(fd int, receive func(time.Time, []byte)) error {
	for range drainLimit {
		n, oobn, _, _, err := unix.Recvmsg(fd, c.buf[:], c.oob[:], unix.MSG_DONTWAIT)
		now := time.Now()
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			c.drained = now
			return nil
		case errors.Is(err, unix.ENETDOWN):
			// The interface went down; the socket works again when it comes back.
			continue
		case err != nil:
			return os.NewSyscallError("recvmsg", err)
		}
		at := now
		if stamp, ok := kernelStamp(c.oob[:oobn]); ok {
			at = arrival(now, stamp, c.drained)
		}
		receive(at, c.buf[:n])
	}
	return nil // what is left has arrived during this call, and has woken the driver
}

// kernelStamp finds the time at which the kernel received the packet.
func kernelStamp(oob []byte) (time.Time, bool) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return time.Time{}, false
	}
	for _, m := range msgs {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS &&
			len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
			ts := (*unix.Timespec)(unsafe.Pointer(&m.Data[0]))
			return time.Unix(ts.Unix()), true
		}
	}
	return time.Time{}, false
}

// send sends from the configured source, whatever the routes say.
func (c *rawConn) send(dst netip.Addr, msg []byte) error {
	info := unix.Inet4Pktinfo{Ifindex: int32(c.index), Spec_dst: c.source.As4()}
	to := &unix.SockaddrInet4{Addr: dst.As4()}
	var sendErr error
	err := c.sys.Control(func(fd uintptr) {
		sendErr = unix.Sendmsg(int(fd), msg, unix.PktInfo4(&info), to, unix.MSG_DONTWAIT)
	})
	if err != nil {
		return err
	}
	return os.NewSyscallError("sendmsg", sendErr)
}

func (c *rawConn) close() error {
	err := c.file.Close()
	<-c.done
	return err
}
