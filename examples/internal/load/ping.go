package load

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/lastbeat/lastbeat/internal/cksum"
)

// pinger sends echo requests to one address.
type pinger struct {
	conn net.PacketConn
	addr net.Addr
	id   uint16
}

// run sends at fixed distances. Pings that a busy machine missed are left out:
// sent in a bunch they would say nothing about the time that they missed.
func (p *pinger) run(ctx context.Context, every time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for seq := uint16(0); ; seq++ {
		_, err := p.conn.WriteTo(echo(p.id, seq), p.addr)
		if err != nil && !unreachable(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// unreachable tells errors that belong to an outage from those that mean that
// nothing will ever be sent.
func unreachable(err error) bool {
	for _, e := range []error{syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN, syscall.ENOBUFS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// echo is an ICMP echo request without data (RFC 792).
func echo(id, seq uint16) []byte {
	b := make([]byte, 8)
	b[0] = 8
	binary.BigEndian.PutUint16(b[4:], id)
	binary.BigEndian.PutUint16(b[6:], seq)
	binary.BigEndian.PutUint16(b[2:], cksum.Finish(cksum.Sum(0, b)))
	return b
}

// drain throws away what arrives until the socket is closed: the kernel hands
// every ICMP message to a raw socket.
func drain(conn net.PacketConn) {
	buf := make([]byte, 64)
	for {
		if _, _, err := conn.ReadFrom(buf); errors.Is(err, net.ErrClosed) {
			return
		}
	}
}
