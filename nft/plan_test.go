package nft

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func testOptions() Options { return Options{}.withDefaults() }

func TestRuleCountIsConstant(t *testing.T) {
	for _, n := range []int{0, 5, 500, 5000} {
		p := newPlan(testOptions(), newLayout(testOptions(), Config{Redirects: manyRedirects(n)}), state{}, false)
		var chains, rules, sets, elems int
		for _, o := range p.ops {
			switch {
			case o.addChain != nil:
				chains++
			case o.addRule != nil:
				rules++
			case o.addSet != nil:
				sets++
			case o.elems != nil:
				elems += len(o.elems.elems)
			}
		}
		require.Equal(t, []int{4, 8, 8, 4 * n}, []int{chains, rules, sets, elems})
	}
}

// A list of elements is one netlink attribute with a 16-bit length:
// https://github.com/google/nftables/pull/303.
func TestElementsAreChunked(t *testing.T) {
	p := newPlan(testOptions(), newLayout(testOptions(), Config{Redirects: manyRedirects(5000)}), state{}, false)
	for _, o := range p.ops {
		if o.elems != nil {
			require.LessOrEqual(t, len(o.elems.elems), chunk)
			require.Less(t, o.size(), 1<<16)
		}
	}
}

func TestSplitKeepsOrderAndStructure(t *testing.T) {
	p := newPlan(testOptions(), newLayout(testOptions(), Config{Redirects: manyRedirects(3000)}), state{}, false)
	require.Len(t, split(p.ops, sizeOf(p.ops)), 1)
	for _, limit := range []int{1, 50_000, 100_000, 212_992, sizeOf(p.ops) - 1} {
		parts := split(p.ops, limit)
		var joined []op
		for i, part := range parts {
			require.NotEmpty(t, part)
			joined = append(joined, part...)
			for _, o := range part {
				require.False(t, i > 0 && o.elems == nil, "structure only in the first transaction")
			}
			if limit > 45_000 {
				require.LessOrEqual(t, sizeOf(part), limit)
			}
		}
		require.Equal(t, p.ops, joined)
	}
}

func TestPlanOrder(t *testing.T) {
	have := stateOf(newLayout(testOptions(), Config{Redirects: []Redirect{api4}}))
	p := newPlan(testOptions(), newLayout(testOptions(), Config{Redirects: []Redirect{dns4}}), have, false)
	var got []string
	for _, o := range p.ops {
		got = append(got, map[elemKind]string{elemAdd: "add to ", elemDelete: "delete from "}[o.elems.kind]+o.elems.set.String())
	}
	require.Equal(t, []string{
		"add to external4_packets", "add to local4_packets", "add to external4", "add to local4",
		"delete from local4", "delete from external4", "delete from local4_packets", "delete from external4_packets",
	}, got, "what counts is there before what redirects, and leaves after it")
}

// stateOf returns what is read when the kernel holds a layout.
func stateOf(l layout) state {
	s := state{present: true, chains: map[string]chainState{}, sets: map[string]setState{}}
	for _, c := range l.chains {
		cs := chainState{kind: c.kind, hook: string(c.hook), policy: "accept", priority: c.priority}
		for _, r := range c.rules {
			cs.rules = append(cs.rules, r.text())
		}
		s.chains[c.name] = cs
	}
	for _, set := range l.sets {
		ss := setState{isMap: !set.count, shape: setShape(set.setName), elems: map[string]elemState{}}
		for k, v := range set.elems {
			ss.elems[k] = elemState{value: v, timeout: DefaultTimeout, expires: time.Second, counted: true}
		}
		s.sets[set.String()] = ss
	}
	return s
}

func TestAlternateTimeoutsAreFarApart(t *testing.T) {
	for _, timeout := range []time.Duration{500 * time.Millisecond, 777 * time.Millisecond, DefaultTimeout, 24 * time.Hour} {
		o := Options{Timeout: timeout}
		require.False(t, o.isTimeout(o.alternate(), o.Timeout))
		require.Zero(t, o.alternate()%time.Millisecond)
		require.Equal(t, o.alternate(), o.otherTimeout(o.Timeout))
		require.Equal(t, o.alternate(), o.otherTimeout(o.Timeout+10*time.Millisecond), "rounded up to a slow clock's tick")
		require.Equal(t, o.Timeout, o.otherTimeout(o.alternate()))
		require.Equal(t, o.Timeout, o.otherTimeout(0))
		require.True(t, o.ownTimeout(o.alternate()))
		require.False(t, o.ownTimeout(0))
	}
}
