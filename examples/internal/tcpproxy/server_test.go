package tcpproxy

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/examples/internal/proxyproto"
	"github.com/lastbeat/lastbeat/lb"
)

// configure changes what is known about the first backend.
func (b *bench) configure(t *testing.T, change func(*Server)) {
	require.NoError(t, b.balancer.Update(func(all []lb.Backend[Server]) []lb.Backend[Server] {
		change(&all[0].Value)
		return all
	}))
}

// The server hears of the client first, and then from it.
func TestHeader(t *testing.T) {
	for _, v := range []proxyproto.Version{proxyproto.V1, proxyproto.V2} {
		t.Run(v.String(), func(t *testing.T) {
			b := start(t, Config{Grace: time.Hour}, server(t, echo))
			b.configure(t, func(s *Server) { s.Header, s.Traffic = v, new(Traffic) })
			conn := b.connect(t)
			io.WriteString(conn, "hello")
			require.NoError(t, conn.CloseWrite())
			got, err := io.ReadAll(conn)
			require.NoError(t, err)
			want := v.Append(nil, conn.LocalAddr().(*net.TCPAddr).AddrPort(), conn.RemoteAddr().(*net.TCPAddr).AddrPort())
			require.Equal(t, string(want)+"hello", string(got))
			if v == proxyproto.V1 {
				client := conn.LocalAddr().(*net.TCPAddr)
				require.Contains(t, string(got), fmt.Sprintf("PROXY TCP4 127.0.0.1 127.0.0.1 %d ", client.Port))
			}
		})
	}
}

// Bytes are counted both ways, also beyond one step.
func TestTraffic(t *testing.T) {
	traffic := new(Traffic)
	b := start(t, Config{Grace: time.Hour}, server(t, func(c *net.TCPConn) {
		n, _ := io.Copy(io.Discard, c)
		fmt.Fprintf(c, "%d", n)
	}))
	b.configure(t, func(s *Server) { s.Traffic = traffic })
	conn := b.connect(t)
	const n = 2*step + 1234
	data := make([]byte, n)
	_, err := conn.Write(data)
	require.NoError(t, err)
	require.NoError(t, conn.CloseWrite())
	got, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(n), string(got))
	b.stop()
	require.EqualValues(t, n, traffic.In.Load())
	require.EqualValues(t, len(got), traffic.Out.Load())
}
