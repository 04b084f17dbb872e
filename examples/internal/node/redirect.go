package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/lastbeat/lastbeat/health"
	"github.com/lastbeat/lastbeat/nft"
)

// table is what a redirect needs of the kernel. [nft.Table] is it.
type table interface {
	Apply(ctx context.Context, cfg nft.Config) (nft.Result, error)
	Renew(ctx context.Context) error
	RenewEvery() time.Duration
	Verify(ctx context.Context) error
	Remove(ctx context.Context) error
	Counters(ctx context.Context) ([]nft.Counters, error)
	Status() nft.Status
}

// redirect keeps the rule in the kernel while the balancer has a live backend.
type redirect struct {
	cfg   Redirect // complete
	table table
	alive func() bool // the balancer's answer
	log   *slog.Logger

	mu     sync.Mutex
	judge  *health.Machine // of the balancer's answers
	wanted bool
	since  time.Time // of wanted
	asked  time.Time // when the balancer was last asked
	err    error     // of the last change
}

func newRedirect(cfg Redirect, t table, alive func() bool, log *slog.Logger) (*redirect, error) {
	judge, err := health.NewMachine(cfg.health())
	if err != nil {
		return nil, healthFaults("redirect", err)
	}
	return &redirect{cfg: cfg, table: t, judge: judge, alive: alive, log: log}, nil
}

var errNoBackend = errors.New("the balancer has no live backend")

// run asks, and puts the rule in or takes it out, until ctx ends. Then nothing
// of it is left.
func (r *redirect) run(ctx context.Context) error {
	ask := time.NewTicker(r.cfg.Interval)
	renew := time.NewTicker(r.table.RenewEvery())
	defer ask.Stop()
	defer renew.Stop()
	r.begin(time.Now())
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ask.C:
			r.ask(ctx)
		case <-renew.C:
			r.renew(ctx)
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	r.want(false, nil)
	return r.table.Remove(last)
}

func (r *redirect) begin(now time.Time) {
	r.mu.Lock()
	r.since, r.asked = now, now
	r.mu.Unlock()
}

// ask judges one answer of the balancer. What the last change could not do is
// tried again.
func (r *redirect) ask(ctx context.Context) {
	result := health.Result{Outcome: health.Good}
	if !r.alive() {
		result = health.Result{Outcome: health.Bad, Detail: errNoBackend.Error()}
	}
	now := time.Now()
	r.mu.Lock()
	r.judge.Observe(now, result)
	r.asked = now
	want := r.judge.At(now).State == health.Online
	settled := want == r.wanted && r.err == nil
	r.mu.Unlock()
	if !settled {
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
	r.want(stand, err)
	switch {
	case ctx.Err() != nil: // run takes it out
	case err != nil:
		r.log.Error("redirect", "wanted", stand, "err", err)
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
		return // it ends by itself
	}
	if err := r.table.Renew(ctx); err != nil && ctx.Err() == nil {
		r.log.Warn("redirect repaired", "reason", err)
		r.apply(ctx, true)
	}
}

func (r *redirect) want(stand bool, err error) {
	r.mu.Lock()
	if r.wanted != stand {
		r.since = time.Now()
	}
	r.wanted, r.err = stand, err
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

// status tells whether the rule stands: what the kernel said if it should, else
// what the balancer's answers led to, which is true until two were missed.
func (r *redirect) status(now time.Time) Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	end := r.asked.Add(2*r.cfg.Interval + time.Second)
	switch {
	case r.wanted:
		st := r.table.Status()
		v := Verdict{st.State.String(), st.Since, st.ValidUntil, st.Reason.String()}
		if r.err != nil {
			v.Reason += ": " + r.err.Error()
		}
		return v
	case r.asked.IsZero():
		return Verdict{State: "unknown", Reason: "not started"}
	case !now.Before(end):
		return Verdict{State: "unknown", Since: end, Reason: "the balancer was not asked in time"}
	}
	return Verdict{"absent", r.since, end, r.judge.At(now).Reason.String()}
}
