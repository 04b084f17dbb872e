package node

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/examples/internal/balancer"
	"github.com/lastbeat/lastbeat/health"
)

// portable is a node that touches no interface and no rule.
func portable(t *testing.T) *Node {
	n, err := New(Config{
		Status:   "127.0.0.1:0",
		Balancer: &balancer.Config{Listen: "127.0.0.1:0", MaxConn: 1},
		Checks:   []Check{{Name: "dead", Probe: Probe{TCP: "127.0.0.1:0"}}},
	}, nil)
	require.NoError(t, err)
	return n
}

// free tells that nobody listens on the balancer's port any more.
func free(t *testing.T, n *Node) {
	l, err := net.Listen("tcp", n.balancer.Status().Addresses["listen"])
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

func TestRunEnds(t *testing.T) {
	n := portable(t)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, n.Run(ctx))
	free(t, n)
}

// When a part fails, the others end, and its error is what Run returns.
func TestRunPartFails(t *testing.T) {
	n := portable(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, n.monitor.Run(over)) // so that a second Run fails
	require.ErrorIs(t, n.Run(t.Context()), health.ErrRan)
	free(t, n)
}

// A fault at the start leaves no port open.
func TestRunStartFault(t *testing.T) {
	n := portable(t)
	refused := errors.New("no")
	r, err := newRedirect(Redirect{VIPs: []netip.Addr{netip.MustParseAddr("192.0.2.9")}}.complete(), &kernel{refuses: refused}, n.alive, n.log)
	require.NoError(t, err)
	n.redirect = r
	err = n.Run(t.Context())
	require.EqualError(t, err, "redirect.vips [192.0.2.9]: no")
	_, ok := errors.AsType[*StartError](err)
	require.True(t, ok)
	free(t, n)
}

// Of several parts that can't start, the first is told: the others have the same
// cause.
func TestFailures(t *testing.T) {
	var f failures
	require.NoError(t, f.err())
	a, b, c := errors.New("a"), &StartError{errors.New("b")}, &StartError{errors.New("c")}
	f.add(nil)
	f.add(a)
	require.ErrorIs(t, f.err(), a)
	f.add(b)
	f.add(c)
	require.Equal(t, error(b), f.err())
}

func TestStatusPage(t *testing.T) {
	n := portable(t)
	for path, want := range map[string]int{
		"/": http.StatusSeeOther, "/status": http.StatusOK, "/check/dead": http.StatusServiceUnavailable,
		"/check/none": http.StatusNotFound, "/other": http.StatusNotFound,
	} {
		answer := httptest.NewRecorder()
		n.handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		require.Equal(t, want, answer.Code, path)
		if path == "/status" {
			for _, key := range []string{"state", "since", "valid_until", "reason"} {
				require.Contains(t, answer.Body.String(), `"`+key+`"`)
			}
		}
	}
}
