package health

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a target whose answer the test sets. It counts, and panics if two of its
// probes overlap.
type fake struct {
	mu      sync.Mutex
	err     error
	silent  bool          // answers nothing until ctx ends
	stuck   chan struct{} // if not nil: answers nothing until it is closed, ctx or not
	takes   time.Duration // time to answer
	began   []time.Time
	probing bool
}

func (f *fake) Probe(ctx context.Context) error {
	f.mu.Lock()
	if f.probing {
		panic("two probes of one target at once")
	}
	f.probing = true
	f.began = append(f.began, time.Now())
	err, silent, stuck, takes := f.err, f.silent, f.stuck, f.takes
	f.mu.Unlock()

	time.Sleep(takes) // in a synctest bubble
	switch {
	case stuck != nil:
		<-stuck
	case silent:
		<-ctx.Done()
		if err == nil {
			err = ctx.Err()
		}
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	f.probing = false
	return err
}

func (f *fake) set(change func(*fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fake) starts() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.began)
}

var errRefused = errors.New("connection refused")

// lab is a running monitor in a synctest bubble.
type lab struct {
	*Monitor
	t      *testing.T
	start  time.Time
	stop   func() // ends Run and waits for it
	mu     sync.Mutex
	events []string
}

// watch runs a monitor in the present bubble.
func watch(t *testing.T, config MonitorConfig, targets ...Target) *lab {
	l := &lab{t: t, start: time.Now()}
	if config.OnEvent == nil {
		config.OnEvent = func(e Event) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.events = append(l.events, fmt.Sprintf("%v %s %v->%v", time.Since(l.start), e.Key, e.Old, e.New.State))
		}
	}
	var err error
	l.Monitor, err = NewMonitor(config, targets...)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	l.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(l.stop)
	return l
}

func (l *lab) state(key string) State {
	s, ok := l.Status(key)
	require.True(l.t, ok, key)
	return s.State
}

func (l *lab) takeEvents() []string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.events
	l.events = nil
	return e
}

// sleep passes time and lets everything that is due then finish.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestMonitorFollowsTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		l := watch(t, MonitorConfig{NoSpread: true}, Target{"a", f, Config{}})
		synctest.Wait()
		require.Equal(t, Online, l.state("a"))
		f.set(func(f *fake) { f.err = errRefused })
		sleep(14999 * time.Millisecond)
		require.Equal(t, Online, l.state("a"))
		sleep(time.Millisecond)
		require.Equal(t, Offline, l.state("a"))
		s, _ := l.Status("a")
		require.Equal(t, "failed: connection refused", s.Reason.String())
		f.set(func(f *fake) { f.err = nil })
		sleep(5 * time.Second)
		require.Equal(t, map[string]Status{"a": {Online, time.Now(), time.Now().Add(18500 * time.Millisecond), Reason{Code: Passing}}}, l.Snapshot())
		require.Equal(t, []string{"0s a unknown->online", "15s a online->offline", "20s a offline->online"}, l.takeEvents())
		require.Equal(t, Stats{Targets: 1, Probes: 5}, l.Stats())
		_, ok := l.Status("b")
		require.False(t, ok)
		l.stop()
	})
}

// With the defaults a target that turns silent leaves within 13 to 18 s, one that
// refuses within 10 to 15 s, whenever in the interval it dies.
func TestDetectionTime(t *testing.T) {
	for _, tc := range []struct {
		name        string
		die         func(*fake)
		least, most time.Duration
	}{
		{"silent", func(f *fake) { f.silent = true }, 13 * time.Second, 18 * time.Second},
		{"refusing", func(f *fake) { f.err = errRefused }, 10 * time.Second, 15 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var all []time.Duration
			for phase := time.Duration(0); phase < 5*time.Second; phase += 250 * time.Millisecond {
				synctest.Test(t, func(t *testing.T) {
					f := &fake{}
					var died, found time.Time
					l := watch(t, MonitorConfig{NoSpread: true, OnEvent: func(e Event) {
						if e.New.State == Offline {
							found = time.Now()
						}
					}}, Target{"a", f, Config{}})
					sleep(20*time.Second + phase + time.Millisecond)
					died = time.Now()
					f.set(tc.die)
					sleep(30 * time.Second)
					l.stop()
					require.False(t, found.IsZero())
					all = append(all, found.Sub(died))
				})
			}
			require.GreaterOrEqual(t, slices.Min(all), tc.least)
			require.LessOrEqual(t, slices.Max(all), tc.most)
			require.Less(t, slices.Min(all), tc.least+time.Second, "the whole range was tried")
			require.Greater(t, slices.Max(all), tc.most-time.Second, "the whole range was tried")
		})
	}
}

