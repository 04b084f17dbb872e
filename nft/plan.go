package nft

import (
	"cmp"
	"slices"
	"time"
)

// The layout: what the table looks like for a configuration. The chains and
// their eight rules are the same for any number of redirects; only the elements
// of the maps and sets differ.

type hook string

const (
	prerouting hook = "prerouting"
	output     hook = "output"
)

// countPriority lies before every rewriting, which the kernel does at -100
// whatever the priority of the nat chain that asked for it. So the counting
// chains see all packets with the port that the client used.
const countPriority = -150

type layout struct {
	table  string
	chains []chainSpec
	sets   []setSpec
}

type chainSpec struct {
	name     string
	kind     string // "nat" or "filter"
	hook     hook
	priority int
	rules    []ruleSpec
}

// ruleSpec is one rule: for packets of one family whose destination is an
// address of this machine, look up address, protocol and port in a set. In a
// map the result is the new destination.
type ruleSpec struct {
	hook hook
	set  setName
}

// setName tells all about one of our sets but its elements.
type setName struct {
	local bool // else external
	v6    bool
	count bool // a set that counts packets, else a map that redirects
}

func (n setName) String() string {
	s := "external"
	if n.local {
		s = "local"
	}
	if n.v6 {
		s += "6"
	} else {
		s += "4"
	}
	if n.count {
		s += "_packets"
	}
	return s
}

// object returns the set as nft calls it.
func (n setName) object() string {
	if n.count {
		return "set " + n.String()
	}
	return "map " + n.String()
}

// shape returns the types of key and value as nft prints them.
func (n setName) shape() string {
	addr := "ipv4_addr"
	if n.v6 {
		addr = "ipv6_addr"
	}
	s := addr + " . inet_proto . inet_service"
	if !n.count {
		s += " : " + addr + " . inet_service"
	}
	return s
}

type setSpec struct {
	setName
	elems map[string]string // key to value, which is empty in a counting set
}

func (r ruleSpec) text() string {
	ip := "ip"
	if r.set.v6 {
		ip = "ip6"
	}
	s := "fib daddr type local "
	if r.hook == prerouting {
		// What this machine sends to itself passes prerouting too, after output:
		// it is counted there as local, and must not be counted as external.
		s = `iif != "lo" ` + s
	}
	lookup := ip + " daddr . meta l4proto . th dport "
	if r.set.count {
		return s + lookup + "@" + r.set.String()
	}
	return s + "dnat " + ip + " to " + lookup + "map @" + r.set.String()
}

// newLayout expects valid arguments.
func newLayout(o Options, c Config) layout {
	l := layout{table: o.Table}
	for _, n := range allSets() {
		l.sets = append(l.sets, setSpec{setName: n, elems: map[string]string{}})
	}
	for _, r := range c.Redirects {
		for _, s := range l.sets {
			switch {
			case s.v6 != r.VIP.Is6():
			case s.count:
				s.elems[r.key()] = ""
			default:
				s.elems[r.key()] = r.value()
			}
		}
	}
	for _, h := range []hook{prerouting, output} {
		local := h == output
		rules := func(count bool) []ruleSpec {
			return []ruleSpec{
				{h, setName{local: local, v6: false, count: count}},
				{h, setName{local: local, v6: true, count: count}},
			}
		}
		l.chains = append(l.chains,
			chainSpec{string(h) + "_count", "filter", h, countPriority, rules(true)},
			chainSpec{string(h), "nat", h, o.Priority, rules(false)})
	}
	return l
}

// allSets returns our sets in the order in which they are filled: a counter
// before the map whose traffic it counts.
func allSets() []setName {
	var names []setName
	for _, count := range []bool{true, false} {
		for _, local := range []bool{false, true} {
			for _, v6 := range []bool{false, true} {
				names = append(names, setName{local, v6, count})
			}
		}
	}
	return names
}

// op is one step of a transaction; exactly one field is set.
type op struct {
	addTable, delTable bool
	addChain           *chainSpec
	addSet             *setName
	addRule            *ruleSpec
	elems              *elemOp
}

type elemKind uint8

const (
	elemAdd elemKind = iota
	elemDelete
	elemReplace // delete and add again, in one transaction
)

type elemOp struct {
	kind  elemKind
	set   setName
	elems []elem
}

type elem struct {
	key, value string
	timeout    time.Duration // unused in elemDelete
}

// plan returns the steps from what the kernel has to what is wanted.
type plan struct {
	ops     []op
	rebuild bool // the table is made anew
	changed int  // elements that were not as wanted
}

