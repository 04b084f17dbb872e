package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// every is slow enough for a busy machine with the race detector: an open loop
// that asks faster than it can be answered only piles up requests.
const every = 20 * time.Millisecond

// run lets Run go on until it has emitted at least n records.
func run(t *testing.T, n int, c Config) []Record {
	t.Helper()
	if c.Timeout == 0 {
		c.Timeout = time.Minute // no test fails because the machine is busy
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []Record
	require.NoError(t, Run(ctx, c, func(r Record) {
		if got = append(got, r); len(got) == n {
			cancel()
		}
	}))
	require.GreaterOrEqual(t, len(got), n)
	slices.SortFunc(got, func(a, b Record) int { return a.Seq - b.Seq })
	return got
}

func server(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(h)
	t.Cleanup(func() {
		s.Close()
		goleak.VerifyNone(t)
	})
	return s
}

func TestRecords(t *testing.T) {
	var connections atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Server", "m1")
		if r.URL.Path == "/sick" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.StartTLS()
	defer goleak.VerifyNone(t)
	defer s.Close()

	before := time.Now()
	got := run(t, 5, Config{Every: every, Targets: []Target{{Name: "api", URL: s.URL + "/readyz"}}})
	require.EqualValues(t, len(got), connections.Load(), "each request has a connection of its own")
	for i, r := range got {
		require.Equal(t, i, r.Seq)
		require.Equal(t, "api", r.Target)
		require.Empty(t, r.Error)
		require.Equal(t, 200, r.Status)
		require.Equal(t, "m1", r.Server)
		require.Equal(t, time.Duration(i)*every, r.Scheduled.Sub(got[0].Scheduled), "the schedule does not drift")
		require.False(t, r.Start.Before(r.Scheduled))
		require.False(t, r.End.Before(r.Start))
		require.False(t, r.Start.Before(before))
	}

	for _, r := range run(t, 1, Config{Every: every, Targets: []Target{{URL: s.URL + "/sick"}}}) {
		require.Equal(t, "503 Service Unavailable", r.Error)
		require.Equal(t, "m1", r.Server, "a refusal too tells who refused")
		require.False(t, r.TimedOut)
	}
}

// No request waits for an earlier one: here the first is answered only when the
// tenth has come.
func TestOpenLoop(t *testing.T) {
	const together = 10
	all := make(chan struct{})
	var arrived atomic.Int32
	s := server(t, func(http.ResponseWriter, *http.Request) {
		if arrived.Add(1) == together {
			close(all)
		}
		<-all
	})
	for _, r := range run(t, together, Config{Every: every, Timeout: time.Minute, Targets: []Target{{URL: s.URL}}}) {
		require.Empty(t, r.Error)
	}
}

// Requests that are out when the measurement ends are still answered.
func TestEndWaitsForAnswers(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := server(t, func(http.ResponseWriter, *http.Request) { cancel() })
	var got []Record
	require.NoError(t, Run(ctx, Config{Every: time.Hour, Timeout: time.Minute, Targets: []Target{{URL: s.URL}}},
		func(r Record) { got = append(got, r) }))
	require.Len(t, got, 1)
	require.Empty(t, got[0].Error)
}

func TestFailures(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, nobody answers
	require.NoError(t, err)
	defer silent.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())

	c := Config{Every: time.Hour, Timeout: 20 * time.Millisecond, Targets: []Target{{URL: "https://" + silent.Addr().String()}}}
	r := run(t, 1, c)[0]
	require.True(t, r.TimedOut, r.Error)
	require.GreaterOrEqual(t, r.End.Sub(r.Start), c.Timeout)
	require.Zero(t, r.Status)

	c.Timeout = time.Minute
	c.Targets[0].URL = "https://" + closed.Addr().String()
	r = run(t, 1, c)[0]
	require.False(t, r.TimedOut)
	require.Contains(t, r.Error, "refused")
}

func TestInFlight(t *testing.T) {
	at := time.Now()
	for _, tt := range []struct {
		name       string
		start, end time.Duration
		want       bool
	}{
		{"over before", -2, -1, false},
		{"under way", -1, 1, true},
		{"begun after", 1, 2, false},
		{"begun at the instant", 0, 1, false},
		{"ended at the instant", -1, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, Record{Start: at.Add(tt.start), End: at.Add(tt.end)}.InFlight(at))
		})
	}
}

func TestLines(t *testing.T) {
	s := server(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Server", "m2") })
	c := Config{Every: every, Timeout: time.Minute, Targets: []Target{{Name: "api", URL: s.URL}}}
	// The configuration travels as JSON too.
	b, err := json.Marshal(c)
	require.NoError(t, err)
	var sent Config
	require.NoError(t, json.Unmarshal(b, &sent))
	require.Equal(t, c, sent)

	var out bytes.Buffer
	w := &failAfter{w: &out, n: 3}
	require.ErrorIs(t, Lines(t.Context(), sent, w), errFull, "nobody reads: no reason to go on")
	dec := json.NewDecoder(&out)
	for range 3 {
		var r Record
		require.NoError(t, dec.Decode(&r))
		require.Equal(t, "m2", r.Server)
		require.False(t, r.Scheduled.IsZero())
	}
	require.ErrorIs(t, dec.Decode(new(Record)), io.EOF)
}

var errFull = errors.New("full")

type failAfter struct {
	w io.Writer
	n int
}

func (f *failAfter) Write(b []byte) (int, error) {
	if f.n--; f.n < 0 {
		return 0, errFull
	}
	return f.w.Write(b)
}

func TestConfigFaults(t *testing.T) {
	err := Run(t.Context(), Config{
		Every: -1, Timeout: -1, PingEvery: -1,
		Targets: []Target{{Name: "a", URL: "ftp://h/"}, {Name: "b", URL: "https:///x"}, {Name: "c", URL: ":"}},
		Pings:   []netip.Addr{netip.MustParseAddr("2001:db8::1"), {}},
	}, nil)
	for _, want := range []string{"Every -1ns", "Timeout -1ns", "PingEvery -1ns", `target "a"`, `target "b"`, `target "c"`, "ping 2001:db8::1", "ping invalid IP"} {
		require.ErrorContains(t, err, want)
	}
	require.ErrorContains(t, Run(t.Context(), Config{}, nil), "nothing to ask")
}

// The request of RFC 792 with its checksum, as a Linux host answered it.
func TestEcho(t *testing.T) {
	require.Equal(t, []byte{8, 0, 0xab, 0xb6, 0x4c, 0x42, 0, 7}, echo(0x4c42, 7))
}