// The seed of this package: an online that outlives its observer.
func TestStatusExpiresWhenMonitorStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, bad := &fake{}, &fake{err: errRefused}
		l := watch(t, MonitorConfig{NoSpread: true}, Target{"good", good, Config{}}, Target{"bad", bad, Config{Fall: 1, Lease: 7 * time.Second}})
		sleep(12 * time.Second)
		l.stop() // the last probes ended at 10 s
		time.Sleep(time.Second)
		require.Equal(t, Online, l.state("good"))
		require.Equal(t, Offline, l.state("bad"))
		time.Sleep(4 * time.Second) // 17 s
		require.Equal(t, Online, l.state("good"))
		require.Equal(t, Unknown, l.state("bad"))
		time.Sleep(11499 * time.Millisecond)
		require.Equal(t, Online, l.state("good"))
		time.Sleep(time.Millisecond) // 28.5 s
		s, _ := l.Status("good")
		require.Equal(t, Status{State: Unknown, Since: time.Now(), Reason: Reason{Code: Expired}}, s, "and nobody swept")
		require.Equal(t, Unknown, l.Snapshot()["good"].State)
	})
}

func TestStatusExpiresWhenProberIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, healthy := &fake{}, &fake{}
		l := watch(t, MonitorConfig{NoSpread: true}, Target{"a", f, Config{}}, Target{"b", healthy, Config{}})
		synctest.Wait()
		stuck := make(chan struct{})
		f.set(func(f *fake) { f.stuck = stuck })
		sleep(time.Minute)
		require.Equal(t, Unknown, l.state("a"))
		require.Equal(t, Online, l.state("b"), "others are probed on")
		require.ElementsMatch(t, []string{"0s a unknown->online", "0s b unknown->online", "18.5s a online->unknown"}, l.takeEvents())
		require.Equal(t, 1, l.Stats().Probing)

		// The stuck probe comes back with a success that is a minute old: it does
		// not count, the next one does.
		f.set(func(f *fake) { f.stuck = nil })
		close(stuck)
		synctest.Wait()
		require.Equal(t, Error, l.state("a"))
		require.Equal(t, uint64(1), l.Stats().Overrun)
		sleep(5 * time.Second)
		require.Equal(t, Online, l.state("a"))
		l.stop()
	})
}

// A process that was frozen finds all its probes timed out. That is no evidence.
func TestFrozenObserverAccusesNobody(t *testing.T) {
	for name, answer := range map[string]error{"timed out": context.DeadlineExceeded, "succeeded before": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{}
				l := watch(t, MonitorConfig{NoSpread: true}, Target{"a", f, Config{Fall: 1, Lease: 18500 * time.Millisecond}})
				synctest.Wait()
				f.set(func(f *fake) { f.takes, f.err = 10*time.Second, answer })
				sleep(5*time.Second + 10*time.Second) // the second probe ends
				s, _ := l.Status("a")
				require.Equal(t, Online, s.State)
				require.Equal(t, l.start.Add(18500*time.Millisecond), s.ValidUntil, "not renewed either")
				l.stop()
			})
		})
	}
}

func TestLocalErrorsShowAsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		l := watch(t, MonitorConfig{NoSpread: true}, Target{"a", f, Config{}})
		synctest.Wait()
		f.set(func(f *fake) { f.err = fmt.Errorf("%w: no descriptors", ErrLocal) })
		sleep(time.Minute)
		require.Equal(t, []string{"0s a unknown->online", "18.5s a online->error"}, l.takeEvents())
		s, _ := l.Status("a")
		require.Equal(t, "local failure: could not probe: no descriptors", s.Reason.String())
		l.stop()
		sleep(18500 * time.Millisecond)
		require.Equal(t, Unknown, l.state("a"))
	})
}

func TestNextProbeIsTimedFromTheEndOfTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{takes: 700 * time.Millisecond}
		l := watch(t, MonitorConfig{NoSpread: true}, Target{"a", f, Config{Interval: 2 * time.Second}})
		sleep(10 * time.Second)
		l.stop()
		var offsets []time.Duration
		for _, b := range f.starts() {
			offsets = append(offsets, b.Sub(l.start))
		}
		require.Equal(t, []time.Duration{0, 2700 * time.Millisecond, 5400 * time.Millisecond, 8100 * time.Millisecond}, offsets)
	})
}

func TestFirstProbesAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var targets []Target
		fakes := map[string]*fake{}
		for i := range 100 {
			key := fmt.Sprint("target-", i)
			fakes[key] = &fake{}
			targets = append(targets, Target{key, fakes[key], Config{}})
		}
		l := watch(t, MonitorConfig{}, targets...)
		sleep(5*time.Second - 1)
		l.stop()
		perSecond := make([]int, 5)
		for key, f := range fakes {
			require.Len(t, f.starts(), 1, key)
			perSecond[f.starts()[0].Sub(l.start)/time.Second]++
		}
		// Binomial(100, 1/5) with fixed keys: mean 20, standard deviation 4.
		require.Greater(t, slices.Min(perSecond), 4, "%v", perSecond)
		require.Less(t, slices.Max(perSecond), 40, "%v", perSecond)
	})
}

