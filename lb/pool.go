package lb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// Server is one that a [Pool] may dial.
type Server struct {
	// Address is what Dial is called with. It must be unique and not empty.
	Address string
	// State is Up, Drain or Down. A drained server is not dialled and keeps its
	// connections. When one goes Down, its connections are handed to
	// PoolConfig.Down.
	State State
	// Preferred servers are dialled before all others, such as the one on the
	// same host.
	Preferred bool
	// LastResort servers are dialled only when all others failed or are not Up,
	// and then even if they are Down: such as the address that a program was
	// started with, before it learnt the others.
	LastResort bool
}

// ErrServer is the reason for which a server that is both Preferred and LastResort
// is refused, found by errors.Is in the errors of [NewPool] and [Pool.Set].
var ErrServer = errors.New("server is both preferred and last resort: choose one")

// PoolConfig configures a [Pool]. The zero value dials TCP.
type PoolConfig struct {
	// Network is what Dial is called with. Default "tcp".
	Network string
	// Dial makes a connection; nil means that of a zero net.Dialer. It must return
	// when its context ends. Several goroutines may call it at once.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Timeout bounds each attempt, so that a server without power does not use up
	// the time of the others. Range 1 ms to 1 h, default 5 s.
	Timeout time.Duration
	// Policy is used when no other server could be dialled. PolicyEmpty, the
	// default, gives up. PolicyPanic dials those that are Down. Others are
	// refused: a pool keeps no good set.
	Policy Policy
	// Down is called with the open connections of a server that went Down or was
	// removed, if it has any. nil closes them, so that their users find out now
	// and not by a timeout. It is called by Set, after the change, by one
	// goroutine for each Set, and may call the pool.
	Down func(server Server, conns []*Conn)
	// Rand draws with which of equal servers a pool begins. It is used inside
	// NewPool only. nil means a generator seeded by crypto/rand; give one only to
	// repeat a run, as equal seeds send a whole fleet to the same server.
	Rand *rand.Rand
}

// Pool dials one of several servers, and goes on to the next when that fails. It is
// for clients with few, long connections, such as an agent with its managers;
// many short ones want a [Balancer].
//
// The order is: preferred servers; the active one, which is the last that was
// reached; the others that are up, from a random one on; those of all these that
// failed when they were dialled last; those of last resort; with PolicyPanic,
// those that are down. A failure is forgotten when the server is reached, or
// comes up after it was Down.
//
// All methods are safe for use by many goroutines at once. The pool starts none,
// and holds no lock while it dials.
type Pool struct {
	config PoolConfig
	first  uint64 // random; where equal servers begin

	mu      sync.Mutex
	servers []*pooled
	active  *pooled
}

// pooled is a server and what the pool knows of it, guarded by the pool's mu.
type pooled struct {
	Server
	failed bool
	gone   bool // removed by Set
	conns  map[*Conn]struct{}
}

// Conn is a connection of a [Pool]. Whoever needs what only the connection inside can
// do, such as splicing of a *net.TCPConn, uses that one; but Close must be called
// on the Conn.
type Conn struct {
	net.Conn
	// Address is that of the server, as it was set.
	Address string

	pool   *Pool
	server *pooled
}

// Close closes the connection and makes the pool forget it.
func (c *Conn) Close() error {
	c.pool.mu.Lock()
	delete(c.server.conns, c)
	c.pool.mu.Unlock()
	return c.Conn.Close()
}

