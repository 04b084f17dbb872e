package health

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

const echoSupported = true

// Probe asks and waits for the reply; it implements [Prober].
func (p *ICMP) Probe(ctx context.Context) error {
	if err := begun(ctx); err != nil {
		return err
	}
	conn, err := openEcho(p.address, p.source)
	if err != nil {
		return fmt.Errorf("health: icmp %v: %w", p.address, err)
	}
	defer conn.Close()
	defer bind(ctx, conn)()

	// A raw socket sees the replies to everybody's requests. The token tells ours.
	token := make([]byte, 18)
	rand.Read(token)
	ask := echo{binary.BigEndian.Uint16(token), uint16(p.seq.Add(1)), token[2:]}
	request := ask.appendRequest(nil, p.address.Is6())
	if _, err := conn.Write(request); err != nil {
		return fmt.Errorf("health: icmp %v: %w", p.address, because(ctx, err))
	}
	return p.await(ctx, conn, ask)
}

// await reads until the reply to ask is there, or an error, or ctx ends.
func (p *ICMP) await(ctx context.Context, conn *echoConn, ask echo) error {
	b := make([]byte, 1500)
	for {
		n, err := conn.Read(b)
		if err != nil && ctx.Err() != nil {
			// As in UDP.Probe: look once more at what came while we did not run.
			n, err = lastLook(conn, b)
			if errors.Is(err, unix.EAGAIN) {
				return fmt.Errorf("health: icmp %v: no reply: %w", p.address, ctx.Err())
			}
		}
		if err != nil {
			// An answer of the network. Its number is hidden from Classify, to which
			// "network unreachable" would mean that we have no route.
			return fmt.Errorf("health: icmp %v: unreachable: %v", p.address, err)
		}
		reply := b[:n]
		if conn.raw && p.address.Is4() {
			reply = skipIPv4(reply)
		}
		if ask.answeredBy(reply, p.address.Is6(), !conn.raw) {
			return nil
		}
	}
}

// echoConn is a socket for echo messages, connected to one host.
type echoConn struct {
	*os.File
	raw bool // gets IPv4 headers and others' replies, and needs an identifier
}

// openEcho opens a socket that the kernel lets us have.
func openEcho(address, source netip.Addr) (*echoConn, error) {
	remote, err := sockaddr(address)
	if err != nil {
		return nil, err
	}
	family, protocol := unix.AF_INET, unix.IPPROTO_ICMP
	if address.Is6() {
		family, protocol = unix.AF_INET6, unix.IPPROTO_ICMPV6
	}
	const flags = unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	raw := false
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|flags, protocol)
	if refused(err) {
		raw = true
		fd, err = unix.Socket(family, unix.SOCK_RAW|flags, protocol)
		if refused(err) {
			return nil, fmt.Errorf("%w: no socket for echo requests: %w: give this process CAP_NET_RAW, "+
				"or a group of it a place in the sysctl net.ipv4.ping_group_range", ErrLocal, err)
		}
	}
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	conn := &echoConn{os.NewFile(uintptr(fd), "icmp"), raw}
	if err := conn.prepare(fd, remote, source); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// refused tells that the kernel does not let us have a kind of socket.
func refused(err error) bool {
	return slices.Contains([]error{unix.EACCES, unix.EPERM, unix.EPROTONOSUPPORT, unix.ESOCKTNOSUPPORT}, err)
}

// prepare sets up a fresh socket.
func (c *echoConn) prepare(fd int, remote unix.Sockaddr, source netip.Addr) error {
	_, v6 := remote.(*unix.SockaddrInet6)
	if c.raw {
		var err error
		if v6 {
			var blocked unix.ICMPv6Filter // a bit for each type
			for i := range blocked.Data {
				blocked.Data[i] = ^uint32(0)
			}
			blocked.Data[echoReply6/32] &^= 1 << (echoReply6 % 32)
			err = unix.SetsockoptICMPv6Filter(fd, unix.IPPROTO_ICMPV6, unix.ICMPV6_FILTER, &blocked)
		} else {
			err = unix.SetsockoptInt(fd, unix.SOL_RAW, unix.ICMP_FILTER, ^(1 << echoReply4))
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrLocal, os.NewSyscallError("setsockopt", err))
		}
	}
	network := "ip4"
	if v6 {
		network = "ip6"
	}
	control, err := c.SyscallConn()
	if err == nil {
		err = reportUnreachable(network, "", control)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLocal, err)
	}
	if source.IsValid() {
		local, err := sockaddr(source)
		if err != nil {
			return err
		}
		if err := unix.Bind(fd, local); err != nil {
			return fmt.Errorf("source %v: %w", source, os.NewSyscallError("bind", err))
		}
	}
	// So a raw socket gets only what this host sends.
	return os.NewSyscallError("connect", unix.Connect(fd, remote))
}

// sockaddr returns the kernel's form of an address.
func sockaddr(a netip.Addr) (unix.Sockaddr, error) {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4()}, nil
	}
	s := &unix.SockaddrInet6{Addr: a.As16()}
	if zone := a.Zone(); zone != "" {
		if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
			s.ZoneId = uint32(n)
			return s, nil
		}
		i, err := net.InterfaceByName(zone)
		if err != nil {
			return nil, fmt.Errorf("%w: zone %s: %w", ErrLocal, zone, err)
		}
		s.ZoneId = uint32(i.Index)
	}
	return s, nil
}
