package health

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClassify(t *testing.T) {
	op := func(errno syscall.Errno) error {
		return fmt.Errorf("health: %w", &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", errno)})
	}
	for _, tc := range []struct {
		err  error
		want Outcome
	}{
		{nil, Good},
		{op(syscall.ECONNREFUSED), Bad},
		{op(syscall.ECONNRESET), Bad},
		{op(syscall.ETIMEDOUT), Bad},
		{op(syscall.EHOSTUNREACH), Bad},
		{op(syscall.EPIPE), Bad},
		{context.DeadlineExceeded, Bad},
		{os.ErrDeadlineExceeded, Bad},
		{io.ErrUnexpectedEOF, Bad},
		{errors.New("status 503"), Bad},
		{x509.UnknownAuthorityError{}, Bad},
		{op(syscall.EMFILE), LocalError},
		{op(syscall.ENFILE), LocalError},
		{op(syscall.ENOBUFS), LocalError},
		{op(syscall.ENOMEM), LocalError},
		{op(syscall.EADDRNOTAVAIL), LocalError},
		{op(syscall.EADDRINUSE), LocalError},
		{op(syscall.ENETUNREACH), LocalError},
		{op(syscall.ENETDOWN), LocalError},
		{op(syscall.EACCES), LocalError},
		{op(syscall.EPERM), LocalError},
		{op(syscall.EAFNOSUPPORT), LocalError},
		{op(syscall.EPROTONOSUPPORT), LocalError},
		{op(syscall.EINVAL), LocalError},
		{context.Canceled, LocalError},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, LocalError},
		{&net.DNSError{Err: "i/o timeout", IsTimeout: true}, LocalError},
		{fmt.Errorf("%w: the helper is missing", ErrLocal), LocalError},
		{fmt.Errorf("%w: %w", ErrLocal, context.DeadlineExceeded), LocalError},
	} {
		require.Equal(t, tc.want, Classify(tc.err), "%v", tc.err)
	}
}

// listen opens a TCP listener on a free port of loopback.
func listen(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// closedPort returns an address on which nobody listens: it is bound, so nobody
// else can take it, but never listened on.
func closedPort(t *testing.T) string {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	t.Cleanup(func() { syscall.Close(fd) })
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name, err := syscall.Getsockname(fd)
	require.NoError(t, err)
	return fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
}

// timeout is a context whose deadline passes when the test says so.
type timeout struct {
	context.Context
	done chan struct{}
}

func (c timeout) Done() <-chan struct{} { return c.done }

func (c timeout) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func expired() context.Context {
	c := timeout{context.Background(), make(chan struct{})}
	close(c.done)
	return c
}

func TestTCP(t *testing.T) {
	probe := func(t *testing.T, c TCPConfig) error {
		p, err := NewTCP(c)
		require.NoError(t, err)
		return p.Probe(t.Context())
	}
	t.Run("accepted", func(t *testing.T) {
		require.NoError(t, probe(t, TCPConfig{Address: listen(t).Addr().String()}))
	})
	t.Run("closed by reset or in order", func(t *testing.T) {
		for _, reset := range []bool{false, true} {
			l := listen(t)
			require.NoError(t, probe(t, TCPConfig{Address: l.Addr().String(), Reset: reset}))
			conn, err := l.Accept()
			require.NoError(t, err)
			_, err = conn.Read(make([]byte, 1))
			conn.Close()
			if reset {
				require.ErrorIs(t, err, syscall.ECONNRESET)
			} else {
				require.Equal(t, io.EOF, err)
			}
		}
	})
	t.Run("refused", func(t *testing.T) {
		err := probe(t, TCPConfig{Address: closedPort(t)})
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.Equal(t, Bad, Classify(err))
		require.True(t, strings.HasPrefix(err.Error(), "health: dial tcp 127.0.0.1:"), err.Error())
	})
	t.Run("source", func(t *testing.T) {
		l := listen(t)
		require.NoError(t, probe(t, TCPConfig{Address: l.Addr().String(), Source: netip.MustParseAddr("127.0.0.1")}))
		conn, err := l.Accept()
		require.NoError(t, err)
		conn.Close()
	})
	t.Run("source that is not ours", func(t *testing.T) {
		err := probe(t, TCPConfig{Address: listen(t).Addr().String(), Source: netip.MustParseAddr("192.0.2.1")})
		require.ErrorIs(t, err, syscall.EADDRNOTAVAIL)
		require.Equal(t, LocalError, Classify(err))
	})
	t.Run("source of the other family", func(t *testing.T) {
		err := probe(t, TCPConfig{Address: listen(t).Addr().String(), Source: netip.MustParseAddr("::1")})
		require.Equal(t, LocalError, Classify(err), "%v", err)
	})
	t.Run("no time left to send anything", func(t *testing.T) {
		p, err := NewTCP(TCPConfig{Address: listen(t).Addr().String()})
		require.NoError(t, err)
		require.Equal(t, LocalError, Classify(p.Probe(expired())))
	})
	t.Run("bad addresses", func(t *testing.T) {
		for _, address := range []string{"", "192.0.2.1", ":443", "2001:db8::1:443", "a:b:c", "192.0.2.1:70000"} {
			_, err := NewTCP(TCPConfig{Address: address})
			require.ErrorIs(t, err, ErrConfig, address)
			require.ErrorContains(t, err, fmt.Sprintf("health: Address is %q: want host:port", address))
		}
	})
}

// serve returns a server whose handler is h, with TLS if secure.
func serve(t *testing.T, secure bool, h http.HandlerFunc) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0) // broken handshakes are wanted here
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func ask(t *testing.T, c HTTPConfig) error {
	p, err := NewHTTP(c)
	require.NoError(t, err)
	return p.Probe(t.Context())
}

