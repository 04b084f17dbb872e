package health

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Public reports about other systems whose cause is a monitor's or a prober's, each
// as the test that it would fail.

// https://github.com/haproxy/haproxy/issues/918,
// https://github.com/haproxy/haproxy/issues/2085: after a reload all servers counted
// as up until they were checked. Here they count as nothing, or as what the process
// before knew, for as long as that one's knowledge would have lasted.
func TestReportHAProxy918ReloadMakesNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		targets := []Target{{"up", &fake{}, Config{}}, {"down", &fake{err: errRefused}, Config{}}, {"new", &fake{err: errRefused}, Config{}}}
		before := watch(t, MonitorConfig{NoSpread: true}, targets[:2]...)
		sleep(12 * time.Second)
		before.stop()
		records := before.Export()

		after, err := NewMonitor(MonitorConfig{}, targets...)
		require.NoError(t, err)
		for _, s := range after.Snapshot() {
			require.Equal(t, Unknown, s.State)
		}
		_, err = after.Import(records, 0)
		require.NoError(t, err)
		require.Equal(t, Online, after.Snapshot()["up"].State)
		require.Equal(t, Offline, after.Snapshot()["down"].State)
		require.Equal(t, Unknown, after.Snapshot()["new"].State)
		time.Sleep(17 * time.Second)
		for _, s := range after.Snapshot() {
			require.Equal(t, Unknown, s.State, "nobody has probed since")
		}
	})
}

// https://github.com/haproxy/haproxy/issues/3330: the old process of a reload stops
// checking but goes on serving long sessions. It must not trust its last status for
// ever.
func TestReportHAProxy3330OldProcessForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := watch(t, MonitorConfig{NoSpread: true}, Target{"a", &fake{}, Config{}})
		sleep(time.Second)
		l.stop()
		s, _ := l.Status("a")
		require.Equal(t, Online, s.State)
		time.Sleep(time.Until(s.ValidUntil))
		require.Equal(t, Unknown, l.state("a"))
		require.Empty(t, l.Export())
	})
}

// https://github.com/haproxy/haproxy/issues/1234: servers that had gone down by what
// traffic showed did not come back, as no traffic went there. Here the probes of a
// target that is down go on, whoever uses it.
func TestReportHAProxy1234DownHasAWayUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{err: errRefused}
		l := watch(t, MonitorConfig{NoSpread: true}, Target{"a", f, Config{Fall: 1, DownInterval: time.Minute}})
		sleep(24 * time.Hour)
		require.Equal(t, Offline, l.state("a"))
		f.set(func(f *fake) { f.err = nil })
		sleep(time.Minute)
		require.Equal(t, Online, l.state("a"))
		l.stop()
	})
}

// https://github.com/acassen/keepalived/pull/381: a reload kept "down" but lost which
// checker had found it, so nothing could take it back. Status and cause travel
// together here, and the target's own next probes decide.
func TestReportKeepalived381StatusKeepsItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{err: errRefused}
		before := watch(t, MonitorConfig{NoSpread: true}, Target{"a", f, Config{Fall: 1}})
		sleep(time.Second)

		// Settings that change in place.
		require.NoError(t, before.Update(Target{"a", f, Config{Fall: 1, Rise: 2}}))
		s, _ := before.Status("a")
		require.Equal(t, Offline, s.State)
		require.Equal(t, Reason{Failed, "connection refused"}, s.Reason)
		before.stop()

		// Another process, in which all is well again.
		f.set(func(f *fake) { f.err = nil })
		after, err := NewMonitor(MonitorConfig{NoSpread: true}, Target{"a", f, Config{Fall: 1, Rise: 2}})
		require.NoError(t, err)
		n, err := after.Import(before.Export(), 0)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, s, after.Snapshot()["a"])
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- after.Run(ctx) }()
		sleep(time.Second)
		require.Equal(t, Recovering, after.Snapshot()["a"].Reason.Code)
		sleep(5 * time.Second)
		require.Equal(t, Online, after.Snapshot()["a"].State)
		cancel()
		require.NoError(t, <-ended)
	})
}

// https://github.com/hashicorp/consul/pull/912: a single failed renewal ended the loop
// that renews. Nothing that a probe does ends its target's loop here.
func TestReportConsul912LoopSurvivesFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, err := range []error{errRefused, fmt.Errorf("%w: no descriptors", ErrLocal), context.Canceled, context.DeadlineExceeded} {
			f := &fake{err: err}
			l := watch(t, MonitorConfig{NoSpread: true}, Target{"a", f, Config{}})
			sleep(time.Hour)
			require.Len(t, f.starts(), 3600/5+1, "%v", err)
			f.set(func(f *fake) { f.err = nil })
			sleep(5 * time.Second)
			require.Equal(t, Online, l.state("a"))
			l.stop()
		}
	})
}

