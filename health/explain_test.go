package health

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMachineExplain(t *testing.T) {
	start := time.Unix(1e9, 0)
	for _, tc := range []struct {
		name    string
		config  Config
		results string // one every 5 s from 0 s on: g good, b bad, e local error
		at      time.Duration
		want    string
	}{
		{"never probed", Config{}, "", 7 * time.Second, `
			unknown from the start
			because: never probed`},
		{"online", Config{}, "ggg", 11 * time.Second, `
			online for 11s, and for 17.5s more unless a probe renews it
			because: passing: g
			3 good probes in a row
			the last probe ended 1s ago`},
		{"failing", Config{}, "ggbb", 16 * time.Second, `
			online for 16s, and for 17.5s more unless a probe renews it
			because: failing: b
			2 bad probes in a row, of 3 that take it offline
			the last probe ended 1s ago`},
		{"failed", Config{Fall: 2}, "gbbb", 15 * time.Second, `
			offline for 5s, and for 13s more unless a probe renews it
			because: failed: b
			3 bad probes in a row
			the last probe ended 0s ago`},
		{"recovering", Config{Fall: 1, Rise: 2}, "bg", 6 * time.Second, `
			offline for 6s, and for 6.5s more unless a probe renews it
			because: recovering: g
			1 good probe, of 2 that bring it online
			the last probe ended 1s ago`},
		{"undecided", Config{Rise: 3}, "gg", 5 * time.Second, `
			unknown from the start
			because: undecided: g
			2 good probes in a row, of 3 that bring it online
			the last probe ended 0s ago`},
		{"undecided and bad", Config{}, "b", 0, `
			unknown from the start
			because: undecided: b
			1 bad probe, of 3 that take it offline
			the last probe ended 0s ago`},
		{"expired", Config{}, "gg", 30 * time.Second, `
			unknown for 6.5s
			because: expired: g
			it was online until its lease of 18.5s ended: no probe has found out anything since then
			the last probe ended 25s ago`},
		{"undecided, then silence", Config{}, "bb", 30 * time.Second, `
			unknown from the start
			because: expired: b
			the probes before do not count any more: their lease of 18.5s ended 6.5s ago
			the last probe ended 25s ago`},
		{"local errors under a verdict", Config{}, "gee", 12 * time.Second, `
			online for 12s, and for 6.5s more unless a probe renews it
			because: passing: g
			1 good probe
			probes could not be made for 7s, which renews nothing: e
			the last probe ended 2s ago`},
		{"local errors only", Config{}, "ee", 6 * time.Second, `
			error for 6s, and for 17.5s more unless a probe renews it
			because: local failure: e
			the last probe ended 1s ago`},
		{"local errors outlive a verdict", Config{}, "geeee", 21 * time.Second, `
			error for 2.5s, and for 17.5s more unless a probe renews it
			because: local failure: e
			it was online until its lease of 18.5s ended: no probe has found out anything since then
			the last probe ended 1s ago`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := NewMachine(tc.config)
			require.NoError(t, err)
			for i, r := range tc.results {
				outcome := map[rune]Outcome{'g': Good, 'b': Bad, 'e': LocalError}[r]
				m.Observe(start.Add(time.Duration(i)*5*time.Second), Result{outcome, string(r)})
			}
			require.Equal(t, lines(tc.want), m.Explain(start.Add(tc.at)))
		})
	}
}

func TestMachineExplainAccumulating(t *testing.T) {
	m, err := NewMachine(Config{Rise: 4, Fall: 4, Counting: Accumulating})
	require.NoError(t, err)
	start := time.Unix(1e9, 0)
	for _, o := range []Outcome{Good, Bad, Good} {
		m.Observe(start, Result{Outcome: o})
	}
	require.Equal(t, lines(`
		unknown from the start
		because: undecided
		2 good probes, of 4 that bring it online
		1 bad probe, of 4 that take it offline
		the last probe ended 0s ago`), m.Explain(start))
}

func TestMachineExplainSuspended(t *testing.T) {
	m, err := NewMachine(Config{})
	require.NoError(t, err)
	start := time.Unix(1e9, 0)
	m.Observe(start, Result{Outcome: Good})
	m.Suspended(start.Add(time.Second), time.Hour)
	require.Equal(t, lines(`
		unknown for 1s
		because: suspended
		it was online until its lease of 18.5s ended: no probe has found out anything since then
		this machine was suspended: for 4s more a bad probe counts as one that could not be made
		the last probe ended 2s ago`), m.Explain(start.Add(2*time.Second)))
}

// lines splits an indented text.
func lines(text string) []string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

func TestHistory(t *testing.T) {
	var h history
	require.Empty(t, h.String())
	h = h.add(Good).add(LocalError).add(Bad)
	require.Equal(t, "bad, local error, good", h.String())
	for range 20 {
		h = h.add(Good)
	}
	require.Equal(t, strings.Repeat("good, ", 15)+"good", h.String(), "the last 16")
}

func TestMonitorExplain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		m, err := NewMonitor(MonitorConfig{}, Target{"a", f, Config{}})
		require.NoError(t, err)
		require.Nil(t, m.Explain("b"))
		require.Equal(t, lines(`
			unknown from the start
			because: never probed
			nobody probes: the monitor has not been run yet`), m.Explain("a"))

		l := watch(t, MonitorConfig{NoSpread: true, Workers: 1}, Target{"a", f, Config{}})
		synctest.Wait()
		f.set(func(f *fake) { f.err = errRefused })
		sleep(6 * time.Second)
		f.set(func(f *fake) { f.err = fmt.Errorf("%w: no descriptors", ErrLocal) })
		sleep(5 * time.Second)
		require.Equal(t, lines(`
			online for 11s, and for 12.5s more unless a probe renews it
			because: failing: connection refused
			1 bad probe, of 3 that take it offline
			probes could not be made for 1s, which renews nothing: could not probe: no descriptors
			the last probe ended 1s ago
			outcomes of probes, the newest first: local error, bad, good
			the next probe begins in 4s`), l.Explain("a"))

		// From 15 s on a probe holds the only worker, longer than it may.
		stuck := make(chan struct{})
		f.set(func(f *fake) { f.stuck = stuck })
		require.NoError(t, l.Add(Target{"b", &fake{}, Config{Interval: 700 * time.Millisecond}}))
		sleep(500 * time.Millisecond)
		require.Equal(t, "the next probe begins in 200ms", l.Explain("b")[5])
		sleep(5500 * time.Millisecond)
		require.Equal(t, "a probe is under way, with a timeout of 1s", l.Explain("a")[6])
		b := l.Explain("b")
		require.Equal(t, "a probe waits for a worker for 1.8s: all 1 are busy, and 1 probes wait", b[5])
		close(stuck)
		f.set(func(f *fake) { f.stuck = nil })
		synctest.Wait()
		b = l.Explain("b")
		require.Equal(t, []string{
			"the last one began 1.8s late",
			"the next probe begins in 700ms",
			"of all targets here 1 probes were late, by up to 1.8s, 2 were dropped, 1 ended too late to count",
		}, b[5:])
		l.stop()
		e := l.Explain("a")
		require.Equal(t, "nobody probes: the monitor has ended", e[len(e)-2])
	})
}

// A process that does not run its scheduler says so.
func TestExplainStandstill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newByHand(t, MonitorConfig{NoSpread: true}, many(1, Config{})...)
		h.run(time.Second)
		time.Sleep(10 * time.Second)
		e := h.Explain("target-0")
		require.Equal(t, "the next probe is 6s late: this process does not get to run", e[len(e)-1])
	})
}