// Ten targets, two workers, a second per probe: they take turns, and the delay is
// counted.
func TestWorkersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most := 0, 0
		probe := Func(func(ctx context.Context) error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running--
			mu.Unlock()
			return nil
		})
		var targets []Target
		for i := range 10 {
			targets = append(targets, Target{fmt.Sprint(i), probe, Config{Timeout: 2 * time.Second}})
		}
		l := watch(t, MonitorConfig{NoSpread: true, Workers: 2}, targets...)
		synctest.Wait()
		require.Equal(t, Stats{Targets: 10, Probing: 2, Waiting: 8}, l.Stats())
		sleep(5 * time.Second)
		for key, s := range l.Snapshot() {
			require.Equal(t, Online, s.State, key)
		}
		require.Equal(t, 2, most)
		s := l.Stats()
		require.Equal(t, uint64(10), s.Probes)
		require.Equal(t, uint64(8), s.Late, "those that had to wait a second and more")
		require.Equal(t, 4*time.Second, s.LateBy)
		l.stop()
	})
}

func TestAddUpdateRemoveWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := watch(t, MonitorConfig{NoSpread: true})
		sleep(2 * time.Hour) // nothing to do for long

		a := &fake{}
		require.NoError(t, l.Add(Target{"a", a, Config{}}))
		synctest.Wait()
		require.Equal(t, Online, l.state("a"))
		require.ErrorIs(t, l.Add(Target{"a", a, Config{}}), ErrKey)

		// The other prober takes over at its own pace; what is known stays.
		other := &fake{err: errRefused}
		require.NoError(t, l.Update(Target{"a", other, Config{Interval: time.Second, Fall: 2}}))
		require.Equal(t, Online, l.state("a"))
		sleep(2 * time.Second)
		require.Equal(t, Offline, l.state("a"), "two probes, a second apart")
		require.Len(t, a.starts(), 1)

		require.ErrorIs(t, l.Update(Target{"b", a, Config{}}), ErrNoTarget)
		require.ErrorIs(t, l.Update(Target{"a", a, Config{Fall: -1}}), ErrConfig)
		require.ErrorIs(t, l.Update(Target{"a", nil, Config{}}), ErrConfig)
		require.Equal(t, Offline, l.state("a"))

		require.True(t, l.Remove("a"))
		require.False(t, l.Remove("a"))
		_, ok := l.Status("a")
		require.False(t, ok)
		n := len(other.starts())
		sleep(time.Minute)
		require.Len(t, other.starts(), n, "no more probes")

		require.NoError(t, l.Add(Target{"a", a, Config{Rise: 2}}))
		synctest.Wait()
		require.Equal(t, Unknown, l.state("a"), "added again is added anew")
		l.stop()
	})
}

// A result of the prober from before an Update, or of a removed target, is nobody's.
func TestResultsOfThePastAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &fake{takes: 800 * time.Millisecond, err: errRefused}
		l := watch(t, MonitorConfig{NoSpread: true}, Target{"a", slow, Config{Fall: 1}}, Target{"b", slow2(), Config{Fall: 1}})
		sleep(100 * time.Millisecond)
		quick := &fake{}
		require.NoError(t, l.Update(Target{"a", quick, Config{Fall: 1}}))
		require.True(t, l.Remove("b"))
		require.NoError(t, l.Add(Target{"b", quick, Config{Fall: 1, Interval: time.Hour}}))
		sleep(time.Second)
		require.Equal(t, Online, l.state("a"), "probed at once by the new prober")
		require.Equal(t, Online, l.state("b"))
		require.ElementsMatch(t, []string{"100ms b unknown->online", "800ms a unknown->online"}, l.takeEvents())
		l.stop()
	})
}

func slow2() *fake { return &fake{takes: 800 * time.Millisecond, err: errRefused} }

// The end of the monitor breaks off probes; that is no failure of their targets.
func TestStoppingAccusesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		l := watch(t, MonitorConfig{NoSpread: true}, Target{"a", f, Config{Fall: 1}})
		synctest.Wait()
		// A prober that does not tell why it gave up.
		f.set(func(f *fake) { f.silent, f.err = true, errRefused })
		sleep(5500 * time.Millisecond) // in the middle of the second probe
		require.Equal(t, 1, l.Stats().Probing)
		l.stop()
		require.Equal(t, Online, l.state("a"))
		require.ErrorIs(t, l.Run(t.Context()), ErrRan)
	})
}

