package tcpproxy

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/lb"
)

// The benchmarks compare a way through the proxy with the direct one. Client, proxy
// and server share the machine, so only the ratio means something.

func paths(b *testing.B, run func(b *testing.B, address string)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				// Not io.Copy: between two halves of one socket it would splice, too.
				buffer := make([]byte, 64<<10)
				for {
					n, err := conn.Read(buffer)
					if err != nil {
						return
					}
					if _, err := conn.Write(buffer[:n]); err != nil {
						return
					}
				}
			})
		}
	})
	defer all.Wait()
	defer l.Close()

	balancer, err := lb.New(lb.Config{}, lb.Backend[Server]{Key: "a", Value: Server{Address: l.Addr().String()}, Weight: 1})
	require.NoError(b, err)
	p, err := New(Config{Backends: balancer, MaxConns: 1000})
	require.NoError(b, err)
	front, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx, front) }()
	defer func() { cancel(); require.NoError(b, <-ended) }()

	b.Run("direct", func(b *testing.B) { run(b, l.Addr().String()) })
	b.Run("proxied", func(b *testing.B) { run(b, front.Addr().String()) })
}

func roundTrip(b *testing.B, c net.Conn, message []byte) {
	if _, err := c.Write(message); err != nil {
		b.Fatal(err)
	}
	if _, err := io.ReadFull(c, message); err != nil {
		b.Fatal(err)
	}
}

func dialled(b *testing.B, address string) net.Conn {
	c, err := net.Dial("tcp", address)
	require.NoError(b, err)
	return c
}

// BenchmarkConnect opens a connection, and sends and gets one byte.
func BenchmarkConnect(b *testing.B) {
	paths(b, func(b *testing.B, address string) {
		for b.Loop() {
			c := dialled(b, address)
			roundTrip(b, c, []byte{0})
			abort(c.(*net.TCPConn)) // keeps no port in TIME_WAIT
		}
	})
}

// BenchmarkRoundTrip sends and gets 64 bytes on an open connection.
func BenchmarkRoundTrip(b *testing.B) {
	paths(b, func(b *testing.B, address string) {
		c := dialled(b, address)
		defer c.Close()
		message := make([]byte, 64)
		for b.Loop() {
			roundTrip(b, c, message)
		}
	})
}

// BenchmarkStream sends and gets 64 KiB at a time.
func BenchmarkStream(b *testing.B) {
	paths(b, func(b *testing.B, address string) {
		c := dialled(b, address)
		defer c.Close()
		message := make([]byte, 64<<10)
		b.SetBytes(2 * int64(len(message)))
		for b.Loop() {
			roundTrip(b, c, message)
		}
	})
}
