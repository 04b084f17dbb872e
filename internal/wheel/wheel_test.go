package wheel

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// popAll pops all that is due.
func popAll(w *Wheel, now time.Duration) []ID {
	var ids []ID
	for id, ok := w.Pop(now); ok; id, ok = w.Pop(now) {
		ids = append(ids, id)
	}
	return ids
}

func TestExactTimes(t *testing.T) {
	for _, at := range []time.Duration{
		-time.Hour, 0, 1, tick - 1, tick, tick + 1, 255 * tick, 256 * tick, 256*tick + 1, 257 * tick,
		65535 * tick, 65536 * tick, time.Hour, 24*time.Hour + 123456789, 50 * 24 * time.Hour, 30000 * time.Hour, math.MaxInt64,
	} {
		w := New()
		id := w.Add()
		w.Set(id, at)
		got, ok := w.At(id)
		require.True(t, ok)
		require.Equal(t, at, got)
		_, ok = w.Pop(at - 1)
		require.False(t, ok, "%v: 1 ns early", at)
		// Only Next decides when to look: it must lead there in a few steps.
		steps, now := 0, time.Duration(0)
		for {
			next, ok := w.Next()
			require.True(t, ok)
			require.LessOrEqual(t, next, max(at, 0))
			now = max(now, next)
			if _, due := w.Pop(now); due {
				break
			}
			steps++
			require.Less(t, steps, 4000, "%v: Next leads nowhere", at)
		}
		require.Equal(t, max(at, 0), now)
		if at < 49*24*time.Hour {
			require.LessOrEqual(t, steps, rings, "%v", at)
		}
		_, ok = w.Next()
		require.False(t, ok)
		_, ok = w.At(id)
		require.False(t, ok)
	}
}

func TestOrder(t *testing.T) {
	w := New()
	var want []ID
	for i := range 1000 {
		id := w.Add()
		w.Set(id, time.Duration(i)*977*time.Millisecond)
		want = append(want, id)
	}
	require.Equal(t, 1000, w.Len())
	require.Equal(t, want, popAll(w, time.Hour))
	require.Zero(t, w.Len())
}

func TestMoveCancelDrop(t *testing.T) {
	w := New()
	a, b, c := w.Add(), w.Add(), w.Add()
	for _, id := range []ID{a, b, c} {
		w.Cancel(id) // not set: harmless
		w.Set(id, time.Second)
	}
	w.Set(a, time.Hour)
	w.Set(b, time.Millisecond)
	w.Cancel(c)
	w.Cancel(c)
	require.Equal(t, 2, w.Len())
	require.Equal(t, []ID{b}, popAll(w, time.Minute))
	w.Drop(a)
	require.Zero(t, w.Len())
	w.Drop(c)
	require.Equal(t, c, w.Add(), "the last given back is given out first")
	require.Equal(t, a, w.Add())
	require.Equal(t, ID(3), w.Add())
	_, set := w.At(a)
	require.False(t, set)
}

// A wheel that was not looked at for long still finds everything, and may be asked
// about the past.
func TestLate(t *testing.T) {
	w := New()
	a, b := w.Add(), w.Add()
	w.Set(a, 5*time.Second)
	w.Set(b, 9*time.Hour)
	require.Equal(t, []ID{a, b}, popAll(w, 1000*24*time.Hour))
	w.Set(a, time.Second) // long ago
	require.Equal(t, []ID{a}, popAll(w, time.Second))
	w.Set(a, 2000*24*time.Hour)
	require.Empty(t, popAll(w, time.Second))
	require.Equal(t, []ID{a}, popAll(w, 2000*24*time.Hour))
}

// Against a map that is searched: any sequence of calls gives the same entries.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, model := New(), map[ID]time.Duration{}
		var ids []ID
		now := time.Duration(0)
		// Steps of all sizes, so that all rings and their borders are met.
		span := rapid.Custom(func(t *rapid.T) time.Duration {
			shift := rapid.IntRange(0, 44).Draw(t, "magnitude")
			d := time.Duration(rapid.Int64Range(0, 2<<shift).Draw(t, "span"))
			if rapid.Bool().Draw(t, "whole") {
				d = d / (256 * tick) * (256 * tick)
			}
			return d
		})
		pick := func() ID { return rapid.SampledFrom(ids).Draw(t, "entry") }
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch op := rapid.IntRange(0, 9).Draw(t, "op"); {
			case op == 0 || len(ids) == 0:
				id := w.Add()
				require.NotContains(t, ids, id)
				ids = append(ids, id)
			case op <= 5:
				id, at := pick(), now+span.Draw(t, "ahead")-tick
				w.Set(id, at)
				model[id] = at
			case op == 6:
				id := pick()
				w.Cancel(id)
				delete(model, id)
			default:
				now += span.Draw(t, "pass")
				for id, ok := w.Pop(now); ok; id, ok = w.Pop(now) {
					at, set := model[id]
					require.True(t, set, "%v is not set", id)
					require.LessOrEqual(t, at, now)
					delete(model, id)
				}
				for id, at := range model {
					require.Greater(t, at, now, "%v was left behind", id)
				}
			}
			require.Equal(t, len(model), w.Len())
			first, any := time.Duration(math.MaxInt64), false
			for id, at := range model {
				got, set := w.At(id)
				require.True(t, set)
				require.Equal(t, at, got)
				first, any = min(first, at), true
			}
			next, ok := w.Next()
			require.Equal(t, any, ok)
			if ok {
				require.LessOrEqual(t, next, max(first, now), "Next is not later than the first entry")
			}
		}
		for id, ok := w.Pop(math.MaxInt64); ok; id, ok = w.Pop(math.MaxInt64) {
			require.Contains(t, model, id)
			delete(model, id)
		}
		require.Empty(t, model)
	})
}

func TestNoAllocations(t *testing.T) {
	w := New()
	var ids [1000]ID
	for i := range ids {
		ids[i] = w.Add()
	}
	now := time.Duration(0)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for i, id := range ids {
			w.Set(id, now+time.Duration(i)*13*time.Millisecond)
		}
		now += 5 * time.Second
		for _, ok := w.Pop(now); ok; _, ok = w.Pop(now) {
		}
	}))
}

// 100,000 entries every 5 s, looked at every millisecond: one operation is a
// firing, with the move to its next time.
func BenchmarkFiring(b *testing.B) {
	w := New()
	const n, interval = 100_000, 5 * time.Second
	for i := range n {
		w.Set(w.Add(), time.Duration(i)*interval/n)
	}
	b.ReportAllocs()
	now, fired := time.Duration(0), 0
	for b.Loop() {
		id, ok := w.Pop(now)
		for !ok {
			now += tick
			w.Next()
			id, ok = w.Pop(now)
		}
		w.Set(id, now+interval)
		fired++
	}
}
