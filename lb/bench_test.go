package lb

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

var benchSizes = []int{3, 100, 10_000}

// benched are the algorithms whose picks cost the same for any number of backends.
// LeastConn grows by its logarithm, Rendezvous in proportion.
var benched = []Algorithm{
	RoundRobin{}, WeightedRoundRobin{}, Random{}, WeightedRandom{}, Shuffle{},
	P2C{}, PeakEWMA{}, LeastConn{}, Maglev{}, Ring{}, SourceHash{}, Rendezvous{},
}

func benchList(n int) []Backend[int] {
	list := many(n)
	for i := range list {
		list[i].Weight = 1 + i%10
	}
	return list
}

// BenchmarkPick compares a pick, with the end of its lease, with the least that a
// round robin can cost: one atomic addition, one modulo, one index. Algorithms
// that look at the load do so at two more atomic additions and the addresses of
// two backends, so their floor is that of random access.
//
//	go test -run - -bench Pick -count 10 ./lb
func BenchmarkPick(b *testing.B) {
	for _, n := range benchSizes {
		list := benchList(n)
		floor := make([]int, n)
		loads := make([]*load, n)
		for i := range list {
			floor[i], loads[i] = i, new(load)
		}
		sum := 0
		b.Run("floor/"+sizeName(n), func(b *testing.B) {
			var turn atomic.Uint64
			for b.Loop() {
				sum += floor[turn.Add(1)%uint64(len(floor))]
			}
		})
		b.Run("floorload/"+sizeName(n), func(b *testing.B) {
			var turn atomic.Uint64
			for b.Loop() {
				r := mix64(turn.Add(1))
				x, y := loads[scale32(uint32(r), n)], loads[scale32(uint32(r>>32), n)]
				if y.open.Load() < x.open.Load() {
					x = y
				}
				x.open.Add(1)
				x.open.Add(^uint64(0))
			}
		})
		for _, alg := range benched {
			bal, err := New(Config{Algorithm: alg}, list...)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(alg.Name()+"/"+sizeName(n), func(b *testing.B) {
				b.ReportAllocs()
				key := uint64(0)
				for b.Loop() {
					key++
					l, _ := bal.Pick(key)
					sum += l.Value()
					l.Done(epoch, Result{Latency: time.Millisecond})
				}
			})
		}
		_ = sum
	}
}

// BenchmarkPickParallel is BenchmarkPick by as many goroutines as there are
// processors.
func BenchmarkPickParallel(b *testing.B) {
	for _, n := range benchSizes {
		for _, alg := range benched {
			bal, err := New(Config{Algorithm: alg}, benchList(n)...)
			if err != nil {
				b.Fatal(err)
			}
			var stream atomic.Uint64
			b.Run(fmt.Sprint(alg.Name(), "/", sizeName(n)), func(b *testing.B) {
				b.RunParallel(func(pb *testing.PB) {
					key := stream.Add(1 << 32)
					for pb.Next() {
						key++
						l, _ := bal.Pick(key)
						l.Done(epoch, Result{Latency: time.Millisecond})
					}
				})
			})
		}
	}
}

// BenchmarkSet is one rebuild of a list of which one member changed. The floor is a
// copy of the list.
func BenchmarkSet(b *testing.B) {
	for _, n := range benchSizes {
		list := benchList(n)
		b.Run("floor/"+sizeName(n), func(b *testing.B) {
			var kept atomic.Pointer[[]Backend[int]]
			for b.Loop() {
				c := make([]Backend[int], n)
				copy(c, list)
				kept.Store(&c)
			}
		})
		for _, alg := range benched {
			bal, err := New(Config{Algorithm: alg}, list...)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(alg.Name()+"/"+sizeName(n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					list[0].State ^= Down
					if err := bal.Set(list...); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkSticky is a pick for a key that is known; the floor is the same balancer
// without the table.
func BenchmarkSticky(b *testing.B) {
	for _, n := range benchSizes {
		bal, err := New(Config{}, benchList(n)...)
		if err != nil {
			b.Fatal(err)
		}
		s, err := NewSticky(bal, 1<<16)
		if err != nil {
			b.Fatal(err)
		}
		key := uint64(0)
		b.Run("floor/"+sizeName(n), func(b *testing.B) {
			for b.Loop() {
				key++
				_, _ = bal.Pick(key % 10_000)
			}
		})
		b.Run("known/"+sizeName(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				key++
				_, _ = s.Pick(key % 10_000)
			}
		})
	}
}
