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

// BenchmarkSchedule measures the scheduler alone, in time that passes at once: one
// operation is a probe of one of 100,000 targets, from becoming due to the plan of
// the next, without the goroutine and the context that it gets.
func BenchmarkSchedule(b *testing.B) {
	m, err := NewMonitor(MonitorConfig{Workers: 100_000}, many(100_000, Config{})...)
	require.NoError(b, err)
	now := time.Now()
	m.launch(now)
	var start []probe
	next := 0
	step := func() {
		for next == len(start) {
			var wait time.Duration
			wait, start = m.advance(now, start[:0])
			if next = 0; len(start) == 0 {
				now = now.Add(wait)
			}
		}
		p := start[next]
		next++
		m.mu.Lock()
		m.stats.Probing--
		p.w.busy, p.w.probing = false, false
		m.take(p, now, now, nil)
		m.workers.Release(1)
		m.mu.Unlock()
	}
	for range 2 * len(m.targets) { // all have begun
		step()
	}
	b.ReportAllocs()
	for b.Loop() {
		step()
	}
}
