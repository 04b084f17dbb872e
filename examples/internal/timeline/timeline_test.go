package timeline

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite testdata")

const (
	api     = "API VIP"
	ingress = "ingress VIP"
)

func at(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// silent is a run of invented numbers, like those of a node that becomes
// unreachable: its kernel keeps the addresses until their lifetime ends.
func silent() Run {
	const end = 16_000
	run := Run{
		Title: "master2 becomes unreachable, with its API server and router",
		Setup: "VRRP version 2 unicast, adverts every 1 s; five nodes and a client in namespaces of this machine",
		Lanes: []string{"master0", "master1", "master2", "client of API", "client of ingress"},
		Events: []Event{
			{At: 0, Kind: Fault, Lane: "master2", Text: "master2 becomes unreachable"},
			{At: at(-181), Kind: Protocol, Lane: "master2", Text: "master2 sends its last advert for the API VIP"},
			{At: at(-167), Kind: Protocol, Lane: "master2", Text: "master2 sends its last advert for the ingress VIP"},
			{At: at(3553), Kind: Protocol, Lane: "master1", Text: "master1 sends its first advert for the API VIP"},
			{At: at(3555), Kind: Announce, Lane: "master1", Text: "master1 announces the API VIP by gratuitous ARP"},
			{At: at(3568), Kind: Seen, Lane: "client of API", Text: "the client gets the first reply from the API VIP on master1"},
			{At: at(3521), Kind: Protocol, Lane: "master0", Text: "master0 sends its first advert for the ingress VIP"},
			{At: at(3522), Kind: Announce, Lane: "master0", Text: "master0 announces the ingress VIP by gratuitous ARP"},
			{At: at(3534), Kind: Seen, Lane: "client of ingress", Text: "the client gets the first reply from the ingress VIP on master0"},
			{At: at(14_210), Kind: Backend, Text: "the balancers of master0 and master1 remove the API server of master2"},
			{At: at(63_560), Kind: Announce, Lane: "master1", Text: "master1 announces the API VIP again, the refresh after 60 s"},
		},
		Clients: []Client{
			{VIP: api, GapFrom: at(-5), GapTo: at(3568), Requests: 400, Failed: 71, Cut: 1},
			{VIP: ingress, GapFrom: at(-3), GapTo: at(3534), Requests: 400, Failed: 70},
		},
	}
	for _, v := range []struct {
		vip, client, next string
		gap               Client
		lifetime          float64
	}{{api, "client of API", "master1", run.Clients[0], 4600}, {ingress, "client of ingress", "master0", run.Clients[1], 4400}} {
		run.Spans = append(run.Spans,
			Span{Lane: "master2", Label: v.vip, From: at(-3000), To: 0, Kind: Holds},
			Span{Lane: "master2", Label: v.vip, From: 0, To: at(v.lifetime), Kind: Lingers},
			Span{Lane: v.next, Label: v.vip, From: v.gap.GapTo - at(15), To: at(end), Kind: Holds},
			Span{Lane: v.client, Label: v.vip, From: at(-3000), To: v.gap.GapFrom, Kind: Replies},
			Span{Lane: v.client, Label: v.vip, From: v.gap.GapFrom, To: v.gap.GapTo, Kind: Gap},
			Span{Lane: v.client, Label: v.vip, From: v.gap.GapTo, To: at(end), Kind: Replies})
	}
	run.Spans = append(run.Spans, Span{Lane: "master2", Label: "unreachable", From: 0, To: at(end), Kind: Down})
	return run
}

// fast is a simulated run on another scale, with text that must be escaped.
func fast() Run {
	return Run{
		Title: `master2's daemon is told to stop <SIGTERM> & "goes"`, Setup: "VRRP version 3, adverts every 100 ms",
		Simulated: true, Seed: 7,
		Spans: []Span{
			{Lane: "master1", Label: api, From: at(84), To: at(1000), Kind: Holds},
			{Lane: "master2", Label: api, From: at(-1000), To: at(3), Kind: Holds},
			{Lane: "client", Label: api, From: at(-1000), To: at(-4), Kind: Replies},
			{Lane: "client", Label: api, From: at(-4), To: at(97), Kind: Gap},
			{Lane: "client", Label: api, From: at(97), To: at(1000), Kind: Replies},
		},
		Events: []Event{
			{At: 0, Kind: Fault, Lane: "master2", Text: "SIGTERM to master2's daemon"},
			{At: at(1), Kind: Protocol, Lane: "master2", Text: "master2 says goodbye (priority 0)"},
			{At: at(84), Kind: Protocol, Lane: "master1", Text: "master1 sends its first advert"},
			{At: at(97), Kind: Seen, Lane: "client", Text: "the client gets the first reply"},
		},
		Clients: []Client{{VIP: api, GapFrom: at(-4), GapTo: at(97), Requests: 20, Failed: 1, Dark: []time.Duration{at(612), at(501)}}},
	}
}

// none is a run in which nothing happened.
func none() Run {
	return Run{Title: "nothing is broken", Setup: "for comparison", Clients: []Client{{VIP: api, Requests: 3}},
		Spans: []Span{{Lane: "master2", Label: api, From: at(-900), To: at(900), Kind: Holds}}}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(file, got, 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "run go test -update and look at the difference")
}

func TestGolden(t *testing.T) {
	runs := map[string]Run{"silent": silent(), "fast": fast(), "none": none()}
	for name, run := range runs {
		t.Run(name, func(t *testing.T) {
			var text, svg bytes.Buffer
			require.NoError(t, run.WriteEvents(&text))
			golden(t, name+".txt", text.Bytes())
			require.NoError(t, run.WriteSVG(&svg))
			golden(t, name+".svg", svg.Bytes())
		})
	}
}

func TestGapWithoutEnd(t *testing.T) {
	c := Client{VIP: api, GapFrom: at(-5), GapTo: at(9000), Open: true}
	require.Equal(t, "no reply from T- 0.005 s on", c.result())
}

// Every line that is printed of a simulated run says so.
func TestSimulatedIsSaidOnEveryLine(t *testing.T) {
	run := fast()
	var b bytes.Buffer
	require.NoError(t, run.WriteEvents(&b))
	n := 0
	for line := range strings.Lines(b.String()) {
		require.True(t, strings.HasPrefix(line, "simulated "), line)
		n++
	}
	require.Equal(t, 4, n)
	b.Reset()
	require.NoError(t, silent().WriteEvents(&b))
	require.NotContains(t, b.String(), "simulated")
}

func TestValidate(t *testing.T) {
	cases := map[string]struct {
		run  Run
		want string
	}{
		"span backwards":  {Run{Spans: []Span{{Lane: "a", Label: api, From: 2, To: 1, Kind: Holds}}}, `timeline: holds of "API VIP" on a ends at 1ns, before it begins at 2ns`},
		"span kind":       {Run{Spans: []Span{{Lane: "a", Label: api, Kind: "hold"}}}, `timeline: span of "API VIP" on a has the unknown kind "hold"`},
		"span lane":       {Run{Spans: []Span{{Label: api, Kind: Holds}}}, `timeline: holds of "API VIP" has no lane`},
		"event kind":      {Run{Events: []Event{{Text: "x"}}}, `timeline: event "x" has the unknown kind ""`},
		"gap backwards":   {Run{Clients: []Client{{VIP: api, GapFrom: 2, GapTo: 1}}}, `timeline: the gap of API VIP ends at 1ns, before it begins at 2ns`},
		"too many failed": {Run{Clients: []Client{{VIP: api, Requests: 1, Failed: 2}}}, `timeline: API VIP: 2 of 1 requests failed`},
		"view backwards":  {Run{ViewFrom: 2, ViewTo: 1}, `timeline: the view ends at 1ns, before it begins at 2ns`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			require.EqualError(t, c.run.Validate(), c.want)
			require.Error(t, c.run.WriteSVG(io.Discard))
		})
	}
	require.NoError(t, silent().Validate())
}

