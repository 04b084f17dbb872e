package health

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// BenchmarkTargets measures what it costs to have 100,000 targets probed every 5 s,
// without the probes: each only counts. One operation is a second of real time.
// "ticker" is what one would write at first, a goroutine and a time.Ticker for each.
func BenchmarkTargets(b *testing.B) {
	const n, interval = 100_000, 5 * time.Second
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("10.%d.%d.%d:8080", i>>16, i>>8&255, i&255)
	}
	var probes atomic.Uint64
	count := Func(func(context.Context) error { probes.Add(1); return nil })

	for _, kind := range []struct {
		name  string
		start func(b *testing.B, ctx context.Context, all *sync.WaitGroup) any
	}{
		{"monitor", func(b *testing.B, ctx context.Context, all *sync.WaitGroup) any {
			m, err := NewMonitor(MonitorConfig{OnEvent: func(Event) {}})
			require.NoError(b, err)
			for _, key := range keys {
				require.NoError(b, m.Add(Target{Key: key, Prober: count, Config: Config{Interval: interval}}))
			}
			all.Go(func() { m.Run(ctx) })
			return m
		}},
		{"ticker", func(b *testing.B, ctx context.Context, all *sync.WaitGroup) any {
			for i := range n {
				all.Go(func() {
					first := time.NewTimer(time.Duration(i) * interval / n)
					defer first.Stop()
					select {
					case <-ctx.Done():
						return
					case <-first.C:
					}
					t := time.NewTicker(interval)
					defer t.Stop()
					for {
						count(ctx)
						select {
						case <-ctx.Done():
							return
						case <-t.C:
						}
					}
				})
			}
			return nil
		}},
	} {
		b.Run(kind.name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			var all sync.WaitGroup
			defer all.Wait()
			defer cancel()
			memory := inUse()
			kept := kind.start(b, ctx, &all)
			<-time.After(interval + time.Second) // all have begun

			memory = inUse() - memory
			began, cpu := probes.Load(), cpuTime(b)
			seconds := 0
			for b.Loop() {
				<-time.After(time.Second)
				seconds++
			}
			b.ReportMetric(float64(memory)/n, "B/target")
			b.ReportMetric(100*(cpuTime(b)-cpu).Seconds()/float64(seconds), "%cpu")
			b.ReportMetric(float64(probes.Load()-began)/float64(seconds), "probes/s")
			runtime.KeepAlive(kept)
		})
	}
}

// inUse returns the bytes of heap and stacks after a collection.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
