package tcpproxy

import (
	"io"
	"net"
	"sync/atomic"

	"github.com/lastbeat/lastbeat/examples/internal/proxyproto"
)

// Server is a backend as the proxy needs to know it.
type Server struct {
	// Address is host:port.
	Address string
	// Header tells the server who the client is. Default: none.
	Header proxyproto.Version
	// Traffic counts the bytes of the server's connections. Default: nobody counts.
	Traffic *Traffic
}

// Traffic counts bytes, those of a header left out. They are added when a direction
// of a connection ends, and every 4 MiB before that.
type Traffic struct {
	In  atomic.Uint64 // from clients
	Out atomic.Uint64 // to clients
}

// step is how many bytes are copied before they are counted. A smaller one would cost
// more, as each step takes a pipe from the runtime's pool and gives it back.
const step = 4 << 20

// count copies until the end of src and adds what it copied to total.
func count(dst, src *net.TCPConn, total *atomic.Uint64) error {
	for {
		// Both are TCP connections as they are, at most limited: so io.Copy splices.
		n, err := io.Copy(dst, &io.LimitedReader{R: src, N: step})
		total.Add(uint64(n))
		if err != nil || n < step {
			return err
		}
	}
}
