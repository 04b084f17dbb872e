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
	tosCS6     = 0xc0    // internetwork control, as keepalived sends it
)

// rawConn is a raw socket bound to an interface.
type rawConn struct {
	file   *os.File // non-blocking, known to the runtime's poller
	sys    syscall.RawConn
	source netip.Addr
	index  int
	signal chan struct{}
	done   chan struct{} // closed when the reader has ended

	mu      sync.Mutex
	queue   []stamped // read by the reader, not yet handed over
	drained time.Time // when the socket was last seen empty
	err     error     // why nothing can be received any more
	buf     [4096]byte
	oob     [128]byte
}

type stamped struct {
	at  time.Time
	pkt []byte
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
	c := &rawConn{
		file: os.NewFile(uintptr(fd), "vrrp:"+ifname), source: source, index: ifi.Index,
		signal: make(chan struct{}, 1), done: make(chan struct{}), drained: time.Now(),
	}
	if c.sys, err = c.file.SyscallConn(); err != nil {
		c.file.Close()
		return nil, connError(ifname, err)
	}
	go c.read()
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

// read waits for packets and takes them off the socket, so that arrivals wake
// the driver. It ends when the socket is closed or broken.
func (c *rawConn) read() {
	defer close(c.done)
	err := c.sys.Read(func(fd uintptr) (stop bool) {
		c.mu.Lock()
		c.receive(int(fd))
		broken := c.err != nil
		c.mu.Unlock()
		select {
		case c.signal <- struct{}{}:
		default:
		}
		return broken // else wait for more
	})
	if err != nil {
		c.mu.Lock()
		c.err = errors.Join(c.err, err)
		c.mu.Unlock()
	}
}

// receive takes everything off the socket. The caller holds mu.
func (c *rawConn) receive(fd int) {
	for {
		n, oobn, _, _, err := unix.Recvmsg(fd, c.buf[:], c.oob[:], unix.MSG_DONTWAIT)
		now := time.Now()
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			c.drained = now
			return
		case errors.Is(err, unix.ENETDOWN):
			// The interface went down; the socket works again when it comes back.
			continue
		case err != nil:
			c.err = os.NewSyscallError("recvmsg", err)
			return
		}
		at := now
		if stamp, ok := kernelStamp(c.oob[:oobn]); ok {
			at = arrival(now, stamp, c.drained)
		}
		c.queue = append(c.queue, stamped{at, append([]byte(nil), c.buf[:n]...)})
	}
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

// drain looks at the socket itself too: the reader may not have run yet, and a
// down timer must not be believed before.
func (c *rawConn) drain(receive func(time.Time, []byte)) error {
	c.mu.Lock()
	if c.err == nil {
		if err := c.sys.Control(func(fd uintptr) { c.receive(int(fd)) }); err != nil {
			c.err = err
		}
	}
	queue, err := c.queue, c.err
	c.queue = nil
	c.mu.Unlock()
	for _, s := range queue {
		receive(s.at, s.pkt)
	}
	return err
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
