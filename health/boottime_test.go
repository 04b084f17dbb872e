package health

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSuspendWatch(t *testing.T) {
	const ms = time.Millisecond
	var w SuspendWatch
	for i, step := range []struct{ ahead, want time.Duration }{
		{3600_000 * ms, 0}, // it slept before we began
		{3600_000 * ms, 0},
		{3600_049 * ms, 0}, // noise
		{3599_990 * ms, 0},
		{3600_050 * ms, 50 * ms},
		{3600_060 * ms, 0},
		{3600_080 * ms, 0},
		{3600_110 * ms, 60 * ms}, // short naps add up
		{7200_110 * ms, 3600_000 * ms},
		{7200_110 * ms, 0},
		{0, 0}, // nonsense does no harm
		{7200_110 * ms, 0},
	} {
		require.Equal(t, step.want, w.Observe(step.ahead), "step %d", i)
	}
}

func TestBootAhead(t *testing.T) {
	ahead, err := BootAhead()
	if runtime.GOOS != "linux" {
		require.True(t, errors.Is(err, errors.ErrUnsupported))
		return
	}
	require.NoError(t, err)
	require.Greater(t, ahead, -time.Second, "boot time is never behind, but for the time that reading takes")
}
