package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// ErrLocal marks the error of a [Prober] as a local error: wrap it when the probe
// could not be made and says nothing about the target.
var ErrLocal = errors.New("could not probe")

// localErrnos are errors of the operating system that are ours: they arise before
// anything reached the target.
//
// EHOSTUNREACH is not among them. It is what a dead neighbour looks like, since
// nobody answers for its address.
var localErrnos = []syscall.Errno{
	syscall.EMFILE, syscall.ENFILE, // too many open files, here or in the system
	syscall.ENOBUFS, syscall.ENOMEM,
	syscall.EADDRNOTAVAIL,         // no free port, or the source address is not here
	syscall.EADDRINUSE,            // the same for a given source
	syscall.ENETUNREACH,           // no route from here
	syscall.ENETDOWN,              // our interface
	syscall.EACCES, syscall.EPERM, // a local filter, or a missing privilege
	syscall.EAFNOSUPPORT, syscall.EPROTONOSUPPORT, syscall.EINVAL, // this kernel can't
}

// Classify tells what the error of a probe says about its target.
//
//   - nil is Good.
//   - Errors that wrap [ErrLocal], a failed name look-up, a source address of the
//     other family, a cancelled context, and the errors of the operating system
//     that arise before anything was sent (too many open files, no free port, no
//     route, no permission, ...) are LocalError.
//   - All others are Bad: refused, reset, timed out, host unreachable, a wrong
//     answer, a certificate that does not verify.
func Classify(err error) Outcome {
	if err == nil {
		return Good
	}
	if errors.Is(err, ErrLocal) || errors.Is(err, context.Canceled) {
		return LocalError
	}
	if _, failed := errors.AsType[*net.DNSError](err); failed {
		return LocalError // nobody has asked the target
	}
	if _, failed := errors.AsType[*net.AddrError](err); failed {
		return LocalError // such as a source of the other family
	}
	for _, errno := range localErrnos {
		if errors.Is(err, errno) {
			return LocalError
		}
	}
	return Bad
}

// begun returns an error if ctx has ended before a probe could send anything: the
// process did not get to run within the whole timeout.
func begun(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("health: %w: nothing sent: %w", ErrLocal, err)
	}
	return nil
}

// dialer returns a TCP dialer with the given source address, any if it is invalid.
func dialer(source netip.Addr) *net.Dialer {
	// No keep-alive: a probe is over before the first would be sent.
	d := &net.Dialer{KeepAlive: -1}
	if source.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
	}
	return d
}

// past is a deadline that has gone by: it ends a read or write that waits.
var past = time.Unix(1, 0)

// bind makes reads and writes on conn end with ctx, until release is called.
func bind(ctx context.Context, conn interface{ SetDeadline(time.Time) error }) (release func() bool) {
	return context.AfterFunc(ctx, func() { conn.SetDeadline(past) })
}

// because returns the error of ctx if it has ended, as that is why err came back.
func because(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil {
		return ended
	}
	return err
}

// checkAddress returns why host:port can't be dialled by TCP, nil if it can.
func checkAddress(field, address string) error { return checkNetAddress("tcp", field, address) }

func checkNetAddress(network, field, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err == nil && host == "" {
		err = errors.New("host is empty")
	}
	if err == nil {
		_, err = net.LookupPort(network, port)
	}
	if err != nil {
		return &ConfigError{"", field, fmt.Sprintf("%q", address), fmt.Sprintf("host:port, such as 192.0.2.1:443 or [2001:db8::1]:443 (%v)", err)}
	}
	return nil
}