func TestHTTPStatus(t *testing.T) {
	for _, tc := range []struct {
		status, low, high int
		want              Outcome
	}{
		{200, 0, 0, Good},
		{204, 0, 0, Good},
		{302, 0, 0, Bad},
		{404, 0, 0, Bad},
		{500, 0, 0, Bad},
		{503, 0, 0, Bad},
		{302, 200, 399, Good},
		{200, 401, 401, Bad},
		{401, 401, 0, Good},
	} {
		t.Run(fmt.Sprint(tc.status, tc.low, tc.high), func(t *testing.T) {
			requests := 0
			s := serve(t, false, func(w http.ResponseWriter, r *http.Request) {
				requests++
				if r.URL.Path == "/readyz" {
					w.Header().Set("Location", "/elsewhere")
					w.WriteHeader(tc.status)
				}
			})
			err := ask(t, HTTPConfig{URL: s.URL + "/readyz", MinStatus: tc.low, MaxStatus: tc.high})
			require.Equal(t, tc.want, Classify(err), "%v", err)
			if err != nil {
				require.ErrorContains(t, err, fmt.Sprintf("status %d: want", tc.status))
			}
			s.Close() // waits for the handler
			require.Equal(t, 1, requests, "redirects are not followed")
		})
	}
}

func TestHTTPRequest(t *testing.T) {
	var got string
	var peer string
	s := serve(t, true, func(w http.ResponseWriter, r *http.Request) {
		got = fmt.Sprint(r.Method, " ", r.URL.Path, " host=", r.Host, " sni=", r.TLS.ServerName, " close=", r.Close)
		peer = r.RemoteAddr
	})
	address := s.Listener.Addr().String()
	// A name that nobody resolves: only Address is dialled.
	require.NoError(t, ask(t, HTTPConfig{URL: "https://api.example.test:6443/readyz", Address: address, SkipVerify: true,
		Source: netip.MustParseAddr("127.0.0.1")}))
	require.Equal(t, "GET /readyz host=api.example.test:6443 sni=api.example.test close=true", got)
	require.True(t, strings.HasPrefix(peer, "127.0.0.1:"))

	require.NoError(t, ask(t, HTTPConfig{URL: s.URL, Method: "HEAD", Host: "virtual.test", ServerName: "front.test", SkipVerify: true}))
	require.Equal(t, "HEAD / host=virtual.test sni=front.test close=true", got)
}

