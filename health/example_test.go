package health_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/lastbeat/lastbeat/health"
)

// A monitor watches a server until it stops serving, then the monitor ends, and
// what it knew expires.
func Example() {
	var ready atomic.Bool
	ready.Store(true)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()

	probe, err := health.NewHTTP(health.HTTPConfig{URL: server.URL + "/readyz", SkipVerify: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	events := make(chan health.Event, 10)
	monitor, err := health.NewMonitor(
		health.MonitorConfig{NoSpread: true, OnEvent: func(e health.Event) { events <- e }},
		health.Target{Key: "master1", Prober: probe, Config: health.Config{
			Interval: 10 * time.Millisecond, // a real one would wait seconds
			Timeout:  10 * time.Second,
			Fall:     2,
			Lease:    11 * time.Second,
		}})
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- monitor.Run(ctx) }()

	e := <-events
	fmt.Printf("%s: %v -> %v\n", e.Key, e.Old, e.New.State)
	ready.Store(false)
	e = <-events
	fmt.Printf("%s: %v -> %v\n", e.Key, e.Old, e.New.State)

	cancel()
	fmt.Println("ended:", <-ended)
	status, _ := monitor.Status("master1")
	fmt.Println("until its lease ends:", status.State)
	// Output:
	// master1: unknown -> online
	// master1: online -> offline
	// ended: <nil>
	// until its lease ends: offline
}

// A machine without a monitor, driven by the caller's own loop and clock.
func ExampleMachine() {
	machine, err := health.NewMachine(health.Config{
		Interval: 5 * time.Second,
		Timeout:  time.Second,
		Fall:     2,
		Lease:    15 * time.Second,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	show := func(now time.Time) {
		s := machine.At(now)
		fmt.Printf("%3v %-8v %v\n", now.Sub(start), s.State, s.Reason)
	}

	now := start
	show(now)
	for _, result := range []health.Result{
		{Outcome: health.Good, Detail: "status 200"},
		{Outcome: health.Bad, Detail: "connection refused"},
		{Outcome: health.Bad, Detail: "connection refused"},
	} {
		machine.Observe(now, result)
		show(now)
		now = machine.Deadline()
	}
	// Nobody probes any more. The verdict ends without anybody's doing.
	show(start.Add(24 * time.Second))
	show(start.Add(25 * time.Second))
	// Output:
	//  0s unknown  never probed
	//  0s online   passing: status 200
	//  5s online   failing: connection refused
	// 10s offline  failed: connection refused
	// 24s offline  failed: connection refused
	// 25s unknown  expired: connection refused
}

func ExampleNewTCP() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	probe, err := health.NewTCP(health.TCPConfig{Address: listener.Addr().String()})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(health.Classify(probe.Probe(context.Background())))
	listener.Close()
	fmt.Println(health.Classify(probe.Probe(context.Background())))
	// Output:
	// good
	// bad
}

// A function is a prober. An error that wraps ErrLocal says that the probe could
// not be made; any other accuses the target.
func ExampleFunc() {
	backends := -1
	probe := health.Func(func(context.Context) error {
		switch {
		case backends < 0:
			return fmt.Errorf("%w: the balancer's socket is gone", health.ErrLocal)
		case backends == 0:
			return errors.New("no backend is alive")
		}
		return nil
	})
	for ; backends <= 1; backends++ {
		fmt.Println(health.Classify(probe.Probe(context.Background())))
	}
	// Output:
	// local error
	// bad
	// good
}

// Two agents probe for a balancer that only listens. One dies, and what it vouched
// for ends with its lease; what it sent before it was started again comes too late.
func ExampleLeases() {
	store, err := health.NewLeases(health.LeasesConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	show := func(seconds time.Duration) {
		s, _ := store.At(start.Add(seconds*time.Second), "master1")
		fmt.Printf("%2ds %-7v %v\n", seconds, s.State, s.Reason)
	}
	report := health.Report{
		Lease:   health.Lease{Owner: "agent1", Epoch: 1, Sequence: 1, Length: 20 * time.Second},
		Subject: "master1", State: health.Online, Detail: "status 200",
	}
	fmt.Println(store.Apply(start, report))
	show(0)
	show(19)
	show(20) // agent1 was killed, and nobody had to notice

	report.Epoch, report.State, report.Detail = 2, health.Offline, "refused"
	fmt.Println(store.Apply(start.Add(30*time.Second), report))
	show(30)
	report.Epoch, report.Sequence, report.State = 1, 2, health.Online
	fmt.Println(store.Apply(start.Add(31*time.Second), report))
	show(31)
	// Output:
	// <nil>
	//  0s online  reported: status 200
	// 19s online  reported: status 200
	// 20s unknown expired: status 200
	// <nil>
	// 30s offline reported: refused
	// health: lease was replaced: "master1" of "agent1": epoch 1 is before 2
	// 31s offline reported: refused
}

// Three managers watch an agent. One of them is cut off, and accuses everybody.
func ExampleQuorum() {
	quorum, err := health.NewQuorum(health.QuorumConfig{
		Voters: []string{"manager1", "manager2", "manager3"},
		Settle: 2 * time.Second,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	report := func(seconds time.Duration, voter string, state health.State) {
		now := start.Add(seconds * time.Second)
		err := quorum.Report(now, health.Report{
			Lease:   health.Lease{Owner: voter, Sequence: uint64(seconds), Length: 15 * time.Second},
			Subject: "agent7", State: state,
		})
		if err != nil {
			fmt.Println(err)
		}
		v := quorum.At(now, "agent7")
		fmt.Printf("%2ds %-7v %v\n", seconds, v.State, v.Reason)
	}
	report(1, "manager1", health.Offline)
	report(2, "manager2", health.Online)
	report(3, "manager3", health.Error)
	report(6, "manager2", health.Offline) // now it is true
	report(9, "manager1", health.Offline)
	// Output:
	//  1s unknown no majority: 1 of 3 voters say down, 2 needed
	//  2s unknown no majority: 1 of 3 voters say down, 2 needed
	//  3s unknown no majority: 1 of 3 voters say down, 2 needed
	//  6s unknown settling: 2 of 3 voters say down, 2 needed
	//  9s offline majority: 2 of 3 voters say down, 2 needed
}

// An observer was stopped for four seconds and then finds a target silent.
func ExampleLocal() {
	local, err := health.NewLocal(health.LocalConfig{Max: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	show := func() {
		s := local.At(now)
		fmt.Printf("score %d, may accuse: %t, interval %v\n", s.Score, s.MayAccuse, local.Stretch(now, 5*time.Second))
	}
	show() // it does not even know itself
	for range 4 {
		local.Good(now)
		now = now.Add(time.Second)
	}
	show()
	due := now
	now = now.Add(4 * time.Second)
	local.Tick(now, due, time.Second)
	show()
	// Output:
	// score 3, may accuse: false, interval 20s
	// score 0, may accuse: true, interval 5s
	// score 3, may accuse: false, interval 20s
}

// A target that falls three times within two seconds is kept out for a while.
func ExampleFlap() {
	flap, err := health.NewFlap(health.FlapConfig{HalfLife: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 3 {
		flap.Observe(now, health.Online)
		flap.Observe(now, health.Offline)
		fmt.Printf("penalty %.0f, suppressed: %t\n", flap.At(now).Penalty, flap.At(now).Suppressed)
		now = now.Add(time.Second)
	}
	online := health.Status{State: health.Online, Since: now, ValidUntil: now.Add(time.Minute)}
	fmt.Println(flap.Damp(now, online).State)
	now = flap.At(now).Until
	fmt.Println(flap.Damp(now, online).State)
	// Output:
	// penalty 1000, suppressed: false
	// penalty 1933, suppressed: false
	// penalty 2804, suppressed: true
	// offline
	// online
}

// Five of six targets are gone at once: that is the observer, until somebody has
// looked after it.
func ExampleFailStatic() {
	guard, err := health.NewFailStatic(health.FailStaticConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	observe := func(state health.State) {
		for i := range 5 {
			guard.Observe(now, fmt.Sprint("target", i), health.Status{
				State: state, Since: now, ValidUntil: now.Add(time.Hour),
			})
		}
	}
	show := func() {
		s, _ := guard.At(now, "target0")
		fmt.Println(s.State, s.Reason.Code == health.Frozen)
	}
	observe(health.Online)
	now = now.Add(time.Minute)
	observe(health.Offline)
	show()
	now = now.Add(time.Minute) // nobody has looked, and the freeze ends by itself
	show()
	// Output:
	// online true
	// offline false
}

// Traffic finds errors that probes do not see.
func ExampleCombination() {
	both, err := health.NewCombination(health.WorstWins, "probe", "traffic")
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	observe := func(cause string, state health.State, lease time.Duration, reason health.Reason) {
		err := both.Observe(now, cause, health.Status{State: state, Since: now, ValidUntil: now.Add(lease), Reason: reason})
		if err != nil {
			fmt.Println(err)
		}
		s := both.At(now)
		fmt.Println(s.State, "-", s.Reason)
	}
	observe("probe", health.Online, time.Minute, health.Reason{Code: health.Passing, Detail: "status 200"})
	observe("traffic", health.Offline, 30*time.Second, health.Reason{Code: health.Failed, Detail: "5 resets"})
	now = both.At(now).ValidUntil
	s := both.At(now)
	fmt.Println(s.State, "-", s.Reason)
	fresh, held := health.Drain.Use(s.State)
	fmt.Println("in drain: new connections", fresh, "- old ones", held)
	// Output:
	// online - passing: by probe: status 200
	// offline - failed: by traffic: 5 resets
	// online - passing: by probe: status 200
	// in drain: new connections false - old ones true
}

// The more observers miss somebody, the sooner it is given up.
func ExampleSuspicion() {
	suspicion, err := health.NewSuspicion(health.SuspicionConfig{Confirmations: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, observer := range []string{"a", "b", "b", "c"} {
		counted := suspicion.Suspect(start, observer)
		fmt.Println(observer, counted, suspicion.Deadline().Sub(start).Round(100*time.Millisecond))
	}
	fmt.Println(suspicion.Confirmed(start.Add(8 * time.Second)))
	fmt.Println(suspicion.Confirmed(start.Add(9 * time.Second)))
	// Output:
	// a true 24s
	// b true 14s
	// b false 14s
	// c true 8.2s
	// false
	// true
}

// Nobody told the detector how often the sender sends.
func ExamplePhi() {
	detector, err := health.NewPhi(health.PhiConfig{Pause: time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	last := start
	for i := range 200 {
		last = start.Add(time.Duration(i) * 2 * time.Second)
		detector.Heartbeat(last)
	}
	for _, silence := range []time.Duration{time.Second, 2200 * time.Millisecond, 2400 * time.Millisecond, 3 * time.Second} {
		now := last.Add(silence)
		fmt.Printf("%4v phi %4.1f %v\n", silence, detector.Phi(now), detector.At(now).State)
	}
	// Output:
	//   1s phi  0.0 online
	// 2.2s phi  1.6 online
	// 2.4s phi  4.5 online
	//   3s phi 23.1 unknown
}

// The watch is told two clocks, as [health.BootAhead] reads them.
func ExampleSuspendWatch() {
	var watch health.SuspendWatch
	for _, ahead := range []time.Duration{time.Hour, time.Hour, 9 * time.Hour, 9 * time.Hour} {
		fmt.Println(watch.Observe(ahead))
	}
	// Output:
	// 0s
	// 0s
	// 8h0m0s
	// 0s
}
