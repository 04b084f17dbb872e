package node

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lastbeat/lastbeat/health"
	"github.com/lastbeat/lastbeat/vrrp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sound is an instance without fault.
func sound() Instance {
	return Instance{
		Name: "A", Interface: "eth0", VRID: 1, Source: netip.MustParseAddr("192.0.2.1"),
		Peers: []netip.Addr{netip.MustParseAddr("192.0.2.2")}, Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.9/24")},
	}
}

// scripted makes a node whose checks answer what the test says, by name.
func scripted(t *testing.T, config Config, answers map[string]error) *Node {
	t.Helper()
	for name := range answers {
		config.Checks = append(config.Checks, Check{Name: name, Probe: Probe{TCP: "localhost:1"}})
	}
	n, err := New(config, nil)
	require.NoError(t, err)
	for _, c := range n.config.Checks {
		probe := health.Func(func(context.Context) error { return answers[c.Name] })
		require.NoError(t, n.monitor.Update(health.Target{Key: c.Name, Prober: probe, Config: c.health()}))
	}
	return n
}

// A check counts for every instance that tracks it, with each one's weight.
func TestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := sound(), sound()
		b.Name, b.VRID, b.Addresses = "B", 2, []netip.Prefix{netip.MustParsePrefix("192.0.2.8/24")}
		a.Priority, a.Tracks = 40, map[string]int{"good": 20, "bad": 5}
		b.Priority, b.Tracks = 20, map[string]int{"good": 50, "bad": -10}
		n := scripted(t, Config{Instances: []Instance{a, b}}, map[string]error{"good": nil, "bad": errors.New("no")})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- n.monitor.Run(ctx) }()
		go func() { n.reportAll(ctx); done <- nil }()
		time.Sleep(time.Second)
		synctest.Wait()
		require.EqualValues(t, 60, n.routers["A"].Status().Priority)
		require.EqualValues(t, 60, n.routers["B"].Status().Priority)

		// Nobody probes any more, but the reports go on: what they repeat has an end.
		s := n.Status(ctx)
		require.Equal(t, "online", s.Checks["good"].State)
		require.Equal(t, "offline", s.Checks["bad"].State)
		for _, v := range s.Checks {
			require.False(t, v.Since.IsZero())
			require.True(t, v.ValidUntil.After(time.Now()))
			require.NotEmpty(t, v.Reason)
		}
		stop()
		require.NoError(t, <-done)
		require.NoError(t, <-done)
		time.Sleep(time.Until(s.Checks["good"].ValidUntil))
		n.report()
		for _, v := range n.Status(t.Context()).Checks {
			require.Equal(t, "unknown", v.State)
			require.NotEmpty(t, v.Reason)
		}
		for _, r := range n.Status(t.Context()).Instances {
			require.Equal(t, vrrp.Unknown.String(), r.State)
			require.NotEmpty(t, r.Reason)
			require.Equal(t, "unknown", r.Addresses.State)
		}
	})
}

// What several probes say together, when some can't be made.
func TestAllAny(t *testing.T) {
	good := health.Func(func(context.Context) error { return nil })
	bad := health.Func(func(context.Context) error { return errors.New("refused") })
	local := health.Func(func(context.Context) error { return health.ErrLocal })
	silent := health.Func(func(ctx context.Context) error { <-ctx.Done(); return errors.New("timed out") })
	for name, c := range map[string]struct {
		parts    probers
		all, any health.Outcome
	}{
		"good":            {probers{good, good}, health.Good, health.Good},
		"bad":             {probers{bad, bad}, health.Bad, health.Bad},
		"good, bad":       {probers{good, bad}, health.Bad, health.Good},
		"bad, local":      {probers{bad, local}, health.Bad, health.LocalError},
		"local, bad":      {probers{local, bad}, health.Bad, health.LocalError},
		"good, local":     {probers{good, local}, health.LocalError, health.Good},
		"silent, good":    {probers{silent, good}, health.Bad, health.Good},
		"all three":       {probers{local, good, bad}, health.Bad, health.Good},
		"silent for ever": {probers{silent, silent}, health.Bad, health.Bad},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				judge := func(probe func(context.Context) error) health.Outcome {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					err := probe(ctx)
					if err != nil {
						require.NotContains(t, err.Error(), "\n")
					}
					return health.Classify(err)
				}
				require.Equal(t, c.all, judge(c.parts.all))
				start := time.Now()
				require.Equal(t, c.any, judge(c.parts.any))
				if c.any == health.Good {
					require.Zero(t, time.Since(start), "a good part is not held up by a silent one")
				}
			})
		})
	}
}
