package tcpproxy

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/lastbeat/lastbeat/examples/internal/proxyproto"
	"github.com/lastbeat/lastbeat/health"
	"github.com/lastbeat/lastbeat/lb"
)

// search is the search of one connection for a backend.
type search struct {
	*Proxy
	client *net.TCPConn
	tried  map[string]bool // keys of the backends that failed; nil if none did
	last   error           // why the last one did
	place  *place          // in the queue; nil before
}

// connect finds a backend that takes the connection. If all that are left are full,
// it waits until one has room.
func (p *Proxy) connect(ctx context.Context, client *net.TCPConn) (*net.TCPConn, lb.Lease[Server], error) {
	s := &search{Proxy: p, client: client}
	// Those that wait come first.
	full := p.queue.length() > 0
	for waiting := ctx; ; {
		if full {
			if s.place = p.queue.join(); s.place == nil {
				p.queueFull.Add(1)
				return nil, lb.Lease[Server]{}, errQueueFull
			}
			if waiting == ctx {
				p.queued.Add(1)
				var cancel context.CancelFunc
				waiting, cancel = context.WithTimeoutCause(ctx, p.config.QueueTimeout, errQueueTimeout)
				defer cancel()
			}
		}
		conn, lease, err := s.look(ctx, waiting)
		if err != lb.ErrAllFull {
			return conn, lease, err
		}
		full = true
	}
}

// look walks the backends as soon as it is the connection's turn, and again while all
// of them are full. It returns ErrAllFull if it has no place in the queue any more.
func (s *search) look(ctx, waiting context.Context) (*net.TCPConn, lb.Lease[Server], error) {
	if s.place == nil {
		return s.walk(ctx)
	}
	defer s.place.leave()
	for {
		if err := s.place.wait(waiting); err != nil {
			if err == errQueueTimeout {
				s.queueTimeout.Add(1)
			}
			return nil, lb.Lease[Server]{}, err
		}
		conn, lease, err := s.walk(ctx)
		if err != lb.ErrAllFull || s.place.element == nil {
			return conn, lease, err
		}
	}
}

// walk tries each backend that has room and did not fail yet. It returns ErrAllFull if
// the others are all full.
func (s *search) walk(ctx context.Context) (*net.TCPConn, lb.Lease[Server], error) {
	for lease := range s.config.Backends.Walk(keyOf(s.client.RemoteAddr())) {
		if s.tried[lease.Key()] {
			lease.Done(time.Now(), lb.Result{})
			continue
		}
		if s.place != nil {
			s.place.leave() // who comes next need not wait for the dial
		}
		if s.last != nil {
			s.retried.Add(1)
		}
		conn, err := s.dial(ctx, lease.Value(), s.client)
		if err == nil {
			return conn, lease, nil
		}
		if s.tried == nil {
			s.tried = map[string]bool{}
		}
		s.tried[lease.Key()], s.last = true, err
		s.done(lease, lb.Result{Failed: health.Classify(err) == health.Bad})
		if ctx.Err() != nil {
			return nil, lb.Lease[Server]{}, err
		}
		s.config.Log.Debug("backend failed, trying the next", "backend", lease.Key(), "client", s.client.RemoteAddr(), "err", err)
	}
	switch {
	case s.crowded():
		return nil, lb.Lease[Server]{}, lb.ErrAllFull
	case s.last != nil:
		return nil, lb.Lease[Server]{}, s.last
	}
	return nil, lb.Lease[Server]{}, lb.ErrEmpty
}

// crowded tells whether there is a backend that may get connections and was not
// tried. After a walk that is one that was full.
func (s *search) crowded() bool {
	mode := s.config.Backends.Mode()
	if mode == lb.ModeEmpty {
		return false
	}
	state := lb.Up
	if mode == lb.ModePanic || mode == lb.ModeFailStatic {
		state = lb.Down
	}
	tier, crowded := 256, false // of the lowest tier that is used
	for _, b := range s.config.Backends.Backends() {
		if b.State != state || b.Weight == 0 || int(b.Tier) > tier {
			continue
		}
		if int(b.Tier) < tier {
			tier, crowded = int(b.Tier), false
		}
		crowded = crowded || b.MaxConns > 0 && !s.tried[b.Key]
	}
	return crowded
}

// done ends a lease, which makes room.
func (p *Proxy) done(lease lb.Lease[Server], result lb.Result) {
	lease.Done(time.Now(), result)
	p.queue.wake()
}

// Wake makes connections that wait for a backend look again. Whoever changes the
// backends calls it after that.
func (p *Proxy) Wake() { p.queue.wake() }

// keyOf maps a client's address, without the port, to the key of its connections. It
// is the same in every process, so that a fleet agrees where a client belongs.
func keyOf(client net.Addr) uint64 {
	address := addrPort(client).Addr().Unmap().As16()
	return binary.BigEndian.Uint64(address[:8])*0x9e3779b97f4a7c15 ^ binary.BigEndian.Uint64(address[8:]) // lb mixes it
}

// dial connects to a server and tells it who the client is, if it wants to know.
func (p *Proxy) dial(ctx context.Context, server Server, client *net.TCPConn) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.config.ConnectTimeout)
	defer cancel()
	conn, err := p.config.Dial(ctx, "tcp", server.Address)
	if err != nil {
		return nil, err
	}
	backend, ok := conn.(*net.TCPConn)
	if !ok {
		conn.Close()
		return nil, fmt.Errorf("%T to %s is no TCP connection", conn, server.Address)
	}
	if server.Header == proxyproto.None {
		return backend, nil
	}
	// A hundred bytes into an empty socket: this does not wait.
	header := server.Header.Append(nil, addrPort(client.RemoteAddr()), addrPort(client.LocalAddr()))
	if _, err := backend.Write(header); err != nil {
		backend.Close()
		return nil, err
	}
	return backend, nil
}

func addrPort(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }
