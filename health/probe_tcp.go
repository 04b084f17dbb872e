package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// TCPConfig configures a [TCP] prober.
type TCPConfig struct {
	// Address is host:port. A host name is looked up by each probe, within its
	// timeout.
	Address string
	// Source is the address to probe from. Default: the system chooses.
	Source netip.Addr
	// Reset closes with a reset instead of an orderly end. That leaves no socket
	// in TIME_WAIT behind, but servers may log it as a fault.
	Reset bool
}

// TCP probes by opening a TCP connection and closing it. It needs no privilege and
// may be used by many goroutines at once. Make one with [NewTCP].
type TCP struct {
	config TCPConfig
	dialer *net.Dialer
}

// NewTCP returns a prober. Its error is a *[ConfigError].
func NewTCP(config TCPConfig) (*TCP, error) {
	if err := checkAddress("Address", config.Address); err != nil {
		return nil, err
	}
	return &TCP{config, dialer(config.Source)}, nil
}

var errSelf = errors.New("connected to itself, nobody listens there")

// Probe connects; it implements [Prober].
func (p *TCP) Probe(ctx context.Context) error {
	if err := begun(ctx); err != nil {
		return err
	}
	conn, err := p.dialer.DialContext(ctx, "tcp", p.config.Address)
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	defer conn.Close()
	// TCP lets a socket connect to its own port when the target port is one that
	// the system also gives to clients.
	if conn.LocalAddr().String() == conn.RemoteAddr().String() {
		return fmt.Errorf("health: %s: %w", p.config.Address, errSelf)
	}
	if tcp, ok := conn.(*net.TCPConn); ok && p.config.Reset {
		if err := tcp.SetLinger(0); err != nil {
			return fmt.Errorf("health: %w: %w", ErrLocal, err)
		}
	}
	return nil
}
