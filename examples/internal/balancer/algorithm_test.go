package balancer

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each algorithm that the file may name serves.
func TestAlgorithms(t *testing.T) {
	a, b := serve(t, "a"), serve(t, "b")
	names := append(slices.Sorted(maps.Keys(algorithms)), "")
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			r := start(t, Config{Backends: addresses(a, b), Algorithm: name, Check: once, Grace: time.Hour})
			r.await(t, a.address, true)
			r.await(t, b.address, true)
			got := map[string]int{}
			for range 4 {
				got[r.name(t)]++
			}
			switch name {
			case "roundrobin", "weightedroundrobin", "":
				require.Equal(t, map[string]int{"a": 2, "b": 2}, got)
			case "first":
				require.Equal(t, map[string]int{"a": 4}, got)
			case "source", "maglev":
				require.Len(t, got, 1, "all come from one address")
			}
			r.stop()
			require.EqualValues(t, 4, r.Status().Conns.Served)
		})
	}
}
