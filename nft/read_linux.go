package nft

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// read lists our table. Nothing foreign is decoded beyond the names of tables
// and chains.
func (k netlinkKernel) read(ctx context.Context, want layout) (state, error) {
	c, err := k.dial(ctx, 0, 0)
	if err != nil {
		return state{}, err
	}
	fail := func(err error) (state, error) {
		if errors.Is(err, unix.ENOENT) {
			// Deleted while we were reading it.
			return state{}, nil
		}
		return state{}, explain("read table inet "+want.table, err)
	}
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return fail(err)
	}
	have := state{chains: map[string]chainState{}, sets: map[string]setState{}}
	table := &nftables.Table{Name: want.table, Family: nftables.TableFamilyINet}
	for _, t := range tables {
		if t.Name == want.table {
			have.present, have.flags = true, t.Flags
		}
	}
	if !have.present {
		return state{}, nil
	}

	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return fail(err)
	}
	known := map[string]string{} // instructions to text
	for _, spec := range want.chains {
		for _, r := range spec.rules {
			known[describe(ruleExprs(r, 0))] = r.text()
		}
	}
	for _, chain := range chains {
		if chain.Table.Name != want.table {
			continue
		}
		cs := readChain(chain)
		rules, err := c.GetRules(table, chain)
		if err != nil {
			return fail(err)
		}
		for _, r := range rules {
			text := describe(r.Exprs)
			if ours, ok := known[text]; ok {
				text = ours
			}
			cs.rules = append(cs.rules, text)
		}
		have.chains[chain.Name] = cs
	}

	sets, err := c.GetSets(table)
	if err != nil {
		return fail(err)
	}
	for _, s := range sets {
		ss := setState{isMap: s.IsMap, shape: readShape(s), elems: map[string]elemState{}}
		elems, err := c.GetSetElements(s)
		if err != nil {
			return fail(err)
		}
		for _, e := range elems {
			es := elemState{value: string(e.Val), timeout: e.Timeout, expires: e.Expires}
			if e.Counter != nil {
				es.counted, es.packets, es.bytes = true, e.Counter.Packets, e.Counter.Bytes
			}
			ss.elems[string(e.Key)] = es
		}
		have.sets[s.Name] = ss
	}
	return have, nil
}

func readChain(c *nftables.Chain) chainState {
	if c.Hooknum == nil || c.Priority == nil {
		return chainState{}
	}
	cs := chainState{kind: string(c.Type), hook: hookText(*c.Hooknum), priority: int(*c.Priority), policy: "accept"}
	if c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop {
		cs.policy = "drop"
	}
	return cs
}

func hookText(h nftables.ChainHook) string {
	names := []string{"prerouting", "input", "forward", "output", "postrouting", "ingress"}
	if int(h) < len(names) {
		return names[h]
	}
	return fmt.Sprintf("hook %d", h)
}

// readShape must equal setShape for a set as we make it.
func readShape(s *nftables.Set) string {
	parts := []string{s.KeyType.Name}
	if s.IsMap {
		parts[0] += " : " + s.DataType.Name
	}
	for _, f := range []struct {
		on   bool
		name string
	}{
		{s.HasTimeout, "timeout"}, {s.Interval, "interval"}, {s.Constant, "constant"},
		{s.Dynamic, "dynamic"}, {s.Size != 0, fmt.Sprintf("size %d", s.Size)},
		{s.Timeout != 0, fmt.Sprintf("default timeout %v", s.Timeout)},
	} {
		if f.on {
			parts = append(parts, f.name)
		}
	}
	return strings.Join(parts, ", ")
}

func (k netlinkKernel) chains(ctx context.Context, ours string) ([]baseChain, error) {
	var found []baseChain
	for _, f := range []struct {
		family nftables.TableFamily
		name   string
	}{{nftables.TableFamilyINet, "inet"}, {nftables.TableFamilyIPv4, "ip"}, {nftables.TableFamilyIPv6, "ip6"}} {
		c, err := k.dial(ctx, 0, 0)
		if err != nil {
			return nil, err
		}
		chains, err := c.ListChainsOfTableFamily(f.family)
		if err != nil {
			return nil, explain("list chains of family "+f.name, err)
		}
		for _, chain := range chains {
			cs := readChain(chain)
			if cs.hook == "" || f.family == nftables.TableFamilyINet && chain.Table.Name == ours {
				continue
			}
			found = append(found, baseChain{f.name, chain.Table.Name, chain.Name, cs.kind, cs.hook, cs.priority, cs.policy == "drop"})
		}
	}
	return found, nil
}
