package health

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// UDPConfig configures a [UDP] prober.
type UDPConfig struct {
	// Address is host:port. A host name is looked up by each probe, within its
	// timeout.
	Address string
	// Send is the datagram to send, at most 1,400 bytes. Default: an empty one.
	Send []byte
	// Expect is how a good answer begins. Default: any answer is good.
	Expect []byte
	// SilenceGood makes silence until the timeout good, as OVN has it: then only an
	// ICMP error is bad, or an answer other than expected. That is all there is to
	// learn from services that answer nothing to strangers. It shows that the port
	// is not closed, not that the target is alive: a host that lost its power is
	// silent too. Each probe takes the whole timeout. Default: silence is bad.
	SilenceGood bool
	// Source is the address to probe from. Default: the system chooses.
	Source netip.Addr
}

// UDP probes by sending one datagram from a socket of its own and waiting for one
// back from the same address. An ICMP error that comes back is bad: on Linux every
// kind of "unreachable", elsewhere what the system reports. It needs no privilege
// and may be used by many goroutines at once. Make one with [NewUDP].
type UDP struct {
	config UDPConfig
	dialer net.Dialer
}

// maxDatagram is what gets through nearly everywhere without fragments.
const maxDatagram = 1400

// NewUDP returns a prober. Its error joins a *[ConfigError] for each bad field.
func NewUDP(config UDPConfig) (*UDP, error) {
	var faults []error
	if err := checkNetAddress("udp", "Address", config.Address); err != nil {
		faults = append(faults, err)
	}
	for _, f := range []struct {
		name string
		data *[]byte
	}{{"Send", &config.Send}, {"Expect", &config.Expect}} {
		if n := len(*f.data); n > maxDatagram {
			faults = append(faults, &ConfigError{"", f.name, fmt.Sprintf("%d bytes", n), fmt.Sprintf("at most %d", maxDatagram)})
		}
		*f.data = slices.Clone(*f.data)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	p := &UDP{config: config, dialer: net.Dialer{Control: reportUnreachable}}
	if config.Source.IsValid() {
		p.dialer.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(config.Source, 0))
	}
	return p, nil
}

// Probe sends the datagram and judges what comes back; it implements [Prober].
func (p *UDP) Probe(ctx context.Context) error {
	if err := begun(ctx); err != nil {
		return err
	}
	conn, err := p.dialer.DialContext(ctx, "udp", p.config.Address)
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	defer conn.Close()
	defer bind(ctx, conn)()
	if _, err := conn.Write(p.config.Send); err != nil {
		return fmt.Errorf("health: %w", because(ctx, err))
	}

	answer := make([]byte, maxDatagram)
	n, err := conn.Read(answer)
	if err != nil && ctx.Err() != nil {
		// The end of the time may have overtaken what had arrived, when this process
		// did not get to run: a read whose deadline has gone by looks at nothing.
		n, err = lastLook(conn.(*net.UDPConn), answer)
		if errors.Is(err, syscall.EAGAIN) {
			return p.silence(ctx.Err())
		}
	}
	if err != nil {
		// Something on the way, or the target, has said so. The number of that error
		// is hidden from Classify: "network unreachable", from a router, is no local
		// failure.
		return fmt.Errorf("health: udp %s: unreachable: %v", p.config.Address, err)
	}
	if !bytes.HasPrefix(answer[:n], p.config.Expect) {
		return fmt.Errorf("health: udp %s: answer %.40q: want %.40q at its start", p.config.Address, answer[:n], p.config.Expect)
	}
	return nil
}

// silence judges that nothing came back until ctx ended by cause.
func (p *UDP) silence(cause error) error {
	if p.config.SilenceGood && errors.Is(cause, context.DeadlineExceeded) {
		return nil
	}
	return fmt.Errorf("health: udp %s: no answer: %w", p.config.Address, cause)
}
