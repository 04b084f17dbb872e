package balancer

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestMaxConn(t *testing.T) {
	for name, c := range map[string]struct {
		want  MaxConn
		limit uint64
		n     int
		note  string
		err   string
	}{
		"auto with room":       {Auto, 1 << 20, 40_000, "", ""},
		"auto without a limit": {Auto, math.MaxUint64, 40_000, "", ""},
		"auto, just enough":    {Auto, 249_999, 40_000, "", ""},
		"auto, one too few":    {Auto, 249_998, 39_999, "maxconn 39,999 of 40,000: descriptor limit 249,998", ""},
		"auto cut":             {Auto, 20_000, 3_200, "maxconn 3,200 of 40,000: descriptor limit 20,000", ""},
		"auto on a default":    {Auto, 1_024, 160, "maxconn 160 of 40,000: descriptor limit 1,024", ""},
		"auto, none fits":      {Auto, 69, 0, "", "balancer: maxconn auto: descriptor limit 69 has no room for a connection: raise the limit, as by ulimit -n 1024"},
		"one fits":             {1, 70, 1, "", ""},
		"number":               {3_200, 20_000, 3_200, "", ""},
		"number, none fits":    {1, 10, 0, "", "balancer: maxconn 1: descriptor limit 10 has no room for a connection: raise the limit, as by ulimit -n 1024"},
		"number above":         {40_000, 20_000, 0, "", "balancer: maxconn 40,000: descriptor limit 20,000 has room for 3,200: lower it to 3200 or auto, or raise the limit by ulimit -n 249999"},
		"negative":             {-1, 20_000, 0, "", "balancer: maxconn -1: no number of connections: give 1 or more, or auto"},
	} {
		t.Run(name, func(t *testing.T) {
			n, note, err := maxConn(c.want, c.limit)
			if c.err != "" {
				require.EqualError(t, err, c.err)
				require.ErrorAs(t, err, new(*Error))
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.n, n)
			require.Equal(t, c.note, note)
		})
	}
}

// What the error tells the user to set is enough, and one less is not.
func TestNeedIsLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, math.MaxInt32-1).Draw(t, "n")
		require.GreaterOrEqual(t, room(need(n)), n)
		require.Less(t, room(need(n)-1), n)
	})
}

func TestThousands(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 7: "7", 999: "999", 1000: "1,000", 20_000: "20,000", 999_999: "999,999", 1_234_567: "1,234,567"} {
		require.Equal(t, want, thousands(n))
	}
}