// https://github.com/kubernetes/kubernetes/issues/89898,
// https://github.com/cockroachdb/cockroach/issues/44832: on a loaded node the probes of
// all that it watches time out together. Those that end long after their time say
// that this process did not run, and accuse nobody.
func TestReportKubernetes89898LoadedObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var targets []Target
		var fakes []*fake
		for i := range 50 {
			fakes = append(fakes, &fake{})
			targets = append(targets, Target{fmt.Sprint(i), fakes[i], Config{Fall: 1, Lease: 18500 * time.Millisecond}})
		}
		l := watch(t, MonitorConfig{}, targets...)
		sleep(20 * time.Second)
		l.takeEvents()
		for _, f := range fakes {
			f.set(func(f *fake) { f.takes, f.err = 3*time.Second, context.DeadlineExceeded })
		}
		sleep(time.Minute)
		for key, s := range l.Snapshot() {
			require.Equal(t, Error, s.State, "%s: %q", key, l.Explain(key))
		}
		for _, e := range l.takeEvents() {
			require.Regexp(t, `online->error$`, e, "nobody was called offline")
		}
		for _, f := range fakes {
			f.set(func(f *fake) { f.takes, f.err = 0, nil })
		}
		sleep(10 * time.Second)
		for key, s := range l.Snapshot() {
			require.Equal(t, Online, s.State, key)
		}
		require.NotZero(t, l.Stats().Overrun)
		l.stop()
	})
}

// https://github.com/antrea-io/antrea/issues/833: a probe that was starved by the CPU
// limit of what it probed caused restarts. A program that can't be started for want
// of anything, and one that this process was too late to wait for, is no failure.
func TestReportAntrea833StarvedProbe(t *testing.T) {
	missing, err := NewExec(ExecConfig{Path: "/no/such/program"})
	require.NoError(t, err)
	starved := context.Context(expired()) // the time was over before anything began
	require.Equal(t, LocalError, Classify(missing.Probe(t.Context())))
	for name, p := range map[string]Prober{
		"tcp":   must(NewTCP(TCPConfig{Address: "192.0.2.1:1"})),
		"tls":   must(NewTLS(TLSConfig{Address: "192.0.2.1:1"})),
		"http":  must(NewHTTP(HTTPConfig{URL: "http://192.0.2.1/"})),
		"udp":   must(NewUDP(UDPConfig{Address: "192.0.2.1:1", SilenceGood: true})),
		"exec":  must(NewExec(ExecConfig{Path: "/bin/false"})),
		"agent": must(NewAgent(AgentConfig{Address: "192.0.2.1:1"})),
	} {
		require.Equal(t, LocalError, Classify(p.Probe(starved)), name)
	}
}

// https://github.com/golang/go/issues/24595,
// https://github.com/golang/go/issues/35012,
// https://github.com/golang/go/issues/36141: Go's clock stands still while the machine
// is suspended, so a lease lasted longer by the nap. The boot-time clock tells.
func TestReportGo24595MonitorSlept(t *testing.T) {
	for name, read := range map[string]func(l *lab) State{
		"status":   func(l *lab) State { return l.state("a") },
		"snapshot": func(l *lab) State { return l.Snapshot()["a"].State },
		"export": func(l *lab) State {
			for _, r := range l.Export() {
				return r.State
			}
			return Unknown
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{}
				l := watch(t, MonitorConfig{NoSpread: true}, Target{"a", f, Config{Fall: 1, Lease: 18500 * time.Millisecond}})
				sleep(time.Second)
				f.set(func(f *fake) { f.err = errRefused })
				ahead := func(d time.Duration) {
					l.Monitor.mu.Lock()
					defer l.Monitor.mu.Unlock()
					real, err := BootAhead()
					if err != nil {
						t.Skip(err)
					}
					l.bootAhead = func() (time.Duration, error) { return real + d, nil }
				}
				ahead(10 * time.Second)
				require.Equal(t, Online, read(l))
				s, _ := l.Status("a")
				require.WithinDuration(t, l.start.Add(8500*time.Millisecond), s.ValidUntil, suspendTolerance, "the real clocks are read in between")
				ahead(time.Hour)
				require.Equal(t, Unknown, read(l))
				s, _ = l.Status("a")
				require.Equal(t, Suspended, s.Reason.Code)
				require.Equal(t, []string{"0s a unknown->online", "1s a online->unknown"}, l.takeEvents())

				// The network is not awake yet at 5 s. That accuses nobody.
				sleep(4500 * time.Millisecond)
				require.Equal(t, Error, l.state("a"))
				sleep(5 * time.Second)
				require.Equal(t, Offline, l.state("a"))
				l.stop()
			})
		})
	}
}

func must[P Prober](p P, err error) Prober {
	if err != nil {
		panic(err)
	}
	return p
}