func TestHTTPVerifiesCertificates(t *testing.T) {
	s := serve(t, true, func(http.ResponseWriter, *http.Request) {})
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	err := ask(t, HTTPConfig{URL: s.URL})
	require.Equal(t, Bad, Classify(err))
	var unknown x509.UnknownAuthorityError
	require.ErrorAs(t, err, &unknown)
	require.NoError(t, ask(t, HTTPConfig{URL: s.URL, RootCAs: pool}), "the certificate is for 127.0.0.1")
	require.NoError(t, ask(t, HTTPConfig{URL: s.URL, RootCAs: pool, ServerName: "example.com"}))
	err = ask(t, HTTPConfig{URL: s.URL, RootCAs: pool, ServerName: "wrong.test"})
	var name x509.HostnameError
	require.ErrorAs(t, err, &name)
	require.NoError(t, ask(t, HTTPConfig{URL: s.URL, SkipVerify: true}))
}

func TestHTTPBody(t *testing.T) {
	long := serve(t, false, func(w http.ResponseWriter, r *http.Request) {
		for range 1000 {
			if _, err := w.Write(make([]byte, 1<<10)); err != nil {
				return
			}
		}
	})
	require.NoError(t, ask(t, HTTPConfig{URL: long.URL, MaxBody: 1000}), "more than MaxBody is not read")

	broken := serve(t, false, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		w.Write([]byte("half"))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	err := ask(t, HTTPConfig{URL: broken.URL})
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, Bad, Classify(err))
}

func TestHTTPSilentAndGone(t *testing.T) {
	l := listen(t)
	p, err := NewHTTP(HTTPConfig{URL: "http://" + l.Addr().String()})
	require.NoError(t, err)
	ctx := timeout{t.Context(), make(chan struct{})}
	go func() { // takes the request, and time runs out
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		conn.Read(make([]byte, 1))
		close(ctx.done)
		io.Copy(io.Discard, conn)
	}()
	err = p.Probe(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, Bad, Classify(err))

	require.Equal(t, LocalError, Classify(p.Probe(expired())))

	err = ask(t, HTTPConfig{URL: "http://" + closedPort(t)})
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.Equal(t, Bad, Classify(err))

	err = ask(t, HTTPConfig{URL: "https://" + serve(t, false, func(http.ResponseWriter, *http.Request) {}).Listener.Addr().String()})
	require.Error(t, err)
	require.Equal(t, Bad, Classify(err), "no TLS there: %v", err)
}

func TestHTTPConfigFaults(t *testing.T) {
	_, err := NewHTTP(HTTPConfig{URL: "ftp://x", Method: "a b", Address: "x", MinStatus: 300, MaxStatus: 200, MaxBody: -1})
	require.ErrorIs(t, err, ErrConfig)
	for i, want := range []string{
		`health: URL is "ftp://x": want http://host/path or https://host/path`,
		`health: Method is "a b": want a token such as GET`,
		`health: Address is "x": want host:port`,
		`health: MinStatus, MaxStatus is 300, 200: want 100 to 999, in this order`,
		`health: MaxBody is -1: want 1 to 2^30`,
	} {
		require.Contains(t, strings.Split(err.Error(), "\n")[i], want)
	}
	for _, u := range []string{"", "https://", "/path", "http://:80/", "://"} {
		_, err := NewHTTP(HTTPConfig{URL: u})
		require.ErrorIs(t, err, ErrConfig, u)
	}
	p, err := NewHTTP(HTTPConfig{URL: "https://[2001:db8::1]/"})
	require.NoError(t, err)
	require.Equal(t, "2001:db8::1", p.config.ServerName)
}

func TestFunc(t *testing.T) {
	require.Equal(t, errRefused, Func(func(context.Context) error { return errRefused }).Probe(t.Context()))
}