// A consumer that sleeps an hour delays no probe, and then gets one event per key
// with the final state, none for a key that is back where it was.
func TestSlowConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		release := make(chan struct{})
		a, b, c := &fake{}, &fake{}, &fake{}
		l := watch(t, MonitorConfig{NoSpread: true, OnEvent: func(e Event) {
			got = append(got, fmt.Sprintf("%s %v->%v", e.Key, e.Old, e.New.State))
			if len(got) == 3 {
				<-release
			}
		}}, Target{"a", a, Config{}}, Target{"b", b, Config{}}, Target{"c", c, Config{}})
		synctest.Wait()
		slices.Sort(got)
		require.Equal(t, []string{"a unknown->online", "b unknown->online", "c unknown->online"}, got)

		for range 3 { // a and b go and come; a stays away in the end
			a.set(func(f *fake) { f.err = errRefused })
			b.set(func(f *fake) { f.err = errRefused })
			sleep(20 * time.Second)
			require.Equal(t, Offline, l.state("a"))
			b.set(func(f *fake) { f.err = nil })
			sleep(20 * time.Second)
			require.Equal(t, Online, l.state("b"))
		}
		require.Greater(t, len(c.starts()), 20)
		close(release)
		synctest.Wait()
		require.Equal(t, []string{"a online->offline"}, got[3:])
		l.stop()
	})
}

func TestRemoveDropsWaitingEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var keys []string
		l := watch(t, MonitorConfig{NoSpread: true, OnEvent: func(e Event) {
			keys = append(keys, e.Key)
			<-release
		}}, Target{"a", &fake{}, Config{}})
		synctest.Wait()
		require.NoError(t, l.Add(Target{"b", &fake{}, Config{}}))
		require.NoError(t, l.Add(Target{"c", &fake{}, Config{}}))
		synctest.Wait()
		require.True(t, l.Remove("b"))
		close(release)
		synctest.Wait()
		require.Equal(t, []string{"a", "c"}, keys)
		l.stop()
	})
}

// Events may call back into the monitor.
func TestEventMayUseTheMonitor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *lab
		ready := make(chan struct{})
		l = watch(t, MonitorConfig{NoSpread: true, OnEvent: func(e Event) {
			<-ready
			if s, ok := l.Status(e.Key); !ok || s.State != Online {
				panic("status in event")
			}
			l.Remove(e.Key)
			if e.Key == "a" {
				if err := l.Add(Target{"b", &fake{}, Config{}}); err != nil {
					panic(err)
				}
			}
		}}, Target{"a", &fake{}, Config{}})
		close(ready)
		synctest.Wait()
		require.Empty(t, l.Snapshot())
		l.stop()
	})
}

func TestNewMonitorFaults(t *testing.T) {
	f := &fake{}
	_, err := NewMonitor(MonitorConfig{Workers: -1}, Target{"", f, Config{}}, Target{"a", nil, Config{}},
		Target{"b", f, Config{Rise: -1, Fall: -2}}, Target{"c", f, Config{}}, Target{"c", f, Config{}})
	require.EqualError(t, err, `health: Workers is -1: want 1 to 100000
health: bad key: it is empty: give each target one
health: target "a": Prober is <nil>: want one
health: target "b": Rise is -1: want 1 to 1000
health: target "b": Fall is -2: want 1 to 1000
health: bad key: "c" is already taken: use Update, or Remove it first`)
	require.ErrorIs(t, err, ErrConfig)
	require.ErrorIs(t, err, ErrKey)
}

// Nothing is known before Run, and Run with an ended context is no different.
func TestBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		m, err := NewMonitor(MonitorConfig{NoSpread: true}, Target{"a", f, Config{}})
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.Equal(t, map[string]Status{"a": {}}, m.Snapshot())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, m.Run(ctx))
		require.Empty(t, f.starts())
		require.NoError(t, m.Add(Target{"b", f, Config{}}), "harmless, though nobody will probe it")
		require.ElementsMatch(t, []string{"a", "b"}, slices.Collect(maps.Keys(m.Snapshot())))
	})
}

// Everything at once, for the race detector.
func TestConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := watch(t, MonitorConfig{Workers: 3})
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				key := fmt.Sprint(i % 4)
				for n := range 50 {
					f := &fake{takes: time.Duration(n) * time.Millisecond}
					if n%3 == 0 {
						f.err = errRefused
					}
					c := Config{Interval: 20 * time.Millisecond, Timeout: 40 * time.Millisecond}
					_ = l.Add(Target{key, f, c}) // may be taken, gone, ...
					time.Sleep(time.Duration(n) * time.Millisecond)
					_ = l.Update(Target{key, f, c})
					l.Snapshot()
					l.Stats()
					if n%5 == 0 {
						l.Remove(key)
					}
				}
			})
		}
		all.Wait()
		sleep(time.Second)
		s := l.Stats()
		require.LessOrEqual(t, s.Probing, 3)
		require.NotZero(t, s.Probes)
		l.stop()
	})
}
