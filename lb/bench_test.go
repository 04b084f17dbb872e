package lb

import (
	"fmt"
	"sync/atomic"
	"testing"
)

// BenchmarkPick compares a pick with the least that a round robin can cost: one
// atomic addition, one modulo, one index.
//
//	go test -run - -bench Pick -count 10 ./lb
func BenchmarkPick(b *testing.B) {
	for _, n := range []int{3, 100, 10_000} {
		list := make([]Backend[int], n)
		floor := make([]int, n)
		for i := range list {
			list[i] = Backend[int]{Key: fmt.Sprint(i), Value: i, Weight: 1 + i%10}
			floor[i] = i
		}
		sum := 0
		b.Run("floor/"+sizeName(n), func(b *testing.B) {
			var turn atomic.Uint64
			for b.Loop() {
				sum += floor[turn.Add(1)%uint64(len(floor))]
			}
		})
		for _, alg := range []Algorithm{RoundRobin{}, WeightedRoundRobin{}} {
			bal, err := New(Config{Algorithm: alg}, list...)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(alg.Name()+"/"+sizeName(n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					l, _ := bal.Pick(0)
					sum += l.Value()
				}
			})
		}
		_ = sum
	}
}

// BenchmarkSet is one rebuild of a list of which one member changed.
func BenchmarkSet(b *testing.B) {
	for _, alg := range []Algorithm{RoundRobin{}, WeightedRoundRobin{}} {
		for _, n := range []int{3, 100, 10_000} {
			list := make([]Backend[int], n)
			for i := range list {
				list[i] = Backend[int]{Key: fmt.Sprint(i), Value: i, Weight: 1 + i%10}
			}
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