// The picture is well-formed XML that fetches nothing, and its numbers do not
// cover each other.
func TestSVG(t *testing.T) {
	for name, run := range map[string]Run{"silent": silent(), "fast": fast(), "none": none(), "empty": {}} {
		t.Run(name, func(t *testing.T) {
			var b, again bytes.Buffer
			require.NoError(t, run.WriteSVG(&b))
			require.NoError(t, run.WriteSVG(&again))
			require.Equal(t, b.String(), again.String(), "equal input gives equal output")
			for _, word := range []string{"<script", "href", "@import", "NaN", "Inf"} {
				require.NotContains(t, b.String(), word)
			}
			elements := map[string]int{}
			for d := xml.NewDecoder(&b); ; {
				token, err := d.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err)
				if start, ok := token.(xml.StartElement); ok {
					elements[start.Name.Local]++
				}
			}
			require.Equal(t, 1, elements["title"])
			require.Equal(t, 1, elements["desc"])
		})
	}
}

func TestNumbersStandApart(t *testing.T) {
	run := Run{}
	for i := range 40 {
		run.Events = append(run.Events, Event{At: at(3000 + float64(i%7)), Kind: Note, Text: "x"})
	}
	run.Events = append(run.Events, Event{At: at(-900), Kind: Note}, Event{At: at(9000), Kind: Note}, Event{At: at(9001), Kind: Note})
	d := &drawing{run: run}
	d.view()
	d.arrange()
	require.Len(t, d.marks, 43)
	for i, m := range d.marks {
		require.GreaterOrEqual(t, m.at, float64(plotLeft))
		require.LessOrEqual(t, m.at, float64(plotRight))
		if i > 0 {
			require.GreaterOrEqual(t, m.at-d.marks[i-1].at, 2.0*markSize, "number %d", m.n)
		}
	}
}
