package nft

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// state is what was read from the kernel.
type state struct {
	present bool
	flags   uint32 // of the table: ours has none, "dormant" would switch it off
	chains  map[string]chainState
	sets    map[string]setState
}

type chainState struct {
	kind, hook, policy string // hook is empty when it is no base chain
	priority           int
	rules              []string // as nft text when they are ours
}

type setState struct {
	isMap bool
	shape string // types, then anything unusual about the set
	elems map[string]elemState
}

type elemState struct {
	value            string
	timeout, expires time.Duration
	counted          bool
	packets, bytes   uint64
}

func (c chainState) String() string {
	if c.hook == "" {
		return "no base chain"
	}
	return fmt.Sprintf("type %s hook %s priority %d policy %s", c.kind, c.hook, c.priority, c.policy)
}

func (s setState) object(name string) string {
	if s.isMap {
		return "map " + name
	}
	return "set " + name
}

// setShape returns what setState.shape is for a set as we make it.
func setShape(n setName) string { return n.shape() + ", timeout" }

// foreign reports whether the table holds anything under a name that we do not
// use, so that it cannot have been made by us.
func (s state) foreign(want layout) bool {
	for name := range s.chains {
		if !slices.ContainsFunc(want.chains, func(c chainSpec) bool { return c.name == name }) {
			return true
		}
	}
	for name := range s.sets {
		if !slices.ContainsFunc(want.sets, func(n setSpec) bool { return n.String() == name }) {
			return true
		}
	}
	return false
}

// structureDiff compares everything but elements, in a fixed order.
func structureDiff(want layout, have state) []Difference {
	if !have.present {
		return []Difference{{Object: "table", Want: "table inet " + want.table}}
	}
	var diffs []Difference
	if have.flags != 0 {
		diffs = append(diffs, Difference{"flags of the table", "none", fmt.Sprintf("%#x", have.flags)})
	}
	chains, sets := maps.Clone(have.chains), maps.Clone(have.sets)
	for _, c := range want.chains {
		w := chainState{kind: c.kind, hook: string(c.hook), policy: "accept", priority: c.priority}
		g, ok := chains[c.name]
		delete(chains, c.name)
		if !ok {
			diffs = append(diffs, Difference{Object: "chain " + c.name, Want: w.String()})
			continue
		}
		if g.String() != w.String() {
			diffs = append(diffs, Difference{"chain " + c.name, w.String(), g.String()})
		}
		for i := range max(len(c.rules), len(g.rules)) {
			d := Difference{Object: fmt.Sprintf("rule %d of chain %s", i+1, c.name)}
			if i < len(c.rules) {
				d.Want = c.rules[i].text()
			}
			if i < len(g.rules) {
				d.Got = g.rules[i]
			}
			if d.Want != d.Got {
				diffs = append(diffs, d)
			}
		}
	}
	for _, s := range want.sets {
		g, ok := sets[s.String()]
		delete(sets, s.String())
		switch shape := setShape(s.setName); {
		case !ok:
			diffs = append(diffs, Difference{Object: s.object(), Want: shape})
		case g.isMap == s.count:
			diffs = append(diffs, Difference{s.object(), s.object(), g.object(s.String())})
		case g.shape != shape:
			diffs = append(diffs, Difference{s.object(), shape, g.shape})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(chains)) {
		diffs = append(diffs, Difference{Object: "chain " + name, Got: chains[name].String()})
	}
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		diffs = append(diffs, Difference{Object: sets[name].object(name), Got: sets[name].shape})
	}
	return diffs
}

// elementDiff compares the elements of the sets that are there.
func elementDiff(o Options, want layout, have state) []Difference {
	var diffs []Difference
	for _, s := range want.sets {
		set, ok := have.sets[s.String()]
		if !ok {
			continue
		}
		got := set.elems
		object := func(k string) string { return fmt.Sprintf("element %s of %s", keyText(k), s.object()) }
		for _, k := range sortedKeys(s.elems) {
			w := describeElem(s.count, s.elems[k])
			g, ok := got[k]
			switch {
			case !ok:
				diffs = append(diffs, Difference{Object: object(k), Want: w})
			case g.value != s.elems[k]:
				diffs = append(diffs, Difference{object(k), w, describeElem(s.count, g.value)})
			case !g.counted:
				diffs = append(diffs, Difference{object(k), w + ", counted", "not counted"})
			case !o.ownTimeout(g.timeout):
				diffs = append(diffs, Difference{object(k), fmt.Sprintf("timeout %v or %v", o.Timeout, o.alternate()), fmt.Sprintf("timeout %v", g.timeout)})
			}
		}
		for _, k := range sortedKeys(got) {
			if _, ok := s.elems[k]; !ok {
				diffs = append(diffs, Difference{Object: object(k), Got: describeElem(s.count, got[k].value)})
			}
		}
	}
	return diffs
}

func describeElem(count bool, value string) string {
	if count {
		return "a counter"
	}
	return valueText(value)
}

func diff(o Options, want layout, have state) []Difference {
	diffs := structureDiff(want, have)
	if !have.present {
		return diffs
	}
	return append(diffs, elementDiff(o, want, have)...)
}

// firstExpiry is how long the first element to expire has left; ok is false
// when there is no element.
func (s state) firstExpiry() (left time.Duration, ok bool) {
	for _, set := range s.sets {
		for _, e := range set.elems {
			if !ok || e.expires < left {
				left, ok = e.expires, true
			}
		}
	}
	return left, ok
}
