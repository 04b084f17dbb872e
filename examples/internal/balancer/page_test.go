package balancer

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/examples/internal/tcpproxy"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// example is a status with one server of each kind.
func example() Status {
	return Status{
		Addresses: map[string]string{"listen": "[::]:9445"}, Ready: true, Live: 2, Mode: "normal", Algorithm: "leastconn",
		MaxConn: 3200, Queue: 1024, Rebuilds: 17,
		Conns: tcpproxy.Stats{Open: 243, Queued: 2, Accepted: 90_125, Served: 90_119, Retried: 31, Waited: 12, Unserved: 4, BrokenOff: 77},
		Backends: []BackendStatus{
			{Backend: "master-0", Address: "192.168.37.21:6443", Weight: 1, State: "online", Admin: "ready", Usable: true, Reason: "passing",
				Since: noon.Add(-100 * time.Hour), ValidUntil: noon.Add(17 * time.Second), Open: 120, Ended: 45_000, In: 1_500_000, Out: 98_765_432_100},
			{Backend: "master-1", Address: "192.168.37.22:6443", Weight: 3, MaxConn: 200, State: "online", Admin: "drain", Reason: "failing: read tcp 192.168.37.20:51412->192.168.37.22:6443: i/o timeout",
				AdminSince: noon.Add(-95 * time.Second), Since: noon.Add(-2 * time.Hour), ValidUntil: noon.Add(4 * time.Second), Open: 121, Ended: 45_001, Failed: 3, In: 999, Out: 1000},
			{Backend: "192.168.37.23:6443", Address: "192.168.37.23:6443", Weight: 1, State: "offline", Admin: "ready", Reason: "failed: dial tcp 192.168.37.23:6443: connect: connection refused",
				Since: noon.Add(-3 * time.Minute), ValidUntil: noon.Add(15 * time.Second), Ended: 31, Failed: 31},
			{Backend: "new", Address: "192.168.37.24:6443", Weight: 1, State: "unknown", Admin: "ready", Reason: "never probed"},
			{Backend: "spare", Address: "192.168.38.1:6443", Weight: 1, Tier: 1, State: "online", Admin: "ready", Usable: true, Reason: "passing",
				Since: noon.Add(-40 * time.Second), ValidUntil: noon.Add(18 * time.Second)},
		},
	}
}

func TestPage(t *testing.T) {
	text, err := renderPage(example(), noon)
	require.NoError(t, err)
	for _, want := range []string{
		"2 of 5 servers are available", "leastconn on [::]:9445", "243 / 3,200", "2 / 1,024", "90,125",
		"4 d 4 h", "in 17 s", "<small>12:00:17</small>", "98.8 GB", "1.50 MB", "999 B", "1.00 kB",
		`<b class="odd">drain</b> for 1 min 35 s`, "121 / 200", `<tr class="bad">`, "<b>offline</b>", "connection refused",
		"<b>unknown</b>", "backup, tier 1",
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "warn bad\">")
	require.NotContains(t, text, "://", "nothing is loaded from elsewhere")
}

// What a server says when it fails is not ours to trust.
func TestPageEscapes(t *testing.T) {
	s := example()
	s.Backends[0].Reason = `failed: <script>alert("x")</script>`
	text, err := renderPage(s, noon)
	require.NoError(t, err)
	require.NotContains(t, text, "<script>")
	require.Contains(t, text, "&lt;script&gt;")
}

func TestPageWarns(t *testing.T) {
	for mode, want := range map[string]string{
		"empty":  "No server may be used: new connections are reset.",
		"backup": "No server in regular use is alive: backups are used.",
		"panic":  "No server is known to be alive: those of which nothing is known are used.",
	} {
		s := example()
		s.Mode = mode
		text, err := renderPage(s, noon)
		require.NoError(t, err)
		require.Contains(t, text, want)
	}
	text, err := renderPage(Status{Mode: "empty"}, noon)
	require.NoError(t, err)
	require.Contains(t, text, "This process takes no new connections")
	require.Contains(t, text, "No server is configured.")
	require.NotContains(t, text, "No server may be used")
}

func TestSpanAndSize(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 499 * time.Millisecond: "0 s", 59 * time.Second: "59 s", time.Minute: "1 min 0 s",
		59*time.Minute + 59*time.Second: "59 min 59 s", time.Hour: "1 h 0 min", 24 * time.Hour: "1 d 0 h", 400 * 24 * time.Hour: "400 d 0 h",
	} {
		require.Equal(t, want, span(d))
	}
	for n, want := range map[uint64]string{
		0: "0 B", 999: "999 B", 1000: "1.00 kB", 9_994: "9.99 kB", 9_996: "10.0 kB", 99_960: "100 kB",
		999_499: "999 kB", 999_600: "1.00 MB", 1 << 62: "4612 PB",
	} {
		require.Equal(t, want, size(n))
	}
}

