package balancer

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/health"
	"github.com/lastbeat/lastbeat/lb"
)

// ask sends a request to the control port.
func (r *rig) ask(t *testing.T, method, path, body string, header ...string) (int, string) {
	request, err := http.NewRequest(method, "http://"+r.Status().Addresses["control"]+path, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			request.Host = header[i+1]
		}
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(answer)
}

func TestControl(t *testing.T) {
	a, b := serve(t, "a"), serve(t, "b")
	config := Config{Backends: []Server{{Name: "one", Address: a.address}, {Name: "two", Address: b.address}}, Check: once,
		Control: "127.0.0.1:0", Grace: time.Hour}
	r := start(t, config)
	r.await(t, "one", true)
	r.await(t, "two", true)
	old := map[string]io.ReadWriter{}
	for range 2 {
		conn := r.connect(t)
		name := make([]byte, 1)
		_, err := io.ReadFull(conn, name)
		require.NoError(t, err)
		old[string(name)] = conn
	}

	code, body := r.ask(t, "POST", "/servers/one/state", "drain")
	require.Equal(t, http.StatusOK, code, body)
	var s BackendStatus
	require.NoError(t, json.Unmarshal([]byte(body), &s))
	require.Equal(t, "drain", s.Admin)
	require.Equal(t, "online", s.State, "the verdict is another matter")
	require.False(t, s.AdminSince.IsZero())
	require.False(t, s.Usable)
	require.Equal(t, 1, r.Live())
	for range 3 {
		require.Equal(t, "b", r.name(t))
	}
	io.WriteString(old["a"], "x")
	_, err := io.ReadFull(old["a"], make([]byte, 1))
	require.NoError(t, err, "drained, not broken off")

	// A reload does not bring it back.
	next := config
	next.Listen, next.Ready, next.Monitor = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	next.OnEvent = func(e Event) { r.events <- e }
	next.Check.Interval = 2 * time.Hour
	restart, err := r.Update(next)
	require.NoError(t, err)
	require.Empty(t, restart)
	require.Equal(t, "b", r.name(t))

	code, _ = r.ask(t, "POST", "/servers/two/state", "maint")
	require.Equal(t, http.StatusOK, code)
	require.Zero(t, r.Live())
	code, _ = r.get(t, "monitor")
	require.Equal(t, http.StatusServiceUnavailable, code)
	r.refused(t)

	code, _ = r.ask(t, "POST", "/servers/one/state", "ready\n")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "a", r.name(t))
	code, _ = r.ask(t, "POST", "/servers/two/state", "ready")
	require.Equal(t, http.StatusOK, code)
	code, _ = r.ask(t, "POST", "/servers/one/weight", "3")
	require.Equal(t, http.StatusOK, code)
	got := map[string]int{}
	for range 8 {
		got[r.name(t)]++
	}
	require.Equal(t, map[string]int{"a": 6, "b": 2}, got)
	r.ask(t, "POST", "/servers/one/weight", "configured")
	code, body = r.ask(t, "GET", "/servers", "")
	require.Equal(t, http.StatusOK, code)
	var all []BackendStatus
	require.NoError(t, json.Unmarshal([]byte(body), &all))
	require.Len(t, all, 2)
	require.Equal(t, 1, all[0].Weight)

	// A server that is listed anew is a new one.
	r.ask(t, "POST", "/servers/one/state", "drain")
	without := next
	without.Backends = next.Backends[1:]
	_, err = r.Update(without)
	require.NoError(t, err)
	_, err = r.Update(next)
	require.NoError(t, err)
	_, body = r.ask(t, "GET", "/servers/one", "")
	require.Contains(t, body, `"admin":"ready"`)

	for name, c := range map[string]struct {
		method, path, body string
		header             []string
		code               int
		want               string
	}{
		"state":     {"POST", "/servers/one/state", "off", nil, 400, `state "off": no such state: give ready, drain or maint`},
		"weight":    {"POST", "/servers/one/weight", "257", nil, 400, "weight 257: out of range: give 0 to 256"},
		"number":    {"POST", "/servers/one/weight", "1.5", nil, 400, `weight "1.5": no number: give 0 to 256, or configured`},
		"too long":  {"POST", "/servers/one/state", strings.Repeat("x", 100), nil, 400, "http: request body too large"},
		"server":    {"POST", "/servers/none/state", "drain", nil, 404, `server "none": no such server: name one that is listed`},
		"look":      {"GET", "/servers/none", "", nil, 404, `server "none": no such server: name one that is listed`},
		"method":    {"DELETE", "/servers/one/state", "", nil, 405, "Method Not Allowed"},
		"web page":  {"POST", "/servers/one/state", "drain", []string{"Sec-Fetch-Site", "cross-site"}, 403, "cross-origin request detected from Sec-Fetch-Site header"},
		"rebinding": {"POST", "/servers/one/state", "drain", []string{"Host", "evil.example:80"}, 403, `host "evil.example": ask by address, or as localhost`},
	} {
		t.Run(name, func(t *testing.T) {
			code, body := r.ask(t, c.method, c.path, c.body, c.header...)
			require.Equal(t, c.code, code)
			require.Equal(t, c.want, strings.TrimSpace(body))
		})
	}
	require.Equal(t, "ready", r.Status().Backends[0].Admin, "refused requests change nothing")
}

