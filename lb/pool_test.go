package lb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var errRefused = errors.New("connection refused")

// farm is the servers behind a pool: which of them refuse or are silent, and who
// was dialled.
type farm struct {
	mu      sync.Mutex
	refuses map[string]bool
	silent  map[string]bool
	dialled []string
}

func (f *farm) dial(ctx context.Context, network, address string) (net.Conn, error) {
	f.mu.Lock()
	f.dialled = append(f.dialled, address)
	refuses, silent := f.refuses[address], f.silent[address]
	f.mu.Unlock()
	if silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if refuses {
		return nil, errRefused
	}
	ours, _ := net.Pipe()
	return ours, nil
}

// pool gives a pool over the farm in which equal servers begin with the first.
func (f *farm) pool(t *testing.T, c PoolConfig, servers ...Server) *Pool {
	f.refuses, f.silent = map[string]bool{}, map[string]bool{}
	c.Dial = f.dial
	c.Rand = rand.New(rand.NewPCG(1, 2))
	p, err := NewPool(c, servers...)
	require.NoError(t, err)
	p.first = 0
	return p
}

// reach dials, and returns the server that was reached, or "" and why not.
func reach(p *Pool) (*Conn, string, error) {
	c, err := p.Dial(context.Background())
	if err != nil {
		return nil, "", err
	}
	return c, c.Address, nil
}

// at returns servers by their names: * after a name is preferred, ! last resort, -
// drained, _ down.
func at(names ...string) []Server {
	var out []Server
	for _, n := range names {
		s := Server{Address: strings.TrimRight(n, "*!-_")}
		s.Preferred, s.LastResort = strings.Contains(n, "*"), strings.Contains(n, "!")
		if strings.Contains(n, "-") {
			s.State = Drain
		}
		if strings.Contains(n, "_") {
			s.State = Down
		}
		out = append(out, s)
	}
	return out
}

// Who is tried, and in which order, when those that refuse do.
func TestPoolOrder(t *testing.T) {
	for _, tc := range []struct {
		name    string
		policy  Policy
		servers []Server
		refuse  string
		dialled string // the last one is reached
	}{
		{"the first", PolicyEmpty, at("a", "b", "c"), "", "a"},
		{"one after the other", PolicyEmpty, at("a", "b", "c"), "ab", "abc"},
		{"preferred first", PolicyEmpty, at("a", "b*", "c"), "", "b"},
		{"preferred before others", PolicyEmpty, at("a", "b*", "c*"), "bc", "bca"},
		{"last resort last", PolicyEmpty, at("a!", "b", "c"), "bc", "bca"},
		{"last resort even if down", PolicyEmpty, at("a!_", "b_", "c_"), "", "a"},
		{"neither down nor drained", PolicyEmpty, at("a_", "b-", "c"), "", "c"},
		{"a drained last resort is drained", PolicyPanic, at("a!-", "b_", "c-"), "", "b"},
		{"panic after last resort", PolicyPanic, at("a_", "b!", "c"), "bc", "cba"},
		{"preferred that is down", PolicyEmpty, at("a_*", "b"), "", "b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var f farm
			p := f.pool(t, PoolConfig{Policy: tc.policy}, tc.servers...)
			for _, r := range tc.refuse {
				f.refuses[string(r)] = true
			}
			_, got, err := reach(p)
			require.NoError(t, err)
			require.Equal(t, tc.dialled, strings.Join(f.dialled, ""))
			require.Equal(t, tc.dialled[len(tc.dialled)-1:], got)
			require.Equal(t, got, p.Active())
			require.Equal(t, 1, p.Conns(got))
		})
	}
}

func TestPoolNobody(t *testing.T) {
	var f farm
	p := f.pool(t, PoolConfig{}, at("a_", "b-")...)
	_, _, err := reach(p)
	require.ErrorIs(t, err, ErrEmpty)
	require.Empty(t, p.Active())

	require.NoError(t, p.Set(at("a", "b")...))
	f.refuses["a"], f.refuses["b"] = true, true
	_, _, err = reach(p)
	require.ErrorIs(t, err, errRefused)
	require.EqualError(t, err, "lb: no server could be reached: a: connection refused\nb: connection refused")
	require.Zero(t, p.Conns("a"))
	require.Zero(t, p.Conns("nobody"))
}

