package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/examples/internal/load"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var (
	fault = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	api   = virtuals[0]
)

func at(millis int) time.Time { return fault.Add(time.Duration(millis) * time.Millisecond) }

func after(millis int) *ms { return new(ms(time.Duration(millis) * time.Millisecond)) }

// scene is an observation of the API address whose holder is master2, pinged every
// 10 ms and advertising every second until just before the fault.
func scene(kind string) *observation {
	o := &observation{
		Setup:  setup{Peer: "lastbeat", FaultKind: kind, Interval: time.Second, Version: 2, Lifetime: 5 * time.Second},
		Fault:  fault,
		Victim: victim(kind),
		End:    at(8000),
	}
	for t := -2300; t < 0; t += 1000 {
		o.says("master2", t, 68)
	}
	o.replies("master2", -1000, -10)
	return o
}

func (o *observation) says(node string, millis, priority int) {
	o.Adverts = append(o.Adverts, advert{At: at(millis), Node: node, VRID: api.VRID, Priority: priority})
}

func (o *observation) replies(node string, from, to int) {
	for t := from; t <= to; t += 10 {
		o.Replies = append(o.Replies, reply{At: at(t), Node: node, VIP: api.Addr})
	}
}

func (o *observation) announces(node string, millis ...int) {
	for _, t := range millis {
		o.Garps = append(o.Garps, announced{At: at(t), Node: node, VIP: api.Addr})
	}
}

// taken is the whole of an ordinary takeover by master1, 3.7 s after the last
// advert, which came 300 ms before the fault.
func taken(kind string) *observation {
	o := scene(kind)
	for t := 3400; t < 8000; t += 1000 {
		o.says("master1", t, 68)
	}
	o.announces("master1", 3401, 3601)
	o.replies("master1", 3410, 8000)
	return o
}

func TestAnalyzeTakeover(t *testing.T) {
	r := taken("silent").analyze(api)
	require.Equal(t, result{
		VIP: api.Addr, OldHolder: "master2", NewHolder: "master1", Claimant: "master1", Moved: true,
		LastAdvert: after(-300), FirstAdvert: after(3400), FirstGARP: after(3401), FirstReply: after(3410),
		Takeover: after(3700), Limit: new(ms(3*time.Second + (256-68)*time.Second/256)),
		Gap: *after(3420), GapFrom: *after(-10), DarkGap: *after(10),
	}, r)
}

// A faster interval is version 3, whose skew shrinks with it.
func TestAnalyzeLimitOfVersion3(t *testing.T) {
	o := taken("silent")
	o.Setup.Version, o.Setup.Interval = 3, 100*time.Millisecond
	require.Equal(t, new(ms(300*time.Millisecond+(256-68)*100*time.Millisecond/256)), o.analyze(api).Limit)
}

// The other address has the same nodes, and is another matter.
func TestAnalyzeKeepsAddressesApart(t *testing.T) {
	r := taken("silent").analyze(virtuals[1])
	require.Equal(t, result{VIP: virtuals[1].Addr, Gap: *after(9000), GapFrom: *after(-1000), GapOpen: true}, r)
}

func TestAnalyzeGoodbye(t *testing.T) {
	o := scene("term")
	o.says("master2", 2, 0)
	o.says("master1", 740, 68)
	o.announces("master1", 741)
	o.replies("master1", 750, 8000)
	r := o.analyze(api)
	require.Equal(t, after(2), r.Goodbye)
	require.Equal(t, after(738), r.Takeover, "from the goodbye, not from the last advert")
	require.Equal(t, new(ms((256-68)*time.Second/256)), r.Limit)

	// Not of a router that says goodbye when it has lost the address already.
	o = taken("freeze")
	o.says("master2", 7900, 0)
	r = o.analyze(api)
	require.Nil(t, r.Goodbye)
	require.Equal(t, after(3700), r.Takeover)
}

func TestAnalyzeNoMove(t *testing.T) {
	o := scene("backend")
	for t := 700; t < 8000; t += 1000 {
		o.says("master2", t, 68)
	}
	o.announces("master2", 100)
	o.replies("master2", 0, 8000)
	o.Answers = []announced{{At: at(500), Node: "master2", VIP: api.Addr}}
	r := o.analyze(api)
	require.Equal(t, result{VIP: api.Addr, OldHolder: "master2", LastAdvert: after(7700), Gap: *after(10), GapFrom: *after(-1000)}, r)
}

