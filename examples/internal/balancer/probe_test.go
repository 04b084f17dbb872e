package balancer

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/examples/internal/proxyproto"
)

// headed accepts only connections that begin with the header, and takes it off.
type headed struct {
	net.Listener
	header string
}

func (h headed) Accept() (net.Conn, error) {
	for {
		conn, err := h.Listener.Accept()
		if err != nil {
			return nil, err
		}
		got := make([]byte, len(h.header))
		if _, err := io.ReadFull(conn, got); err == nil && string(got) == h.header {
			return conn, nil
		}
		conn.Close()
	}
}

// Probes of a server that expects a header send one, which says that nobody is
// behind them.
func TestChecksSendHeader(t *testing.T) {
	for _, v := range []proxyproto.Version{proxyproto.V1, proxyproto.V2} {
		for _, kind := range []string{"http", "https"} {
			t.Run(kind+" "+v.String(), func(t *testing.T) {
				var code atomic.Int64
				code.Store(http.StatusOK)
				server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(int(code.Load()))
				}))
				server.Listener = headed{server.Listener, string(v.AppendLocal(nil))}
				server.Config.SetKeepAlivesEnabled(false)
				if kind == "http" {
					server.Start()
				} else {
					server.StartTLS()
				}
				defer server.Close()
				address := server.Listener.Addr().String()
				check := often
				check.Kind, check.Fall = kind, 1
				r := start(t, Config{Backends: []Server{{Address: address, SendProxy: v}}, Check: check})
				r.await(t, address, true)
				code.Store(http.StatusFound) // not followed
				require.Contains(t, r.await(t, address, false).Reason, "status 302")
				r.stop()
			})
		}
		t.Run("tcp "+v.String(), func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()
			address := l.Addr().String()
			r := start(t, Config{Backends: []Server{{Address: address, SendProxy: v}}, Check: once})
			r.await(t, address, true)
			conn, err := headed{l, string(v.AppendLocal(nil))}.Accept()
			require.NoError(t, err)
			conn.Close()
			r.stop()
		})
	}
}

// A reload that only asks for headers changes the probes, too.
func TestReloadChangesHeader(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Listener = headed{server.Listener, string(proxyproto.V1.AppendLocal(nil))}
	server.Config.SetKeepAlivesEnabled(false)
	server.Start()
	defer server.Close()
	address := server.Listener.Addr().String()
	config := Config{Backends: Servers(address), Check: often}
	config.Check.Kind, config.Check.Fall = "http", 1
	r := start(t, config)
	r.await(t, address, false)

	config.Listen, config.Ready, config.Monitor = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	config.OnEvent = func(e Event) { r.events <- e }
	config.Backends = []Server{{Address: address, SendProxy: proxyproto.V1}}
	_, err := r.Update(config)
	require.NoError(t, err)
	r.await(t, address, true)
	r.stop()
}