func TestControlFaults(t *testing.T) {
	for address, want := range map[string]string{
		":9455":           "balancer: control :9455: open to others, without a password: write 127.0.0.1:port, or set control_anywhere",
		"0.0.0.0:9455":    "balancer: control 0.0.0.0:9455: open to others, without a password: write 127.0.0.1:port, or set control_anywhere",
		"127.0.0.1:9455":  "",
		"[::1]:9455":      "",
		"localhost:9455":  "",
		"192.0.2.1:9455":  "balancer: control 192.0.2.1:9455: open to others, without a password: write 127.0.0.1:port, or set control_anywhere",
		"[2001:db8::1]:1": "balancer: control [2001:db8::1]:1: open to others, without a password: write 127.0.0.1:port, or set control_anywhere",
	} {
		_, err := newLimited(Config{Listen: ":0", Control: address}, 20_000)
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.EqualError(t, err, want)
		_, err = newLimited(Config{Listen: ":0", Control: address, ControlAnywhere: true}, 20_000)
		require.NoError(t, err)
	}
}

// Every pair of what a person wants and what the checks say.
func TestWishAndVerdict(t *testing.T) {
	s := Server{Name: "s", Address: "a:1", Weight: new(5)}
	verdicts := []health.State{health.Unknown, health.Online, health.Offline, health.Error}
	for admin, want := range map[Admin][4]struct {
		state  lb.State
		weight int
	}{
		Ready: {{lb.Down, 5}, {lb.Up, 5}, {lb.Down, 0}, {lb.Down, 5}},
		Drain: {{lb.Drain, 5}, {lb.Drain, 5}, {lb.Down, 0}, {lb.Drain, 5}},
		Maint: {{lb.Down, 0}, {lb.Down, 0}, {lb.Down, 0}, {lb.Down, 0}},
	} {
		for i, verdict := range verdicts {
			w := wish{state: admin}
			got := w.present(s, verdict)
			require.Equal(t, want[i].state, got.State, "%v %v", admin, verdict)
			require.Equal(t, want[i].weight, got.Weight, "%v %v", admin, verdict)
			require.Equal(t, admin == Ready && verdict == health.Online, w.usable(s, verdict))
		}
	}
}

// What a person wants stays while the server goes and comes back.
func TestDrainOutlivesFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, Config{Backends: []Server{{Name: "a", Address: "a:1"}, {Name: "b", Address: "b:1"}}})
		time.Sleep(500 * time.Millisecond)
		require.NoError(t, d.SetState("b", Drain))
		d.down.Store("b", true)
		time.Sleep(2 * time.Second)
		require.Equal(t, map[string]int{"a": 4}, d.picks(t, 4))
		d.down.Delete("b")
		time.Sleep(2 * time.Second)
		require.Equal(t, map[string]int{"a": 4}, d.picks(t, 4))
		require.NoError(t, d.SetState("b", Ready))
		require.Equal(t, map[string]int{"a": 2, "b": 2}, d.picks(t, 4))
	})
}