// Two claim the address, and the one of the higher priority keeps it.
func TestAnalyzeDuel(t *testing.T) {
	o := scene("silent")
	o.says("master0", 3400, 48)
	o.says("master1", 3403, 68)
	o.says("master1", 4403, 68)
	o.announces("master0", 3401)
	o.announces("master1", 3404)
	o.replies("master0", 3410, 3410)
	o.replies("master1", 4000, 8000)
	r := o.analyze(api)
	require.True(t, r.Moved)
	require.Equal(t, "master0", r.Claimant)
	require.Equal(t, "master1", r.NewHolder)
	require.Equal(t, after(3400), r.FirstAdvert)
	require.Equal(t, new(ms(3*time.Second+(256-48)*time.Second/256)), r.Limit, "that of the claimant")
	require.Equal(t, after(3404), r.FirstGARP)
	require.Equal(t, after(4000), r.FirstReply)
	require.Equal(t, after(590), &r.DarkGap, "the loser's reply counts: the client was served, and lost it again")
}

func TestAnalyzeThereAndBack(t *testing.T) {
	o := taken("silent")
	o.says("master2", 7900, 255)
	r := o.analyze(api)
	require.False(t, r.Moved)
	require.Equal(t, "master1", r.Claimant)
	require.Empty(t, r.NewHolder)
	var out bytes.Buffer
	require.NoError(t, judge(o).writeResults(&out))
	require.Contains(t, out.String(), "master2 to master1 and back")
}

func TestAnalyzeGaps(t *testing.T) {
	for _, tt := range []struct {
		name            string
		old, new        [][2]int // replies from, to
		gap, from, dark int
		open            bool
	}{
		{"one", [][2]int{{-1000, -10}}, [][2]int{{3410, 8000}}, 3420, -10, 10, false},
		{"a dark one", [][2]int{{-1000, -10}}, [][2]int{{3410, 3500}, {4500, 8000}}, 3420, -10, 1000, false},
		{"a dark one is the longest", [][2]int{{-1000, -10}}, [][2]int{{90, 100}, {4500, 8000}}, 4400, 100, 4400, false},
		// Both kernels answer: what lay before the successor's first reply is not dark.
		{"old kernel goes on", [][2]int{{-1000, 0}, {2000, 3400}}, [][2]int{{3410, 8000}}, 2000, 0, 10, false},
		{"at the end", [][2]int{{-1000, -10}}, [][2]int{{3410, 4000}}, 4000, 4000, 4000, true},
		{"never again", [][2]int{{-1000, -10}}, nil, 8010, -10, 0, true},
		{"no ping at all", nil, nil, 9000, -1000, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := taken("silent")
			o.Replies = nil
			for _, r := range tt.old {
				o.replies("master2", r[0], r[1])
			}
			for _, r := range tt.new {
				o.replies("master1", r[0], r[1])
			}
			r := o.analyze(api)
			require.Equal(t, after(tt.gap), &r.Gap)
			require.Equal(t, after(tt.from), &r.GapFrom)
			require.Equal(t, after(tt.dark), &r.DarkGap)
			require.Equal(t, tt.open, r.GapOpen)
		})
	}
}

func TestAnalyzeRequests(t *testing.T) {
	o := taken("silent")
	ask := func(target string, start, end int, failure string) {
		o.Requests = append(o.Requests, load.Record{Target: target, Scheduled: at(start), Start: at(start), End: at(end), Error: failure})
	}
	ask("API", -1500, -1490, "refused") // long before
	ask("API", -500, -490, "")
	ask("API", -20, 30, "") // under way, and answered
	ask("API", -10, 2990, "timeout")
	ask("API", 0, 3000, "timeout") // begun with the fault, not before it
	ask("API", 50, 3050, "timeout")
	ask("API", 4000, 4010, "")
	ask("ingress", -10, 2990, "timeout")
	r := o.analyze(api)
	require.Equal(t, []int{6, 3, 2, 1}, []int{r.Requests, r.Failed, r.Cut, r.FailedFlight})
	c := r.client(api)
	require.Equal(t, []int{4, 2, 2}, []int{c.Requests, c.Failed, c.Cut}, "those under way are told apart")
}