// NewPool returns a pool of the given servers, of which there may be none. It dials
// nobody. It reports all faults at once: an error that wraps ErrConfig for each
// fault of the config, a *[BackendError] for each bad server.
func NewPool(config PoolConfig, servers ...Server) (*Pool, error) {
	if config.Network == "" {
		config.Network = "tcp"
	}
	if config.Dial == nil {
		config.Dial = new(net.Dialer).DialContext
	}
	if config.Timeout == 0 {
		config.Timeout = 5 * time.Second
	}
	if config.Down == nil {
		config.Down = closeAll
	}
	var faults []error
	if config.Timeout < time.Millisecond || config.Timeout > time.Hour {
		faults = append(faults, fmt.Errorf("%w: Timeout %v: want 1ms to 1h", ErrConfig, config.Timeout))
	}
	if config.Policy > PolicyPanic {
		faults = append(faults, fmt.Errorf("%w: policy %d: a pool wants PolicyEmpty or PolicyPanic", ErrConfig, config.Policy))
	}
	p := &Pool{first: generator(config.Rand).Uint64()}
	config.Rand = nil // NewPool only
	p.config = config
	if err := p.Set(servers...); err != nil {
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return p, nil
}

func closeAll(_ Server, conns []*Conn) {
	for _, c := range conns {
		c.Close() // it is being given up; there is nobody to tell
	}
}

// Set replaces all servers. On error, which joins a *[BackendError] for each bad
// server, nothing changes. Servers whose address stays keep their connections,
// and a failure unless they come up. Those of servers that were removed or went
// Down are handed to PoolConfig.Down before Set returns.
func (p *Pool) Set(servers ...Server) error {
	if err := checkServers(servers); err != nil {
		return err
	}
	type lost struct {
		server Server
		conns  []*Conn
	}
	var down []lost
	lose := func(s *pooled) {
		if len(s.conns) > 0 {
			l := lost{server: s.Server}
			for c := range s.conns {
				l.conns = append(l.conns, c)
			}
			down = append(down, l)
		}
	}

	p.mu.Lock()
	before := make(map[string]*pooled, len(p.servers))
	for _, s := range p.servers {
		before[s.Address] = s
	}
	p.servers = make([]*pooled, len(servers))
	for i, server := range servers {
		s := before[server.Address]
		delete(before, server.Address)
		if s == nil {
			s = &pooled{Server: server, conns: map[*Conn]struct{}{}}
		}
		was := s.State
		s.Server = server
		if was == Down && server.State != Down {
			s.failed = false
		}
		if was != Down && server.State == Down {
			lose(s)
		}
		p.servers[i] = s
	}
	for _, s := range before {
		s.gone = true
		lose(s)
		if p.active == s {
			p.active = nil
		}
	}
	p.mu.Unlock()

	for _, l := range down {
		p.config.Down(l.server, l.conns)
	}
	return nil
}

func checkServers(servers []Server) error {
	list := make([]Backend[Server], len(servers))
	var faults []error
	for i, s := range servers {
		list[i] = Backend[Server]{Key: s.Address, State: s.State}
		if s.Preferred && s.LastResort {
			faults = append(faults, &BackendError{i, s.Address, ErrServer})
		}
	}
	return errors.Join(append([]error{check(list, false)}, faults...)...)
}

// Dial returns a connection to the first server in the order of the Pool that can be
// reached, each being tried once. When none can, the error is ErrEmpty if none may be
// tried, and else joins what PoolConfig.Dial returned for each attempt. It returns
// early when ctx ends.
func (p *Pool) Dial(ctx context.Context) (*Conn, error) {
	tried := map[*pooled]bool{}
	var faults []error
	for ctx.Err() == nil {
		s := p.next(tried)
		if s == nil {
			break
		}
		tried[s] = true
		conn, err := p.attempt(ctx, s)
		if err == nil {
			return conn, nil
		}
		faults = append(faults, fmt.Errorf("%s: %w", s.Address, err))
	}
	if err := ctx.Err(); err != nil && !slices.ContainsFunc(faults, func(f error) bool { return errors.Is(f, err) }) {
		faults = append(faults, err)
	}
	if len(faults) == 0 {
		return nil, ErrEmpty
	}
	return nil, fmt.Errorf("lb: no server could be reached: %w", errors.Join(faults...))
}

// next returns the first untried server in the order of the pool, as it is now: a
// Set may have come between two attempts.
func (p *Pool) next(tried map[*pooled]bool) *pooled {
	p.mu.Lock()
	defer p.mu.Unlock()
	var best *pooled
	least := never
	for i := range p.servers {
		s := p.servers[(uint64(i)+p.first)%uint64(len(p.servers))]
		if r := p.rank(s); r < least && !tried[s] {
			best, least = s, r
		}
	}
	return best
}

// The order of a pool; see rank.
const (
	preferred = iota
	active
	another
	failedPreferred
	failedAnother
	lastResort
	panicking
	never
)

func (p *Pool) rank(s *pooled) int {
	switch {
	case s.State == Drain:
		return never
	case s.LastResort:
		return lastResort
	case s.State == Down && p.config.Policy == PolicyPanic:
		return panicking
	case s.State == Down:
		return never
	case s.failed && s.Preferred:
		return failedPreferred
	case s.failed:
		return failedAnother
	case s.Preferred:
		return preferred
	case s == p.active:
		return active
	}
	return another
}

// errWentDown is why an attempt that succeeded was given up.
var errWentDown = errors.New("went down or was removed while it was dialled")

func (p *Pool) attempt(ctx context.Context, s *pooled) (*Conn, error) {
	p.mu.Lock()
	address, was := s.Address, s.State
	p.mu.Unlock()

	limited, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	inner, err := p.config.Dial(limited, p.config.Network, address)

	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		// A caller who gave up says nothing about the server.
		s.failed = s.failed || ctx.Err() == nil
		return nil, err
	}
	if s.gone || s.State == Down && was != Down {
		// Its connections were handed over already; this one would be missed.
		inner.Close()
		return nil, errWentDown
	}
	c := &Conn{Conn: inner, Address: address, pool: p, server: s}
	s.conns[c] = struct{}{}
	s.failed = false
	p.active = s
	return c, nil
}

// Active returns the address of the server that was reached last, "" if none was or
// if it was removed.
func (p *Pool) Active() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active == nil {
		return ""
	}
	return p.active.Address
}

// Conns returns the number of open connections to the server with the given address.
func (p *Pool) Conns(address string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.servers {
		if s.Address == address {
			return len(s.conns)
		}
	}
	return 0
}
