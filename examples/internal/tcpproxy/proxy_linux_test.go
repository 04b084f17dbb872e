package tcpproxy

import (
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What one connection costs, as Descriptors says: a start check relies on it.
func TestKernelDescriptors(t *testing.T) {
	b := start(t, Config{MaxConns: 1000}, server(t, func(c *net.TCPConn) {
		for one := make([]byte, 1); ; { // not io.Copy, which would splice here, too
			if _, err := io.ReadFull(c, one); err != nil {
				return
			}
			c.Write(one)
		}
	}))
	before, _ := descriptors(t)
	const n = 50
	for range n {
		c := b.connect(t)
		io.WriteString(c, "x")
		_, err := io.ReadFull(c, make([]byte, 1)) // both directions have begun
		require.NoError(t, err)
	}
	all, pipes := descriptors(t)
	// The client's and the server's sockets are in this process, too. Pipes may
	// come from the runtime's pool, so they are not all new.
	require.LessOrEqual(t, all-before, n*(Descriptors+2))
	require.GreaterOrEqual(t, pipes, n*(Descriptors-2), "idle connections hold their pipes: if no longer, lower Descriptors")
}

// descriptors counts those of this process, and how many of them are ends of pipes.
func descriptors(t *testing.T) (all, pipes int) {
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, fd := range list {
		// The one that read the directory is closed by now, so errors are normal.
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasPrefix(to, "pipe:") {
			pipes++
		}
	}
	return len(list), pipes
}