// Only the verdict of the balancer that serves the clients matters, and only on
// the node that the fault hit.
func TestAnalyzeRemoved(t *testing.T) {
	removed := func(o *observation, node, backend string, millis int) {
		o.Removed = append(o.Removed, removal{At: at(millis), Node: node, Backend: backend})
	}
	o := taken("silent")
	removed(o, "master1", "master2", -100) // before the fault
	removed(o, "master1", "master0", 1000) // another backend
	removed(o, "master0", "master2", 2000) // a balancer that nobody asks
	require.Nil(t, o.analyze(api).Removed)
	removed(o, "master1", "master2", 3000)
	removed(o, "master1", "master2", 4000)
	require.Equal(t, after(3000), o.analyze(api).Removed)

	o = scene("backend") // moves nothing: the old holder's balancer
	removed(o, "master1", "master0", 1000)
	require.Nil(t, o.analyze(api).Removed)
	removed(o, "master2", "master0", 2000)
	require.Equal(t, after(2000), o.analyze(api).Removed)
	events := judge(o).run().Events
	require.Equal(t, "API: the balancer of master2 takes the dead backend master0 out", events[len(events)-1].Text)
	require.Equal(t, "master2", events[len(events)-1].Lane)
}

// The opening round of announcements is not the refresh.
func TestAnalyzeRefresh(t *testing.T) {
	o := taken("silent")
	o.announces("master1", 8401)
	require.Nil(t, o.analyze(api).Refreshed)
	o.announces("master0", 60000)
	o.announces("master1", 63400, 63600)
	r := o.analyze(api)
	require.Equal(t, after(63400), r.Refreshed)
	require.Equal(t, after(3401), r.FirstGARP)
}

func TestAnalyzeLastAnswer(t *testing.T) {
	o := taken("kill")
	for _, a := range []struct {
		node   string
		millis int
	}{{"master2", -50}, {"master2", 50}, {"master2", 4650}, {"master1", 4700}} {
		o.Answers = append(o.Answers, announced{At: at(a.millis), Node: a.node, VIP: api.Addr})
	}
	o.Answers = append(o.Answers, announced{At: at(4900), Node: "master2", VIP: virtuals[1].Addr})
	require.Equal(t, after(4650), o.analyze(api).LastAnswer)
}

func TestJSON(t *testing.T) {
	o := taken("kill")
	o.Lost = 2
	o.Answers = []announced{{At: at(4650), Node: "master2", VIP: api.Addr}}
	o.Requests = []load.Record{{Target: "API", Scheduled: at(-10), Start: at(-10), End: at(40), Error: "reset"}}
	var out bytes.Buffer
	require.NoError(t, writeJSON(&out, o.Setup, []outcome{judge(o), judge(taken("kill"))}))
	const golden = "testdata/kill.json"
	if *update {
		require.NoError(t, os.WriteFile(golden, out.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), out.String())
}

// Whatever was seen can be drawn.
func TestRunIsDrawn(t *testing.T) {
	duel := taken("silent")
	duel.says("master0", 3399, 48)
	back := taken("silent")
	back.says("master2", 7900, 68)
	kill := taken("kill")
	kill.Answers = []announced{{At: at(4650), Node: "master2", VIP: api.Addr}}
	for name, o := range map[string]*observation{
		"takeover": taken("silent"), "duel": duel, "back": back, "kill": kill, "backend": scene("backend"),
		"nothing seen": {Setup: setup{FaultKind: "silent"}, Fault: fault, Victim: "master2", End: at(8000)},
	} {
		t.Run(name, func(t *testing.T) {
			run := judge(o).run()
			require.NoError(t, run.Validate())
			var svg bytes.Buffer
			require.NoError(t, run.WriteSVG(&svg))
			requireXML(t, &svg)
		})
	}
}

func requireXML(t *testing.T, r io.Reader) {
	t.Helper()
	elements := 0
	for d := xml.NewDecoder(r); ; elements++ {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	require.Greater(t, elements, 20)
}

func TestSummary(t *testing.T) {
	var out bytes.Buffer
	slow := taken("silent")
	slow.Replies = nil
	slow.replies("master2", -1000, -10)
	slow.replies("master1", 4410, 8000)
	require.NoError(t, writeSummary(&out, []outcome{judge(taken("silent")), judge(slow), judge(slow)}, "simulated: "))
	require.Regexp(t, `(?m)^simulated: API gap +3 +3.42s +4.42s +4.42s$`, out.String())
}
