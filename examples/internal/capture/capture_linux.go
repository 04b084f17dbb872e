package capture

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const defaultBuffer = 16 << 20

// Capture reads one interface. Its methods may be called from any goroutine.
type Capture struct {
	config Config
	in     *os.File // reads
	out    *os.File // sends marks; a socket does not see what it sent itself
	ifi    *net.Interface
	pcap   *pcapWriter
	marks  sync.Mutex // gives marks their order

	mu    sync.Mutex
	stats Stats
}

// Open starts to queue frames, in the network namespace of the calling thread.
// They wait in the kernel until [Capture.Run] reads them.
func Open(c Config) (*Capture, error) {
	if c.Packet == nil {
		return nil, errors.New("capture: Packet is nil: set the function that takes the packets")
	}
	if c.Buffer < 0 {
		return nil, fmt.Errorf("capture: Buffer %d: use 0 or a number of bytes", c.Buffer)
	}
	if c.Buffer == 0 {
		c.Buffer = defaultBuffer
	}
	ifi, err := net.InterfaceByName(c.Interface)
	if err != nil {
		return nil, fmt.Errorf("capture: interface %q: %w", c.Interface, err)
	}
	in, err := socket("read")
	if err != nil {
		return nil, err
	}
	out, err := socket("send marks to")
	if err != nil {
		in.Close()
		return nil, err
	}
	capture := &Capture{config: c, in: in, out: out, ifi: ifi}
	if err := control(in, capture.listen); err != nil {
		capture.Close()
		return nil, fmt.Errorf("capture: %s: %w", c.Interface, err)
	}
	if c.Pcap != nil {
		capture.pcap = newPcapWriter(c.Pcap)
	}
	return capture, nil
}

// socket opens a packet socket that receives nothing yet.
func socket(what string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("capture: open a packet socket to %s the interface: %w (needs CAP_NET_RAW)", what, err)
	}
	return os.NewFile(uintptr(fd), "packet socket"), nil
}

// listen sets the socket up and, last of all, binds it.
func (c *Capture) listen(fd int) error {
	// The forced form goes beyond net.core.rmem_max, but asks for a privilege
	// on the host itself.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, c.config.Buffer) != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, c.config.Buffer); err != nil {
			return fmt.Errorf("set receive buffer: %w", err)
		}
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return fmt.Errorf("enable stamps: %w", err)
	}
	if err := attach(fd); err != nil {
		return fmt.Errorf("attach filter: %w", err)
	}
	promiscuous := unix.PacketMreq{Ifindex: int32(c.ifi.Index), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &promiscuous); err != nil {
		return fmt.Errorf("set promiscuous: %w", err)
	}
	err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ALL), Ifindex: c.ifi.Index})
	if err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return nil
}

