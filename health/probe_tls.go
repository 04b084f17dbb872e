package health

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// TLSConfig configures a [TLS] prober.
type TLSConfig struct {
	// Address is host:port. A host name is looked up by each probe, within its
	// timeout.
	Address string
	// ServerName is the name sent in the handshake (SNI, not for an IP address) and
	// verified. Default: the host of Address.
	ServerName string
	// SkipVerify accepts any certificate. The handshake then proves that something
	// speaks TLS there, not that it is the right one. Default: verify.
	SkipVerify bool
	// RootCAs verify the certificate. Default: the system's.
	RootCAs *x509.CertPool
	// MinVersion is the oldest version of TLS that is good enough, such as
	// [tls.VersionTLS13]. Default TLS 1.2.
	MinVersion uint16
	// NextProtos are offered as application protocols (ALPN), for servers that
	// demand one. Default: none.
	NextProtos []string
	// Source is the address to probe from. Default: the system chooses.
	Source netip.Addr
}

// TLS probes by a TLS handshake over a connection of its own, closed right after.
// It shows no client certificate: a TLS 1.3 server that demands one still completes
// the handshake, one of TLS 1.2 fails it. It needs no privilege and may be used by
// many goroutines at once. Make one with [NewTLS].
type TLS struct {
	address string
	dialer  tls.Dialer
}

// NewTLS returns a prober. Its error joins a *[ConfigError] for each bad field.
func NewTLS(config TLSConfig) (*TLS, error) {
	var faults []error
	if err := checkAddress("Address", config.Address); err != nil {
		faults = append(faults, err)
	}
	switch config.MinVersion {
	case 0:
		config.MinVersion = tls.VersionTLS12
	case tls.VersionTLS10, tls.VersionTLS11, tls.VersionTLS12, tls.VersionTLS13:
	default:
		faults = append(faults, &ConfigError{"", "MinVersion", fmt.Sprintf("%#x", config.MinVersion), "0x301 to 0x304, as crypto/tls counts versions"})
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(config.Address) // checked above
	}
	return &TLS{config.Address, tls.Dialer{
		NetDialer: dialer(config.Source),
		Config: &tls.Config{
			ServerName:         config.ServerName,
			InsecureSkipVerify: config.SkipVerify,
			RootCAs:            config.RootCAs,
			MinVersion:         config.MinVersion,
			NextProtos:         slices.Clone(config.NextProtos),
		},
	}}, nil
}

// Probe connects and shakes hands; it implements [Prober].
func (p *TLS) Probe(ctx context.Context) error {
	if err := begun(ctx); err != nil {
		return err
	}
	conn, err := p.dialer.DialContext(ctx, "tcp", p.address)
	if err != nil {
		return fmt.Errorf("health: tls %s: %w", p.address, err)
	}
	conn.Close()
	return nil
}
