package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/nft"
)

// kernel stands for the table in the kernel.
type kernel struct {
	mu      sync.Mutex
	rules   int   // -1: there is no table
	refuses error // what Apply and Remove answer
	applied int   // calls of Apply
	renewed int
	status  nft.Status
}

func (k *kernel) Apply(ctx context.Context, cfg nft.Config) (nft.Result, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.applied++
	if err := errors.Join(ctx.Err(), k.refuses); err != nil {
		return nft.Result{}, err
	}
	k.rules = len(cfg.Redirects)
	k.status = nft.Status{State: nft.Installed, Since: time.Now(), ValidUntil: time.Now().Add(6 * time.Second), Reason: nft.Applied}
	return nft.Result{}, nil
}

func (k *kernel) Renew(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.renewed++
	if k.rules <= 0 {
		return nft.ErrNotInstalled
	}
	return ctx.Err()
}

func (k *kernel) Verify(context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.rules < 0 {
		return nft.ErrNotInstalled
	}
	return nil
}

func (k *kernel) Remove(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := errors.Join(ctx.Err(), k.refuses); err != nil {
		return err
	}
	k.rules = -1
	return nil
}

func (k *kernel) RenewEvery() time.Duration                        { return 2 * time.Second }
func (k *kernel) Counters(context.Context) ([]nft.Counters, error) { return nil, nft.ErrNotApplied }
func (k *kernel) Status() nft.Status                               { k.mu.Lock(); defer k.mu.Unlock(); return k.status }
func (k *kernel) set(f func())                                     { k.mu.Lock(); defer k.mu.Unlock(); f() }
func (k *kernel) get(f func(k *kernel) int) int                    { k.mu.Lock(); defer k.mu.Unlock(); return f(k) }

// answers is the balancer.
type answers struct {
	mu    sync.Mutex
	alive bool
	asked int
}

func (a *answers) ask() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	return a.alive
}

func (a *answers) set(alive bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.alive, a.asked = alive, 0
}

func (a *answers) count() int { a.mu.Lock(); defer a.mu.Unlock(); return a.asked }

// redirecting runs a redirect in virtual time. stop ends it.
func redirecting(t *testing.T) (r *redirect, k *kernel, a *answers, stop func() error) {
	example, err := Parse([]byte(example(t)))
	require.NoError(t, err)
	k, a = &kernel{rules: -1}, &answers{}
	r, err = newRedirect(example.Redirect.complete(), k, a.ask, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	require.Equal(t, "unknown", r.status(time.Now()).State)
	go func() { ended <- r.run(ctx) }()
	synctest.Wait()
	return r, k, a, func() error { cancel(); return <-ended }
}

func rules(k *kernel) int { return k.rules }

// askedUntil lets time pass until the kernel has so many rules, and tells how many
// answers that took.
func askedUntil(k *kernel, a *answers, want int) int {
	for k.get(rules) != want {
		time.Sleep(time.Second)
		synctest.Wait()
	}
	return a.count()
}

// The rule goes in after 3 good answers and out after 11 bad ones, 6 s apart.
func TestRedirectCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, k, a, stop := redirecting(t)
		require.Equal(t, "absent", r.status(time.Now()).State)
		a.set(true)
		start := time.Now()
		require.Equal(t, 3, askedUntil(k, a, 1))
		require.Equal(t, 18*time.Second, time.Since(start))
		require.NoError(t, r.verify(t.Context()))
		require.Equal(t, "installed", r.status(time.Now()).State)

		a.set(false)
		require.Equal(t, 11, askedUntil(k, a, 0), "the table stays, empty, for open connections")
		require.ErrorIs(t, r.verify(t.Context()), errNoBackend)
		v := r.status(time.Now())
		require.Equal(t, "absent", v.State)
		require.Equal(t, time.Now(), v.Since)
		require.Contains(t, v.Reason, errNoBackend.Error())

		// One good answer among bad ones counts for nothing, and the reverse.
		a.set(true)
		require.Equal(t, 3, askedUntil(k, a, 1))
		for range 5 {
			a.set(false)
			time.Sleep(60 * time.Second)
			a.set(true)
			time.Sleep(6 * time.Second)
			synctest.Wait()
			require.Equal(t, 1, k.get(rules))
		}
		require.NoError(t, stop())
		require.Equal(t, -1, k.get(rules))
		require.ErrorIs(t, r.verify(t.Context()), errNoBackend)
	})
}

// A rule that somebody deleted is back with the next renewal, and the check tells
// meanwhile. When it may not stand, nobody brings it back.
func TestRedirectRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, k, a, stop := redirecting(t)
		a.set(true)
		askedUntil(k, a, 1)
		k.set(func() { k.rules = -1 })
		require.ErrorIs(t, r.verify(t.Context()), nft.ErrNotInstalled)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.NoError(t, r.verify(t.Context()))

		a.set(false)
		askedUntil(k, a, 0)
		renewed := k.get(func(k *kernel) int { return k.renewed })
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, renewed, k.get(func(k *kernel) int { return k.renewed }))
		require.NoError(t, stop())
	})
}

// What the kernel refuses is tried again, and told.
func TestRedirectRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, k, a, stop := redirecting(t)
		full := errors.New("no room")
		k.set(func() { k.refuses = full })
		a.set(true)
		time.Sleep(18 * time.Second)
		synctest.Wait()
		require.ErrorIs(t, r.verify(t.Context()), full)
		require.Contains(t, r.status(time.Now()).Reason, "no room")
		k.set(func() { k.refuses = nil })
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.NoError(t, r.verify(t.Context()))

		// Taking it out is tried again as well.
		k.set(func() { k.refuses = full })
		a.set(false)
		time.Sleep(70 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, k.get(rules))
		k.set(func() { k.refuses = nil })
		time.Sleep(6 * time.Second)
		synctest.Wait()
		require.Equal(t, 0, k.get(rules))

		k.set(func() { k.refuses = full })
		require.ErrorIs(t, stop(), full, "what is left behind is told")
	})
}

// A reader who comes after it ended is told that nobody knows.
func TestRedirectExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, _, stop := redirecting(t)
		require.NoError(t, stop())
		v := r.status(time.Now())
		require.Equal(t, "absent", v.State)
		require.False(t, v.Since.IsZero())
		v = r.status(v.ValidUntil)
		require.Equal(t, "unknown", v.State)
		require.NotEmpty(t, v.Reason)
	})
}