func TestMetrics(t *testing.T) {
	c := collector(example)
	problems, err := testutil.CollectAndLint(c)
	require.NoError(t, err)
	require.Empty(t, problems)
	require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(`
# HELP tcplb_server_admin 1 for the state that a person wants.
# TYPE tcplb_server_admin gauge
tcplb_server_admin{server="192.168.37.23:6443",state="drain"} 0
tcplb_server_admin{server="192.168.37.23:6443",state="maint"} 0
tcplb_server_admin{server="192.168.37.23:6443",state="ready"} 1
tcplb_server_admin{server="master-0",state="drain"} 0
tcplb_server_admin{server="master-0",state="maint"} 0
tcplb_server_admin{server="master-0",state="ready"} 1
tcplb_server_admin{server="master-1",state="drain"} 1
tcplb_server_admin{server="master-1",state="maint"} 0
tcplb_server_admin{server="master-1",state="ready"} 0
tcplb_server_admin{server="new",state="drain"} 0
tcplb_server_admin{server="new",state="maint"} 0
tcplb_server_admin{server="new",state="ready"} 1
tcplb_server_admin{server="spare",state="drain"} 0
tcplb_server_admin{server="spare",state="maint"} 0
tcplb_server_admin{server="spare",state="ready"} 1
# HELP tcplb_server_up 1 while the server is known to be alive; 0 also if nothing is known.
# TYPE tcplb_server_up gauge
tcplb_server_up{server="192.168.37.23:6443"} 0
tcplb_server_up{server="master-0"} 1
tcplb_server_up{server="master-1"} 1
tcplb_server_up{server="new"} 0
tcplb_server_up{server="spare"} 1
# HELP tcplb_server_bytes_out_total Bytes to clients.
# TYPE tcplb_server_bytes_out_total counter
tcplb_server_bytes_out_total{server="192.168.37.23:6443"} 0
tcplb_server_bytes_out_total{server="master-0"} 9.87654321e+10
tcplb_server_bytes_out_total{server="master-1"} 1000
tcplb_server_bytes_out_total{server="new"} 0
tcplb_server_bytes_out_total{server="spare"} 0
# HELP tcplb_queued_connections Connections that wait for a server with room.
# TYPE tcplb_queued_connections gauge
tcplb_queued_connections 2
# HELP tcplb_served_connections_total Connections that got a server.
# TYPE tcplb_served_connections_total counter
tcplb_served_connections_total 90119
`), "tcplb_server_admin", "tcplb_server_up", "tcplb_server_bytes_out_total", "tcplb_queued_connections", "tcplb_served_connections_total"))
}

// The port of those who look, and that nothing can be changed by it.
func TestStatsPort(t *testing.T) {
	a := serve(t, "a")
	r := start(t, Config{Backends: []Server{{Name: "one", Address: a.address}}, Check: once, Stats: "127.0.0.1:0", Grace: time.Hour})
	r.await(t, "one", true)
	require.Equal(t, "a", r.name(t))
	require.Eventually(t, func() bool { return r.Status().Conns.Open == 0 }, patience, time.Millisecond)

	get := func(path string) (*http.Response, string) {
		return fetch(t, "http://"+r.Status().Addresses["stats"]+path)
	}
	response, body := get("/")
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Contains(t, body, "1 of 1 servers are available")
	require.Contains(t, response.Header.Get("Content-Security-Policy"), "default-src 'none'")
	_, body = get("/metrics")
	require.Contains(t, body, `tcplb_server_usable{server="one"} 1`)
	require.Contains(t, body, `tcplb_server_bytes_out_total{server="one"} 1`)
	_, body = get("/status")
	var s Status
	require.NoError(t, json.Unmarshal([]byte(body), &s))
	require.EqualValues(t, 1, s.Backends[0].Out)
	require.Equal(t, "normal", s.Mode)
	response, _ = get("/other")
	require.Equal(t, http.StatusNotFound, response.StatusCode)
	posted, err := http.Post("http://"+r.Status().Addresses["stats"]+"/servers/one/state", "text/plain", strings.NewReader("drain"))
	require.NoError(t, err)
	posted.Body.Close()
	require.NotEqual(t, http.StatusOK, posted.StatusCode)
	require.Equal(t, "ready", r.Status().Backends[0].Admin)
}
