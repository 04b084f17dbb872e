package standin

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// start runs a server until the test ends, and returns where it listens.
func start(t *testing.T, s *Server) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan []net.Addr, 1), make(chan error, 1)
	go func() { done <- s.Run(ctx, func(addrs []net.Addr) { ready <- addrs }) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		goleak.VerifyNone(t)
	})
	select {
	case addrs := <-ready:
		out := make([]string, len(addrs))
		for i, a := range addrs {
			out[i] = a.String()
		}
		return out
	case err := <-done:
		require.NoError(t, err)
		return nil
	}
}

// get makes one request on a connection of its own.
func get(t *testing.T, url string) (status int, server, body string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
	}}
	resp, err := client.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, resp.Header.Get(ServerHeader), strings.TrimSpace(string(b))
}

func TestPaths(t *testing.T) {
	const lo = "127.0.0.1:0"
	for _, tt := range []struct {
		name     string
		server   *Server
		port     int
		path     string
		whenDown int // status when not ready
	}{
		{"API", API("m0", lo), 0, "https:/anything", 200},
		{"API readiness", API("m0", lo), 0, "https:/readyz", 503},
		{"router", Router("m0", lo, lo, lo), 0, "http:/", 200},
		{"router with TLS", Router("m0", lo, lo, lo), 1, "https:/shop", 200},
		{"router lives", Router("m0", lo, lo, lo), 2, "http:/healthz", 200},
		{"router readiness", Router("m0", lo, lo, lo), 2, "http:/healthz/ready", 503},
		{"process", Process("m0", lo), 0, "http:/", 503},
	} {
		t.Run(tt.name, func(t *testing.T) {
			scheme, path, _ := strings.Cut(tt.path, ":")
			url := scheme + "://" + start(t, tt.server)[tt.port] + path
			status, server, body := get(t, url)
			require.Equal(t, 200, status)
			require.Equal(t, "m0", server)
			require.Equal(t, "ok", body)
			tt.server.SetReady(false)
			status, server, _ = get(t, url)
			require.Equal(t, tt.whenDown, status)
			require.Equal(t, "m0", server)
			tt.server.SetReady(true)
			status, _, _ = get(t, url)
			require.Equal(t, 200, status)
		})
	}
}

// A health check speaks HTTP/1.0 and names no host.
func TestHTTP10(t *testing.T) {
	addr := start(t, API("m1", "127.0.0.1:0"))[0]
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET /readyz HTTP/1.0\r\n\r\n")
	require.NoError(t, err)
	answer, err := io.ReadAll(conn) // the server closes
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(answer), "HTTP/1.0 200 OK\r\n"), "%s", answer)
	require.True(t, strings.HasSuffix(string(answer), "\r\n\r\nok"), "%s", answer)
}

// One port in use, and none stays open.
func TestPortInUse(t *testing.T) {
	used, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer used.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := free.Addr().String()
	require.NoError(t, free.Close())

	err = Router("m2", addr, used.Addr().String(), "127.0.0.1:0").Run(t.Context(), func([]net.Addr) { t.Error("listening") })
	require.ErrorContains(t, err, "standin: m2: listen tcp "+used.Addr().String())
	again, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

func TestForRole(t *testing.T) {
	for _, role := range []string{RoleAPI, RoleRouter, RoleMCS, RoleDefaultIngress} {
		s, err := ForRole(role, "m0")
		require.NoError(t, err)
		require.True(t, s.Ready())
		require.NotEmpty(t, s.ports)
	}
	_, err := ForRole("dns", "m0")
	require.ErrorContains(t, err, `role "dns": use api, router, mcs or default-ingress`)
}