// A pool stays with the server that it reached, avoids one that failed, and goes
// back to it when it is known to be good again; to a preferred one it goes as soon
// as that comes up.
func TestPoolStaysAndReturns(t *testing.T) {
	var f farm
	p := f.pool(t, PoolConfig{}, at("a", "b", "c")...)
	next := func() string {
		_, got, err := reach(p)
		require.NoError(t, err)
		return got
	}
	f.refuses["a"] = true
	require.Equal(t, "b", next())
	f.refuses["a"] = false
	f.dialled = nil
	require.Equal(t, "b", next(), "the active one")
	require.Equal(t, []string{"b"}, f.dialled, "without asking others")
	f.refuses["b"] = true
	require.Equal(t, "c", next(), "a has failed before and is not yet known to be good")
	f.refuses["c"] = true
	require.Equal(t, "a", next(), "but it is tried again rather than nobody")
	require.Equal(t, "a", next())

	require.NoError(t, p.Set(at("a", "b_", "c*_")...))
	f.refuses = map[string]bool{}
	require.NoError(t, p.Set(at("a", "b", "c*")...))
	require.Equal(t, "c", next(), "preferred, and its failure was forgotten when it came up")
}

// https://github.com/k3s-io/k3s/issues/10240
// https://github.com/k3s-io/k3s/issues/11349
// All checks fail at once, and what is left is the address of the start.
func TestReportPoolLastResort(t *testing.T) {
	var f farm
	p := f.pool(t, PoolConfig{}, at("seed!", "a", "b")...)
	require.NoError(t, p.Set(at("seed!_", "a_", "b_")...))
	_, got, err := reach(p)
	require.NoError(t, err)
	require.Equal(t, "seed", got)
}

func TestPoolHandsOverWhatGoesDown(t *testing.T) {
	var f farm
	handed := map[string]int{}
	var p *Pool
	p = f.pool(t, PoolConfig{Down: func(s Server, conns []*Conn) {
		handed[s.Address] += len(conns)
		for _, c := range conns {
			require.NoError(t, c.Close(), "the pool may be called")
		}
		require.Zero(t, p.Conns(s.Address))
	}}, at("a*", "b")...)
	one, _, _ := reach(p)
	_, _, _ = reach(p)
	require.Equal(t, 2, p.Conns("a"))

	require.NoError(t, p.Set(at("a*-", "b")...))
	require.Empty(t, handed, "a drain ends nothing")
	require.NoError(t, one.Close())
	require.Equal(t, 1, p.Conns("a"))
	require.NoError(t, p.Set(at("a*_", "b")...))
	require.Equal(t, map[string]int{"a": 1}, handed)
	require.NoError(t, p.Set(at("a*_", "b")...))
	require.Equal(t, map[string]int{"a": 1}, handed, "once")

	three, got, _ := reach(p)
	require.Equal(t, "b", got)
	require.NoError(t, p.Set(at("a_")...))
	require.Equal(t, map[string]int{"a": 1, "b": 1}, handed, "removed")
	require.Empty(t, p.Active())
	_, err := three.Write([]byte("x"))
	require.Error(t, err)
}

func TestPoolClosesByDefault(t *testing.T) {
	var f farm
	p := f.pool(t, PoolConfig{}, at("a")...)
	c, _, _ := reach(p)
	require.NoError(t, p.Set(at("a_")...))
	_, err := c.Read(make([]byte, 1))
	require.Error(t, err)
	require.Zero(t, p.Conns("a"))
}

// A connection that stands only after its server went down would be missed by the
// hand-over; so the pool gives it up and goes on.
func TestPoolServerGoesDownWhileDialled(t *testing.T) {
	for name, after := range map[string][]Server{"down": at("a_", "b"), "removed": at("b")} {
		t.Run(name, func(t *testing.T) {
			var f farm
			var p *Pool
			var opened []net.Conn
			p = f.pool(t, PoolConfig{}, at("a", "b")...)
			p.config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				if address == "a" {
					require.NoError(t, p.Set(after...))
				}
				c, err := f.dial(ctx, network, address)
				opened = append(opened, c)
				return c, err
			}
			_, got, err := reach(p)
			require.NoError(t, err)
			require.Equal(t, "b", got)
			_, err = opened[0].Write([]byte("x"))
			require.Error(t, err, "closed")
		})
	}
}

