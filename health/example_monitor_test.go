package health_test

import (
	"context"
	"fmt"
	"time"

	"github.com/lastbeat/lastbeat/health"
)

// A process that restarts hands its knowledge on, and its age with it.
func ExampleMonitor_Import() {
	never := health.Func(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	records := []health.Record{ // from Export, by way of a file
		{Key: "a", State: health.Online, For: 5 * time.Hour, Left: 15 * time.Second},
		{Key: "b", State: health.Online, For: 5 * time.Hour, Left: 3 * time.Second},
	}
	monitor, err := health.NewMonitor(health.MonitorConfig{},
		health.Target{Key: "a", Prober: never}, health.Target{Key: "b", Prober: never})
	if err != nil {
		fmt.Println(err)
		return
	}
	n, err := monitor.Import(records, 4*time.Second)
	fmt.Println(n, err)
	all := monitor.Snapshot()
	fmt.Println("a:", all["a"].State)
	fmt.Println("b:", all["b"].State)
	// Output:
	// 1 <nil>
	// a: online
	// b: unknown
}

// Why a machine says what it says, for a person.
func ExampleMachine_Explain() {
	machine, err := health.NewMachine(health.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, result := range []health.Result{
		{Outcome: health.Good, Detail: "status 200"},
		{Outcome: health.Bad, Detail: "connection refused"},
		{Outcome: health.LocalError, Detail: "too many open files"},
	} {
		machine.Observe(now, result)
		now = now.Add(5 * time.Second)
	}
	for _, line := range machine.Explain(now) {
		fmt.Println(line)
	}
	// Output:
	// online for 15s, and for 8.5s more unless a probe renews it
	// because: failing: connection refused
	// 1 bad probe, of 3 that take it offline
	// probes could not be made for 5s, which renews nothing: too many open files
	// the last probe ended 5s ago
}
