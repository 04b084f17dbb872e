package nft

import (
	"fmt"
	"net/netip"
	"time"
)

// Defaults of [Options].
const (
	DefaultTable = "lastbeat"
	// DefaultPriority puts our chains ahead of those that kube-proxy, Docker and
	// most others register at -100, because the first chain that rewrites a
	// connection wins and the later ones are not asked.
	DefaultPriority = -110
	DefaultTimeout  = 6 * time.Second
)

// Options say which table is ours and how long it stays without us. They hold
// for the life of a [Table].
type Options struct {
	// Table names the one table, of family inet, that this package owns: a
	// letter, then letters, digits, '_' and '-', at most 64 in all. Two owners in
	// one network namespace need two names. Empty: [DefaultTable].
	Table string
	// Priority of the two nat chains, from -199 to 199; lower runs earlier.
	// Zero: [DefaultPriority].
	Priority int
	// Timeout is how long the kernel keeps redirecting after the last
	// [Table.Apply] or [Table.Renew]: whole milliseconds, from 500 ms to 24 h.
	// Every other renewal uses a tenth more; see the package documentation.
	// Zero: [DefaultTimeout].
	Timeout time.Duration
}

// Config is the state that [Table.Apply] brings about. The zero value keeps the
// table and its chains with nothing to redirect, so that open connections live
// on while new ones are left alone.
type Config struct {
	// Redirects in any order, of either family; no two with the same VIP,
	// protocol and From port.
	Redirects []Redirect
}

// Redirect sends connections for one port of a virtual address to another port
// of the same address, on the node that has the address and on no other.
type Redirect struct {
	// VIP is a unicast IPv4 or IPv6 address without zone; an IPv4 address in its
	// IPv6-mapped form is refused, because no packet carries it.
	VIP netip.Addr
	// Proto is the transport protocol. Zero: [TCP].
	Proto Proto
	// From is the port that clients use, 1 to 65535.
	From uint16
	// To is the port of the local listener, 1 to 65535 and not From. The address
	// stays the VIP, so the listener is bound to the VIP or to any address.
	To uint16
}

// String returns "192.0.2.1:6443/tcp -> 9445".
func (r Redirect) String() string {
	return fmt.Sprintf("%s/%s -> %d", netip.AddrPortFrom(r.VIP, r.From), r.Proto, r.To)
}

// Proto is a transport protocol.
type Proto uint8

// The protocols that can be redirected.
const (
	TCP Proto = iota
	UDP
)

// String returns the protocol's name as nft spells it.
func (p Proto) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	}
	return fmt.Sprintf("Proto(%d)", uint8(p))
}

// number returns the IP protocol number.
func (p Proto) number() uint8 {
	if p == UDP {
		return 17
	}
	return 6
}

func (o Options) withDefaults() Options {
	if o.Table == "" {
		o.Table = DefaultTable
	}
	if o.Priority == 0 {
		o.Priority = DefaultPriority
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	return o
}

// alternate is the second of the two timeouts between which renewals change.
// The distance is far above the kernel's clock tick, so that reading a timeout
// back tells which of the two it is.
func (o Options) alternate() time.Duration {
	step := max(o.Timeout/10, 50*time.Millisecond)
	return o.Timeout + step.Truncate(time.Millisecond)
}

// otherTimeout returns the timeout which, sent for an element that has the
// timeout current, makes the kernel start its lifetime again.
func (o Options) otherTimeout(current time.Duration) time.Duration {
	if o.isTimeout(current, o.Timeout) {
		return o.alternate()
	}
	return o.Timeout
}

// ownTimeout reports whether a timeout that was read is one of our two.
func (o Options) ownTimeout(read time.Duration) bool {
	return o.isTimeout(read, o.Timeout) || o.isTimeout(read, o.alternate())
}

// isTimeout compares a timeout that was read from the kernel, which rounds to
// its clock tick of up to 10 ms, with one of ours.
func (o Options) isTimeout(read, ours time.Duration) bool {
	return (read - ours).Abs() <= 20*time.Millisecond
}
