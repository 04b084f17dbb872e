// Package examples_test shows that the packages fit together without knowing each
// other: what one demands as an interface, another offers as a method.
package examples_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/health"
	"github.com/lastbeat/lastbeat/lb"
)

// order is what a manager of agents wants from an order of hosts. It has only
// predeclared types and composites of them, so that the two need not import each
// other.
type order interface {
	Name() string
	Arrange(hosts []string, index int, key string) []string
	Diff(want, got []string) string
}

var (
	_ order = lb.Static{}
	_ order = lb.RoundRobin{}
	_ order = lb.Shuffle{}

	_ health.Prober = (*health.TCP)(nil)
	_ health.Prober = (*health.HTTP)(nil)
	_ health.Prober = health.Func(nil)
)

// The events of health drive lb: a backend gets connections from its first good
// probe to its last lost chance.
func TestHealthDrivesBalancer(t *testing.T) {
	balancer, err := lb.New(lb.Config{}, lb.Backend[int]{Key: "a", Value: 1, Weight: 1, State: lb.Down})
	require.NoError(t, err)

	type step struct {
		state health.State
		err   error // of a pick after that event
	}
	steps := make(chan step)
	bad := errors.New("status 500")
	answers := make(chan error)
	monitor, err := health.NewMonitor(health.MonitorConfig{
		NoSpread: true,
		OnEvent: func(e health.Event) {
			err := balancer.Update(func(all []lb.Backend[int]) []lb.Backend[int] {
				for i := range all {
					all[i].State = lb.Down
					if all[i].Key == e.Key && e.New.State == health.Online {
						all[i].State = lb.Up
					}
				}
				return all
			})
			if err == nil {
				_, err = balancer.Pick(0)
			}
			steps <- step{e.New.State, err}
		},
	}, health.Target{
		Key:    "a",
		Config: health.Config{Interval: time.Millisecond, Timeout: time.Minute, Fall: 2},
		Prober: health.Func(func(ctx context.Context) error {
			select {
			case err := <-answers:
				return err
			case <-ctx.Done():
				return fmt.Errorf("%w: %w", health.ErrLocal, ctx.Err())
			}
		}),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- monitor.Run(ctx) }()

	_, err = balancer.Pick(0)
	require.ErrorIs(t, err, lb.ErrEmpty, "nothing is known yet")
	answers <- nil
	require.Equal(t, step{health.Online, nil}, <-steps)
	answers <- bad
	answers <- bad
	require.Equal(t, step{health.Offline, lb.ErrEmpty}, <-steps)
	answers <- nil
	require.Equal(t, step{health.Online, nil}, <-steps)
	cancel()
	require.NoError(t, <-ended)
}