// newPlan compares structure first: anything wrong in table, chains, rules or
// set types means one transaction that replaces the table. Otherwise only
// elements change, so that no base chain ever loses its place among others of
// its priority and no counter restarts. Elements that are right are renewed;
// with replaceSame by deleting and adding them again, for kernels that cannot
// extend a lifetime.
func newPlan(o Options, want layout, have state, replaceSame bool) plan {
	var p plan
	if p.rebuild = len(structureDiff(want, have)) > 0; p.rebuild {
		p.ops = append(p.ops, op{addTable: true}, op{delTable: true}, op{addTable: true})
		for i := range want.sets {
			p.ops = append(p.ops, op{addSet: &want.sets[i].setName})
		}
		for i := range want.chains {
			c := &want.chains[i]
			p.ops = append(p.ops, op{addChain: c})
			for j := range c.rules {
				p.ops = append(p.ops, op{addRule: &c.rules[j]})
			}
		}
		have = state{}
	}
	var removals []op
	for _, s := range want.sets {
		got := have.sets[s.String()].elems
		var add, replace, remove []elem
		for _, k := range sortedKeys(s.elems) {
			e := elem{k, s.elems[k], o.Timeout}
			g, ok := got[k]
			switch {
			case !ok:
				add = append(add, e)
				p.changed++
			case g.value != e.value || !g.counted || !o.ownTimeout(g.timeout):
				replace = append(replace, e)
				p.changed++
			case replaceSame:
				replace = append(replace, e)
			default:
				e.timeout = o.otherTimeout(g.timeout)
				add = append(add, e)
			}
		}
		for _, k := range sortedKeys(got) {
			if _, ok := s.elems[k]; !ok {
				remove = append(remove, elem{key: k})
				p.changed++
			}
		}
		p.ops = appendElems(p.ops, elemAdd, s.setName, add)
		p.ops = appendElems(p.ops, elemReplace, s.setName, replace)
		removals = appendElems(removals, elemDelete, s.setName, remove)
	}
	// Counters were filled first, so they are emptied last.
	slices.Reverse(removals)
	p.ops = append(p.ops, removals...)
	return p
}

// renewal returns the steps that start every lifetime again: each element once
// more, with the other timeout than it had when it was last read. Repeated with
// the same timeout, the kernel would leave its lifetime as it is.
func renewal(o Options, want layout, last state) []op {
	var ops []op
	for _, s := range want.sets {
		got := last.sets[s.String()].elems
		var add []elem
		for _, k := range sortedKeys(s.elems) {
			add = append(add, elem{k, s.elems[k], o.otherTimeout(got[k].timeout)})
		}
		ops = appendElems(ops, elemAdd, s.setName, add)
	}
	return ops
}

// extended reports whether every element has the timeout that the renewal sent.
// A kernel that ignores the repeated element keeps the old one.
func extended(o Options, renewal []op, have state) bool {
	for _, step := range renewal {
		got := have.sets[step.elems.set.String()].elems
		for _, e := range step.elems.elems {
			if !o.isTimeout(got[e.key].timeout, e.timeout) {
				return false
			}
		}
	}
	return true
}

// chunk is how many elements go into one message. An element takes at most 80
// bytes there, and the list is one attribute whose length is 16 bits wide:
// 10,000 elements in one message were cut to 1,808 without an error. See
// https://github.com/google/nftables/pull/303.
const chunk = 400

func appendElems(ops []op, kind elemKind, set setName, elems []elem) []op {
	for part := range slices.Chunk(elems, chunk) {
		ops = append(ops, op{elems: &elemOp{kind, set, part}})
	}
	return ops
}

// size is an upper bound of the bytes that the step takes on the wire.
func (o op) size() int {
	if o.elems == nil {
		return 1024
	}
	n := 256 + 96*len(o.elems.elems)
	if o.elems.kind == elemReplace {
		n *= 2
	}
	return n
}

func sizeOf(ops []op) int {
	n := 256 // begin and end
	for _, o := range ops {
		n += o.size()
	}
	return n
}

// split cuts the steps into transactions of at most limit bytes, one when they
// fit. The structure, which stands first and fits into any socket's buffer,
// stays together.
func split(ops []op, limit int) [][]op {
	if sizeOf(ops) <= limit {
		return [][]op{ops}
	}
	var parts [][]op
	start, n := 0, sizeOf(nil)
	for i, o := range ops {
		if n+o.size() > limit && i > start && o.elems != nil {
			parts = append(parts, ops[start:i])
			start, n = i, sizeOf(nil)
		}
		n += o.size()
	}
	return append(parts, ops[start:])
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	// IPv4 and IPv6 never share a map, so bytes sort like addresses.
	slices.SortFunc(keys, cmp.Compare[string])
	return keys
}
