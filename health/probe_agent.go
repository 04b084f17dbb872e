package health

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
)

// AgentConfig configures an [Agent] prober.
type AgentConfig struct {
	// Address is host:port of the agent. A host name is looked up by each probe,
	// within its timeout.
	Address string
	// Send is what to say first, as HAProxy's agent-send, at most 1,400 bytes.
	// Default: nothing.
	Send string
	// OnReport is called with what the agent said before the probe that asked for it
	// returns, for its weight, limit and administrative state, from whatever
	// goroutine probes. What it said is as old as the target's last probe; let it
	// end with the target's [Status]. Default: only State matters.
	OnReport func(AgentReport)
	// Source is the address to probe from. Default: the system chooses.
	Source netip.Addr
}

// Agent probes by asking an agent of HAProxy's agent-check, by TCP, for its line.
// It is bad when the agent says down, fail or stopped. All else that [ParseAgent]
// understands is good: drain and maint are wishes, not failures. Unlike in HAProxy
// an agent that does not answer, or answers something else, is bad, as otherwise
// its last word would stay for ever. Give the agent a target of its own where it is
// only one of several sources.
//
// It needs no privilege and may be used by many goroutines at once. Make one with
// [NewAgent].
type Agent struct {
	config AgentConfig
	dialer *net.Dialer
}

// NewAgent returns a prober. Its error joins a *[ConfigError] for each bad field.
func NewAgent(config AgentConfig) (*Agent, error) {
	var faults []error
	if err := checkAddress("Address", config.Address); err != nil {
		faults = append(faults, err)
	}
	if n := len(config.Send); n > maxDatagram {
		faults = append(faults, &ConfigError{"", "Send", fmt.Sprintf("%d bytes", n), fmt.Sprintf("at most %d", maxDatagram)})
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return &Agent{config, dialer(config.Source)}, nil
}

// maxAgentLine is how long a line may be, including its end.
const maxAgentLine = 1024

// Probe asks the agent; it implements [Prober].
func (p *Agent) Probe(ctx context.Context) error {
	if err := begun(ctx); err != nil {
		return err
	}
	conn, err := p.dialer.DialContext(ctx, "tcp", p.config.Address)
	if err != nil {
		return fmt.Errorf("health: agent %s: %w", p.config.Address, err)
	}
	defer conn.Close()
	defer bind(ctx, conn)()
	if _, err := io.WriteString(conn, p.config.Send); err != nil {
		return fmt.Errorf("health: agent %s: %w", p.config.Address, because(ctx, err))
	}
	line, err := readLine(conn)
	if err != nil {
		return fmt.Errorf("health: agent %s: %w", p.config.Address, because(ctx, err))
	}
	report, err := ParseAgent(line)
	if err != nil {
		return fmt.Errorf("health: agent %s: %w", p.config.Address, err)
	}
	if p.config.OnReport != nil {
		p.config.OnReport(report)
	}
	switch report.State {
	case "down", "fail", "stopped":
		return fmt.Errorf("health: agent %s: says %q", p.config.Address, report)
	}
	return nil
}

// readLine reads up to and including the first line end, or all if there is none.
func readLine(r io.Reader) (string, error) {
	b := make([]byte, 0, maxAgentLine)
	for {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			return string(b[:i+1]), nil
		}
		if err == io.EOF {
			return string(b), nil
		}
		if err != nil {
			return "", err
		}
		if len(b) == cap(b) {
			return "", fmt.Errorf("%w: it is longer than %d bytes", ErrAgent, maxAgentLine)
		}
	}
}
