package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/lastbeat/lastbeat/health"
)

// prober builds what carries out a probe. The node has a redirect if p needs one.
func (n *Node) prober(p Probe) (health.Prober, error) {
	switch {
	case p.HTTP != "":
		return health.NewHTTP(health.HTTPConfig{URL: p.HTTP, SkipVerify: true})
	case p.TCP != "":
		return health.NewTCP(health.TCPConfig{Address: p.TCP})
	case p.Redirect:
		return health.Func(n.redirect.verify), nil
	case len(p.All) > 0:
		parts, err := n.probers(p.All)
		return health.Func(parts.all), err
	}
	parts, err := n.probers(p.Any)
	return health.Func(parts.any), err
}

func (n *Node) probers(list []Probe) (parts probers, err error) {
	for _, p := range list {
		part, e := n.prober(p)
		parts, err = append(parts, part), errors.Join(err, e)
	}
	return parts, err
}

// probers are carried out at once, so that one that is silent until the timeout
// leaves the others theirs.
type probers []health.Prober

// all succeeds when every part does. A part that is bad outweighs one that could
// not be probed: all of them can't be good any more.
func (p probers) all(ctx context.Context) error {
	bad, local := p.probe(ctx, func(error) bool { return false })
	switch {
	case len(bad) > 0:
		return errors.New(oneLine(bad))
	case len(local) > 0:
		return unable(local)
	}
	return nil
}

// any succeeds when one part does, without waiting for the others. If none does,
// one that could not be probed might have.
func (p probers) any(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	good := false
	bad, local := p.probe(ctx, func(err error) bool {
		if err == nil && !good {
			good = true
			cancel()
		}
		return good
	})
	switch {
	case good:
		return nil
	case len(local) > 0:
		return unable(local)
	}
	return errors.New(oneLine(bad))
}

// probe sorts the errors of all parts. It calls done after each, never twice at
// once; from the first true on, errors are not kept.
func (p probers) probe(ctx context.Context, done func(error) bool) (bad, local []error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, part := range p {
		wg.Go(func() {
			err := part.Probe(ctx)
			mu.Lock()
			defer mu.Unlock()
			switch outcome := health.Classify(err); {
			case done(err), outcome == health.Good:
			case outcome == health.Bad:
				bad = append(bad, err)
			default:
				local = append(local, err)
			}
		})
	}
	wg.Wait()
	return bad, local
}

// unable is the error of a probe of which parts could not be made.
func unable(local []error) error { return fmt.Errorf("%w: %s", health.ErrLocal, oneLine(local)) }

func oneLine(errs []error) string {
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = err.Error()
	}
	slices.Sort(texts) // parts end in any order
	return strings.Join(texts, "; ")
}
