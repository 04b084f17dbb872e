package health

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// serveTLS returns the address of a TLS server and a pool that trusts it: its
// certificate is for 127.0.0.1 and example.com.
func serveTLS(t *testing.T, config *tls.Config) (string, *x509.CertPool) {
	s := httptest.NewUnstartedServer(nil)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.TLS = config
	s.StartTLS()
	t.Cleanup(s.Close)
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return s.Listener.Addr().String(), pool
}

func TestTLS(t *testing.T) {
	sni := make(chan string, 1)
	old, pool := serveTLS(t, &tls.Config{MaxVersion: tls.VersionTLS12, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		select {
		case sni <- h.ServerName:
		default:
		}
		return nil, nil
	}})
	picky, _ := serveTLS(t, &tls.Config{NextProtos: []string{"h2"}, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		if len(h.SupportedProtos) == 0 {
			return &tls.Config{}, nil // has no certificate: refuses
		}
		return nil, nil
	}})
	for _, tc := range []struct {
		name   string
		config TLSConfig
		want   Outcome
		as     string // part of the error
	}{
		{"verified", TLSConfig{Address: old, RootCAs: pool}, Good, ""},
		{"verified by name", TLSConfig{Address: old, RootCAs: pool, ServerName: "example.com"}, Good, ""},
		{"wrong name", TLSConfig{Address: old, RootCAs: pool, ServerName: "wrong.test"}, Bad, "wrong.test"},
		{"unknown authority", TLSConfig{Address: old}, Bad, "unknown authority"},
		{"not verified", TLSConfig{Address: old, SkipVerify: true, ServerName: "wrong.test"}, Good, ""},
		{"too old", TLSConfig{Address: old, RootCAs: pool, MinVersion: tls.VersionTLS13}, Bad, "protocol version"},
		{"protocol offered", TLSConfig{Address: picky, SkipVerify: true, NextProtos: []string{"h2"}}, Good, ""},
		{"protocol missing", TLSConfig{Address: picky, SkipVerify: true}, Bad, "tls: "},
		{"source", TLSConfig{Address: old, RootCAs: pool, Source: netip.MustParseAddr("127.0.0.1")}, Good, ""},
		{"source that is not ours", TLSConfig{Address: old, RootCAs: pool, Source: netip.MustParseAddr("192.0.2.1")}, LocalError, "bind"},
		{"refused", TLSConfig{Address: closedPort(t)}, Bad, syscall.ECONNREFUSED.Error()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := NewTLS(tc.config)
			require.NoError(t, err)
			err = p.Probe(t.Context())
			require.Equal(t, tc.want, Classify(err), "%v", err)
			if err != nil {
				require.True(t, strings.HasPrefix(err.Error(), "health: tls 127.0.0.1:"), err.Error())
				require.ErrorContains(t, err, tc.as)
			}
		})
	}

	t.Run("name is sent", func(t *testing.T) {
		for len(sni) > 0 {
			<-sni
		}
		p, err := NewTLS(TLSConfig{Address: old, RootCAs: pool, ServerName: "example.com"})
		require.NoError(t, err)
		require.NoError(t, p.Probe(t.Context()))
		require.Equal(t, "example.com", <-sni)
		require.Equal(t, LocalError, Classify(p.Probe(expired())))
	})
	t.Run("speaks no TLS", func(t *testing.T) {
		l := listen(t)
		go func() {
			if conn, err := l.Accept(); err == nil {
				conn.Write([]byte("220 mail.test ESMTP\r\n"))
				conn.Close()
			}
		}()
		p, err := NewTLS(TLSConfig{Address: l.Addr().String(), SkipVerify: true})
		require.NoError(t, err)
		require.Equal(t, Bad, Classify(p.Probe(t.Context())))
	})
	t.Run("silent", func(t *testing.T) {
		l := listen(t)
		p, err := NewTLS(TLSConfig{Address: l.Addr().String(), SkipVerify: true})
		require.NoError(t, err)
		ctx := timeout{t.Context(), make(chan struct{})}
		go func() { // takes the hello, and time runs out
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			conn.Read(make([]byte, 1))
			close(ctx.done)
		}()
		err = p.Probe(ctx)
		require.Equal(t, Bad, Classify(err), "%v", err)
	})
}

func TestTLSConfigFaults(t *testing.T) {
	_, err := NewTLS(TLSConfig{Address: "x", MinVersion: 7})
	require.ErrorIs(t, err, ErrConfig)
	require.ErrorContains(t, err, `health: Address is "x": want host:port`)
	require.ErrorContains(t, err, "health: MinVersion is 0x7: want 0x301 to 0x304")
}
