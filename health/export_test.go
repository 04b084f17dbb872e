package health

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestExportImport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, bad, silent := &fake{}, &fake{err: errRefused}, &fake{stuck: make(chan struct{})}
		targets := []Target{{"good", good, Config{}}, {"bad", bad, Config{Fall: 2}}, {"silent", silent, Config{}}}
		l := watch(t, MonitorConfig{NoSpread: true}, targets...)
		sleep(12 * time.Second) // probes at 0, 5 and 10 s
		records := l.Export()
		require.Equal(t, []Record{
			{"bad", Offline, Reason{Failed, "connection refused"}, 7 * time.Second, 11 * time.Second, 0, 3},
			{"good", Online, Reason{Code: Passing}, 12 * time.Second, 16500 * time.Millisecond, 3, 0},
		}, records)
		silent.set(func(f *fake) { close(f.stuck); f.stuck = nil })
		l.stop()

		text, err := json.Marshal(records) // any encoding will do
		require.NoError(t, err)
		records = nil
		require.NoError(t, json.Unmarshal(text, &records))

		// 3 s later, in another process, which does not probe yet.
		time.Sleep(3 * time.Second)
		next, err := NewMonitor(MonitorConfig{}, targets...)
		require.NoError(t, err)
		n, err := next.Import(append(records, Record{Key: "gone", State: Online, Left: time.Second}), 3*time.Second)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		want := map[string]Status{
			"good":   {Online, l.start, l.start.Add(28500 * time.Millisecond), Reason{Code: Passing}},
			"bad":    {Offline, l.start.Add(5 * time.Second), l.start.Add(23 * time.Second), Reason{Failed, "connection refused"}},
			"silent": {},
		}
		require.Equal(t, want, next.Snapshot(), "what was known, since when and until when")
		for key, w := range l.Snapshot() {
			if key != "silent" {
				require.Equal(t, w, want[key], "the old process says the same")
			}
		}
		n, err = next.Import(records, 0)
		require.NoError(t, err)
		require.Zero(t, n, "a second time is too late, as something is known")

		time.Sleep(8 * time.Second) // 23 s: nobody has probed, so nothing is kept alive
		require.Equal(t, Unknown, next.Snapshot()["bad"].State)
		time.Sleep(5500 * time.Millisecond)
		require.Equal(t, Unknown, next.Snapshot()["good"].State)
	})
}

// What is taken over counts as if there had been no change of process: a target
// that had failed twice of three times leaves with the third failure.
func TestImportGoesOnCounting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{err: errRefused}
		m, err := NewMonitor(MonitorConfig{}, Target{"a", f, Config{Initial: InitialFirst}})
		require.NoError(t, err)
		_, err = m.Import([]Record{{Key: "a", State: Online, Left: 10 * time.Second, Bad: 1}}, 0)
		require.NoError(t, err)
		w := m.targets["a"]
		_, changed := w.machine.Observe(time.Now(), Result{Bad, "2"})
		require.False(t, changed, "the first verdict has been, so Initial is over")
		tr, changed := w.machine.Observe(time.Now(), Result{Bad, "3"})
		require.True(t, changed)
		require.Equal(t, Offline, tr.To.State)
	})
}

// Counts that accumulate go on where they do so too; a record of them says nothing to
// a target that counts in a row.
func TestImportOfAccumulatedCounts(t *testing.T) {
	now := time.Now()
	m, err := NewMachine(Config{Rise: 5, Fall: 5, Counting: Accumulating})
	require.NoError(t, err)
	for _, o := range []Outcome{Good, Good, Good, Good, Good, Bad, Good, Bad} {
		m.Observe(now, Result{Outcome: o})
	}
	r, ok := m.record("a", now)
	require.True(t, ok)
	require.Equal(t, []int{1, 2}, []int{r.Good, r.Bad})
	require.NoError(t, r.check())

	same, err := NewMachine(m.Config())
	require.NoError(t, err)
	require.True(t, same.load(now, r, 0))
	require.Equal(t, []int{1, 2}, []int{same.good, same.bad})
	other, err := NewMachine(Config{})
	require.NoError(t, err)
	require.True(t, other.load(now, r, 0))
	require.Equal(t, []int{0, 0}, []int{other.good, other.bad})
}

func TestImportWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{err: errRefused}
		l := watch(t, MonitorConfig{}, Target{"a", f, Config{Interval: time.Hour}})
		synctest.Wait()
		n, err := l.Import([]Record{{Key: "a", State: Online, Left: 10 * time.Second}}, time.Second)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		sleep(time.Minute)
		require.Equal(t, []string{"0s a unknown->online", "9s a online->unknown"}, l.takeEvents())
		l.stop()

		sleep(time.Hour)
		m := watch(t, MonitorConfig{NoSpread: true}, Target{"a", f, Config{}})
		sleep(time.Second) // a probe has completed
		n, err = m.Import([]Record{{Key: "a", State: Online, Left: 10 * time.Second}}, 0)
		require.NoError(t, err)
		require.Zero(t, n, "what this monitor has seen itself wins")
		require.Equal(t, Unknown, m.state("a"))
		m.stop()
	})
}

func TestImportTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			left, age, want time.Duration
		}{
			{10 * time.Second, 0, 10 * time.Second},
			{10 * time.Second, 9 * time.Second, time.Second},
			{10 * time.Second, 10 * time.Second, 0},
			{10 * time.Second, time.Hour, 0},
			{time.Hour, 0, 18500 * time.Millisecond}, // the lease of the target here
			{time.Hour, 18 * time.Second, 500 * time.Millisecond},
			{time.Hour, 19 * time.Second, 0},
		} {
			m, err := NewMonitor(MonitorConfig{}, Target{"a", &fake{}, Config{}})
			require.NoError(t, err)
			n, err := m.Import([]Record{{Key: "a", State: Online, Left: tc.left}}, tc.age)
			require.NoError(t, err)
			if tc.want == 0 {
				require.Zero(t, n)
				require.Equal(t, Status{}, m.Snapshot()["a"])
				continue
			}
			require.Equal(t, 1, n)
			require.Equal(t, tc.want, time.Until(m.Snapshot()["a"].ValidUntil), "%v", tc)
		}
	})
}

func TestImportFaults(t *testing.T) {
	m, err := NewMonitor(MonitorConfig{}, Target{"a", &fake{}, Config{}})
	require.NoError(t, err)
	good := Record{Key: "a", State: Online, Left: time.Second}
	_, err = m.Import([]Record{good, good, {Key: "b"}, {Key: "c", State: Error, For: -1, Left: maxLease + 1, Good: 1, Bad: 1}, {Key: "d", State: Offline, Left: 1, Bad: 1001}}, -1)
	require.ErrorIs(t, err, ErrConfig)
	require.EqualError(t, err, `health: age is -1ns: want 0 or more
health: target "a": Record.Key is "a": want no other record of this key
health: target "b": Record.State is unknown: want online or offline
health: target "b": Record.Left is 0s: want above 0, at most 30000h0m0s
health: target "c": Record.State is error: want online or offline
health: target "c": Record.For is -1ns: want 0 or more
health: target "c": Record.Left is 30000h0m0.000000001s: want above 0, at most 30000h0m0s
health: target "d": Record.Good, Bad is 0, 1001: want 0 to 1000`)
	require.Equal(t, Status{}, m.Snapshot()["a"], "nothing has changed")
}

// Exporting what was imported a moment ago gives the same again.
func TestExportOfImport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var targets []Target
		var records []Record
		for i := range 50 {
			key := fmt.Sprintf("%02d", i)
			targets = append(targets, Target{key, &fake{}, Config{}})
			records = append(records, Record{key, []State{Online, Offline}[i%2], Reason{Code(i % 8), key},
				time.Duration(i) * time.Hour, time.Duration(i+1) * time.Millisecond, i % 2 * i, (i + 1) % 2 * i})
		}
		m, err := NewMonitor(MonitorConfig{}, targets...)
		require.NoError(t, err)
		n, err := m.Import(records, 0)
		require.NoError(t, err)
		require.Equal(t, 50, n)
		require.Equal(t, records, m.Export())
	})
}
