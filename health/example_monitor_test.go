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
