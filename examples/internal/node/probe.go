package node

import (
	"context"
	"errors"
	"strings"

	"github.com/lastbeat/lastbeat/health"
)

// prober builds what carries out a probe.
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
		return health.Func(func(ctx context.Context) error { return allOf(ctx, parts) }), err
	}
	parts, err := n.probers(p.Any)
	return health.Func(func(ctx context.Context) error { return anyOf(ctx, parts) }), err
}

func (n *Node) probers(list []Probe) (out []health.Prober, err error) {
	for _, p := range list {
		prober, e := n.prober(p)
		out, err = append(out, prober), errors.Join(err, e)
	}
	return out, err
}

// allOf succeeds when every part does.
func allOf(ctx context.Context, parts []health.Prober) error {
	for _, p := range parts {
		if err := p.Probe(ctx); err != nil {
			return err
		}
	}
	return nil
}

// anyOf succeeds when one part does.
func anyOf(ctx context.Context, parts []health.Prober) error {
	var why []string
	for _, p := range parts {
		err := p.Probe(ctx)
		if err == nil {
			return nil
		}
		why = append(why, err.Error())
	}
	return errors.New(strings.Join(why, "; "))
}