func attach(fd int) error {
	raw, err := bpf.Assemble(filter())
	if err != nil {
		return err
	}
	program := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		program[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// Run reads until ctx ends, hands out what is still queued then, closes the
// capture and returns nil; or it returns the error that ended it, or that of
// the first failed write to the pcap file. It runs once.
func (c *Capture) Run(ctx context.Context) error {
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.in.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	conn, err := c.in.SyscallConn()
	if err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	r := reader{capture: c, frame: make([]byte, snapLen), oob: make([]byte, 128), drained: time.Now()}
	err = conn.Read(func(fd uintptr) bool { return r.drain(int(fd)) })
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// The expired deadline hides what is queued; reading past it does not.
		err = control(c.in, func(fd int) error { r.drain(fd); return nil })
	}
	c.count()
	if err = errors.Join(r.err, err); err != nil {
		return fmt.Errorf("capture: read %s: %w", c.config.Interface, err)
	}
	if c.pcap != nil && c.pcap.err != nil {
		return fmt.Errorf("capture: write pcap: %w", c.pcap.err)
	}
	return nil
}

// reader is Run's state.
type reader struct {
	capture *Capture
	frame   []byte
	oob     []byte
	drained time.Time // the queue was empty then
	err     error
}

// drain reads all that is queued. It returns true when reading has failed.
func (r *reader) drain(fd int) (failed bool) {
	for {
		n, oobn, _, _, err := unix.Recvmsg(fd, r.frame, r.oob, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		now := time.Now()
		switch {
		case err == nil:
			at := now
			if stamp, ok := stamp(r.oob[:oobn]); ok {
				at = arrival(now, r.drained, stamp)
			}
			r.capture.deliver(r.frame[:min(n, snapLen)], n, at)
		case errors.Is(err, unix.EAGAIN):
			r.drained = now
			return false
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENETDOWN): // the interface was down for a while
		default:
			r.err = err
			return true
		}
	}
}

func (c *Capture) deliver(frame []byte, size int, at time.Time) {
	if c.pcap != nil {
		c.pcap.write(frame, size, at)
	}
	p, ok := Decode(frame, at)
	c.mu.Lock()
	c.stats.Frames++
	if ok {
		c.stats.Packets++
	}
	c.mu.Unlock()
	if ok {
		c.config.Packet(p)
	}
}

// stamp finds the kernel's receive stamp among the control messages.
func stamp(oob []byte) (time.Time, bool) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return time.Time{}, false
	}
	for _, m := range msgs {
		if m.Header.Level != unix.SOL_SOCKET || m.Header.Type != unix.SCM_TIMESTAMPNS {
			continue
		}
		// A struct timespec: two longs of the machine.
		switch len(m.Data) {
		case 16:
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:]))), true
		case 8:
			return time.Unix(int64(binary.NativeEndian.Uint32(m.Data)), int64(binary.NativeEndian.Uint32(m.Data[4:]))), true
		}
	}
	return time.Time{}, false
}

// Mark puts a text among the captured packets. It is a broadcast, so that
// tcpdump on any host of the segment shows it too; nothing listens to its
// EtherType. The text is not empty, at most [MaxMark] bytes long and has no
// zero byte at its end.
func (c *Capture) Mark(text string) error {
	if text == "" || len(text) > MaxMark || text[len(text)-1] == 0 {
		return fmt.Errorf("capture: mark of %d bytes: use 1 to %d, the last of them not zero", len(text), MaxMark)
	}
	frame := make([]byte, 0, etherLen+len(text))
	frame = append(frame, broadcast[:]...)
	frame = append(frame, c.ifi.HardwareAddr...)
	frame = binary.BigEndian.AppendUint16(frame, etherMark)
	frame = append(frame, text...)
	to := unix.SockaddrLinklayer{Protocol: bigEndian(etherMark), Ifindex: c.ifi.Index, Halen: 6}
	copy(to.Addr[:], broadcast[:])
	c.marks.Lock()
	defer c.marks.Unlock()
	if err := control(c.out, func(fd int) error { return unix.Sendto(fd, frame, 0, &to) }); err != nil {
		return fmt.Errorf("capture: send mark: %w", err)
	}
	return nil
}

// Stats returns the counts so far, also after Run has returned.
func (c *Capture) Stats() Stats {
	c.count()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// count takes over the kernel's count of lost frames, which starts again from
// zero each time that it is read.
func (c *Capture) count() {
	c.mu.Lock()
	defer c.mu.Unlock()
	control(c.in, func(fd int) error { // fails once the capture is closed; nothing is lost then
		s, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
		if err == nil {
			c.stats.Lost += uint64(s.Drops)
		}
		return err
	})
}

// Close ends a capture whose Run was never called. Run closes by itself.
func (c *Capture) Close() error { return errors.Join(c.in.Close(), c.out.Close()) }

// control runs f on a descriptor that stays open meanwhile.
func control(file *os.File, f func(fd int) error) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	return errors.Join(conn.Control(func(fd uintptr) { err = f(int(fd)) }), err)
}

// bigEndian gives a 16-bit value in network order to a field in host order.
func bigEndian(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}
