package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// openEnv says how many connections TestReloadLosesNothing keeps open; as many again,
// twice and a bit, come and go. With 3000 that makes 10,000 in all, and needs a
// descriptor limit of 20,000.
const openEnv = "LASTBEAT_TCPLB_OPEN"

// held is a connection that stays open, and knows which server answered it.
type held struct {
	net.Conn
	server string
}

// exchange sends a text of its own over each connection and wants it back.
func exchange(t *testing.T, all []held) {
	for i, c := range all {
		want := fmt.Sprintf("%8d", i)
		_, err := io.WriteString(c, want)
		require.NoError(t, err, "connection %d", i)
		got := make([]byte, len(want))
		_, err = io.ReadFull(c, got)
		require.NoError(t, err, "connection %d", i)
		require.Equal(t, want, string(got))
	}
}

// Neither reloads nor a drain lose a connection: those that stay open, those that
// transfer meanwhile, and those that come and go.
func TestReloadLosesNothing(t *testing.T) {
	open := 300
	if text := os.Getenv(openEnv); text != "" {
		var err error
		open, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	servers := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		servers[name] = serve(t, name)
	}
	// Letters are servers, digits their weights.
	config := func(list string) string {
		var text strings.Builder
		text.WriteString("listen: 127.0.0.1:0\ncontrol: 127.0.0.1:0\ngrace: 1h\nslow_start: 1s\ncheck: {kind: tcp, interval: 1h, timeout: 1m}\nbackends:\n")
		for part := range strings.FieldsSeq(list) {
			text.WriteString(fmt.Sprintf("  - {name: %s, address: %q, weight: %s}\n", part[:1], servers[part[:1]], part[1:]))
		}
		return text.String()
	}
	name := file(t, config("a1 b1"))
	p := start(t, "-config", name)
	m := p.line(t, `serving listen=(\S+) .*control=(\S+)`)
	listen, control := m[1], m[2]
	for range 2 {
		p.line(t, `msg=backend backend=[ab] up=true`)
	}

	var all []held
	for range open {
		conn, err := net.Dial("tcp", listen)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		server := make([]byte, 1)
		_, err = io.ReadFull(conn, server)
		require.NoError(t, err)
		all = append(all, held{conn, string(server)})
	}
	exchange(t, all)

	// Visitors come and go until they are enough and the reloads are over.
	var visits, wrong atomic.Int64
	var rush sync.WaitGroup
	over := make(chan struct{})
	visit := func() error {
		conn, err := net.Dial("tcp", listen)
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "bye"); err != nil {
			return err
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			return err
		}
		got, err := io.ReadAll(conn)
		if err == nil && (len(got) != 4 || string(got[1:]) != "bye") {
			err = fmt.Errorf("got %q", got)
		}
		return err
	}
	enough := int64(open*7/3 + 1)
	for range 8 {
		rush.Go(func() {
			for ended := false; !ended || visits.Load() < enough; {
				select {
				case <-over:
					ended = true
				default:
				}
				if err := visit(); err != nil {
					wrong.Add(1)
					t.Errorf("visitor: %v", err)
					return
				}
				visits.Add(1)
			}
		})
	}

	for _, list := range []string{"a3 b1 c1", "b1 c2", "a1 b1 c1", "a1 b1"} {
		require.NoError(t, os.WriteFile(name, []byte(config(list)), 0o600))
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
		p.line(t, `msg=reloaded`)
		exchange(t, all)
	}
	response, err := http.Post("http://"+control+"/servers/a/state", "text/plain", strings.NewReader("drain"))
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	exchange(t, all)
	close(over)
	rush.Wait()
	for range 5 {
		connect(t, listen, "b").Close() // a is drained, c not listed
	}

	per := map[string]int{}
	for _, c := range all {
		per[c.server]++
	}
	require.Len(t, per, 2)
	require.InDelta(t, per["a"], per["b"], 1)
	exchange(t, all)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.line(t, `msg=stopping`)
	exchange(t, all)
	for _, c := range all {
		require.NoError(t, c.Close())
	}
	stopped := p.line(t, `msg=stopped conns="(.*)"`)
	require.NoError(t, p.cmd.Wait())
	t.Logf("%d open, %d came and went: %s", open, visits.Load(), stopped[1])
	require.Zero(t, wrong.Load())
	require.Contains(t, stopped[1], "Unserved:0")
	require.Contains(t, stopped[1], "BrokenOff:0")
}
