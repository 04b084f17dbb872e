package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/lastbeat/lastbeat/health"
	"github.com/lastbeat/lastbeat/nft"
)

// redirect keeps the rule in the kernel while the balancer has a live backend.
type redirect struct {
	cfg   Redirect
	table *nft.Table
	judge *health.Machine // of the balancer's answers
	alive func() bool     // the balancer's answer
	log   *slog.Logger

	mu     sync.Mutex
	wanted bool
	err    error // of the last change or renewal
}

func newRedirect(cfg Redirect, alive func() bool, log *slog.Logger) (*redirect, error) {
	table, err := nft.New(nft.Options{})
	if err != nil {
		return nil, err
	}
	judge, err := health.NewMachine(health.Config{Interval: cfg.Interval, Rise: cfg.Rise, Fall: cfg.Fall})
	if err != nil {
		return nil, fmt.Errorf("redirect: %w", err)
	}
	return &redirect{cfg: cfg, table: table, judge: judge, alive: alive, log: log}, nil
}

var errNoBackend = errors.New("the balancer has no live backend")

// run asks, and puts the rule in or takes it out, until ctx ends. Then nothing
// of it is left.
func (r *redirect) run(ctx context.Context) error {
	ask := time.NewTicker(r.cfg.Interval)
	renew := time.NewTicker(r.table.RenewEvery())
	defer ask.Stop()
	defer renew.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			r.set(false, nil)
			return r.table.Remove(last)
		case <-ask.C:
			r.ask(ctx)
		case <-renew.C:
			r.renew(ctx)
		}
	}
}

// ask judges one answer of the balancer.
func (r *redirect) ask(ctx context.Context) {
	result := health.Result{Outcome: health.Good}
	if !r.alive() {
		result = health.Result{Outcome: health.Bad, Detail: errNoBackend.Error()}
	}
	r.judge.Observe(time.Now(), result)
	want := r.judge.At(time.Now()).State == health.Online
	r.mu.Lock()
	had := r.wanted
	r.mu.Unlock()
	if want != had {
		r.apply(ctx, want)
	}
}

// apply puts the rule in, or empties the table so that open connections live on.
func (r *redirect) apply(ctx context.Context, stand bool) {
	var cfg nft.Config
	if stand {
		cfg = r.cfg.config()
	}
	res, err := r.table.Apply(ctx, cfg)
	r.set(stand, err)
	switch {
	case err != nil:
		r.log.Error("redirect", "stands", false, "err", err)
	case stand:
		r.log.Info("redirect", "stands", true, "rules", len(cfg.Redirects))
		for _, c := range res.Conflicts {
			r.log.Warn("redirect conflict", "with", c.String())
		}
	default:
		r.log.Info("redirect", "stands", false, "reason", errNoBackend.Error())
	}
}

// renew keeps the rule from ending. A rule that somebody changed is put right.
func (r *redirect) renew(ctx context.Context) {
	r.mu.Lock()
	wanted := r.wanted
	r.mu.Unlock()
	if !wanted {
		return
	}
	if err := r.table.Renew(ctx); err != nil && ctx.Err() == nil {
		r.log.Warn("redirect repaired", "reason", err)
		r.apply(ctx, true)
	}
}

func (r *redirect) set(wanted bool, err error) {
	r.mu.Lock()
	r.wanted, r.err = wanted, err
	r.mu.Unlock()
}

// verify is the check that the kernel has the rule as it should be.
func (r *redirect) verify(ctx context.Context) error {
	r.mu.Lock()
	wanted, err := r.wanted, r.err
	r.mu.Unlock()
	switch {
	case err != nil:
		return err
	case !wanted:
		return errNoBackend
	}
	return r.table.Verify(ctx)
}
