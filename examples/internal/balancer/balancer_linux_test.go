package balancer

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// deaf returns the address of a listener whose accept queue holds one connection and
// that never accepts. Once the queue is full the kernel drops what comes in, so that
// the address is silent, as that of a machine that lost its power is.
func deaf(t *testing.T) string {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { syscall.Close(fd) })
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, syscall.Listen(fd, 0))
	name, err := syscall.Getsockname(fd)
	require.NoError(t, err)
	return fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
}

// fill connects until the address is silent.
func fill(t *testing.T, address string) {
	for range 10 {
		conn, err := net.DialTimeout("tcp", address, 500*time.Millisecond)
		if err != nil {
			silence, ok := errors.AsType[net.Error](err)
			require.True(t, ok && silence.Timeout(), err)
			return
		}
		t.Cleanup(func() { conn.Close() })
	}
	require.FailNow(t, "the queue does not fill")
}

// A backend that fell silent since the last probe costs the connect timeout.
func TestKernelSilentBackend(t *testing.T) {
	a, silent := serve(t, "a"), deaf(t)
	r := start(t, Config{Backends: Servers(silent, a.address), Check: once, ConnectTimeout: 50 * time.Millisecond, Grace: time.Hour})
	r.await(t, silent, true)
	r.await(t, a.address, true)
	fill(t, silent)
	for range 4 {
		require.Equal(t, "a", r.name(t))
	}
	r.stop()
	s := r.Status()
	require.NotZero(t, s.Conns.Retried)
	require.Equal(t, s.Conns.Retried, s.Backends[0].Failed)
	require.EqualValues(t, 4, s.Backends[1].Ended)
}

// A silent backend is found dead by its probes, not only by clients.
func TestKernelSilentBackendLeaves(t *testing.T) {
	silent := deaf(t)
	check := often
	check.Timeout = 20 * time.Millisecond
	r := start(t, Config{Backends: Servers(silent), Check: check, ConnectTimeout: 50 * time.Millisecond})
	r.await(t, silent, false)
	require.Zero(t, r.Live())
	r.refused(t)
}

// What a port below 1024 wants is named.
func TestListenErrors(t *testing.T) {
	for err, want := range map[error]string{
		syscall.EACCES:        "balancer: listen :443: permission denied: choose a port above 1023, or run as root or with CAP_NET_BIND_SERVICE",
		syscall.EADDRNOTAVAIL: "balancer: listen :443: cannot assign requested address: use an address of this machine, or none to listen on all",
		syscall.EADDRINUSE:    "balancer: listen :443: address already in use: stop the other program or choose another port",
		errors.New("other"):   "balancer: listen :443: other: choose another address",
	} {
		require.EqualError(t, listenError("listen", ":443", err), want)
	}
}