// https://github.com/apache/cloudstack/issues/3505
// https://github.com/apache/cloudstack/issues/2858
// A server without power costs one Timeout, not the patience of the kernel, and
// the next attempt goes to another.
func TestReportPoolPoweredOffServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f farm
		p := f.pool(t, PoolConfig{Timeout: 2 * time.Second}, at("a", "b")...)
		f.silent["a"] = true
		begun := time.Now()
		_, got, err := reach(p)
		require.NoError(t, err)
		require.Equal(t, "b", got)
		require.Equal(t, 2*time.Second, time.Since(begun))
		_, _, err = reach(p)
		require.NoError(t, err)
		require.Equal(t, 2*time.Second, time.Since(begun), "and never again")
	})
}

// A caller without patience blames nobody.
func TestPoolCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f farm
		p := f.pool(t, PoolConfig{}, at("a", "b")...)
		f.silent["a"] = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Dial(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []string{"a"}, f.dialled)
		require.False(t, p.servers[0].failed)
		_, err = p.Dial(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Len(t, f.dialled, 1, "nobody is dialled for a caller who is gone")
	})
}

func TestPoolValidation(t *testing.T) {
	_, err := NewPool(PoolConfig{Timeout: -1, Policy: PolicyFailStatic},
		Server{}, Server{Address: "a"}, Server{Address: "a", State: 9}, Server{Address: "b", Preferred: true, LastResort: true})
	for _, want := range []error{ErrConfig, ErrNoKey, ErrDuplicateKey, ErrState, ErrServer} {
		require.ErrorIs(t, err, want)
	}
	require.ErrorContains(t, err, "Timeout -1ns: want 1ms to 1h")
	require.ErrorContains(t, err, "policy 2: a pool wants PolicyEmpty or PolicyPanic")

	var f farm
	p := f.pool(t, PoolConfig{}, at("a")...)
	require.Error(t, p.Set(at("b", "b")...))
	_, got, _ := reach(p)
	require.Equal(t, "a", got, "a refused list changes nothing")
}

// Fresh pools of a fleet do not all begin with the same server.
func TestReportPoolsDiffer(t *testing.T) {
	var f farm
	first := map[string]int{}
	for range 300 {
		p, err := NewPool(PoolConfig{Dial: f.dial}, at("a", "b", "c")...)
		require.NoError(t, err)
		_, got, err := reach(p)
		require.NoError(t, err)
		first[got]++
	}
	for _, s := range []string{"a", "b", "c"} {
		require.InDelta(t, 100, first[s], 50, "6 standard deviations: %v", first)
	}
}

func TestPoolConcurrently(t *testing.T) {
	var f farm
	p := f.pool(t, PoolConfig{Policy: PolicyPanic}, at("a", "b", "c!")...)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				c, err := p.Dial(context.Background())
				if err != nil {
					if !errors.Is(err, errWentDown) {
						panic(fmt.Sprint("unexpected: ", err))
					}
					continue
				}
				c.Close()
			}
		})
	}
	wg.Go(func() {
		lists := [][]Server{at("a_", "b", "c!"), at("b*"), at("a", "b-", "c!_")}
		for i := range 200 {
			if err := p.Set(lists[i%3]...); err != nil {
				panic(err)
			}
		}
	})
	wg.Wait()
	for _, a := range []string{"a", "b", "c"} {
		require.Zero(t, p.Conns(a))
	}
	require.True(t, slices.Contains([]string{"", "a", "b", "c"}, p.Active()))
}

// A connection that is dialled for real can be spliced: the one inside is the
// system's own.
func TestPoolDialsByItself(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	p, err := NewPool(PoolConfig{}, Server{Address: l.Addr().String()})
	require.NoError(t, err)
	c, err := p.Dial(t.Context())
	require.NoError(t, err)
	defer c.Close()
	require.IsType(t, &net.TCPConn{}, c.Conn)
}
