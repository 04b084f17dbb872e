package nft

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeKernel keeps one table as the kernel does: transactions that succeed or
// fail as a whole, elements that expire, a repeated element that gets a new
// lifetime only with a new timeout, or, before Linux 6.12, never.
type fakeKernel struct {
	now        time.Time
	old        bool  // before Linux 6.12
	limit      int   // of a transaction in bytes; 0: none
	lose       bool  // commit, then lose the answers
	refuse     error // of the next commits
	foreign    []baseChain
	table      state
	deadline   map[string]map[string]time.Time
	commits    [][]op
	torn       bool   // the next listing misses a chain and an element
	afterRead  func() // runs once, between a read and what follows
	chainsFail error
}

func (f *fakeKernel) expire() {
	for name, s := range f.table.sets {
		for k, e := range s.elems {
			e.expires = f.deadline[name][k].Sub(f.now)
			s.elems[k] = e
			if e.expires <= 0 {
				delete(s.elems, k)
			}
		}
	}
}

func (f *fakeKernel) read(context.Context, layout) (state, error) {
	f.expire()
	got := f.table.clone()
	if f.torn {
		f.torn = false
		delete(got.chains, "output")
		delete(got.sets[setName{}.String()].elems, api4.key())
	}
	if h := f.afterRead; h != nil {
		f.afterRead = nil
		h()
	}
	return got, nil
}

func (s state) clone() state {
	c := s
	c.chains, c.sets = maps.Clone(s.chains), maps.Clone(s.sets)
	for name, set := range c.sets {
		set.elems = maps.Clone(set.elems)
		c.sets[name] = set
	}
	return c
}

func (f *fakeKernel) capacity(_ context.Context, size int) (int, error) {
	if f.limit == 0 {
		return size, nil
	}
	return f.limit, nil
}

func (f *fakeKernel) commit(_ context.Context, table string, ops []op) error {
	f.commits = append(f.commits, ops)
	if f.limit != 0 && sizeOf(ops) > f.limit {
		return errors.New("message too long")
	}
	if f.refuse != nil {
		return f.refuse
	}
	f.expire()
	before, deadline := f.table.clone(), f.deadline
	for _, o := range ops {
		if err := f.run(o); err != nil {
			f.table, f.deadline = before, deadline
			return fmt.Errorf("%w: %w", errStale, err)
		}
	}
	if f.lose {
		return fmt.Errorf("%w: no buffer space available", errUncertain)
	}
	return nil
}

func (f *fakeKernel) run(o op) error {
	if !f.table.present && !o.addTable {
		return errors.New("no such table")
	}
	switch {
	case o.addTable && !f.table.present:
		f.table = state{present: true, chains: map[string]chainState{}, sets: map[string]setState{}}
		f.deadline = map[string]map[string]time.Time{}
	case o.delTable:
		f.table = state{}
	case o.addChain != nil:
		c := o.addChain
		f.table.chains[c.name] = chainState{kind: c.kind, hook: string(c.hook), policy: "accept", priority: c.priority}
	case o.addRule != nil:
		name := string(o.addRule.hook)
		if o.addRule.set.count {
			name += "_count"
		}
		c := f.table.chains[name]
		c.rules = append(c.rules, o.addRule.text())
		f.table.chains[name] = c
	case o.addSet != nil:
		n := *o.addSet
		f.table.sets[n.String()] = setState{isMap: !n.count, shape: setShape(n), elems: map[string]elemState{}}
		f.deadline[n.String()] = map[string]time.Time{}
	case o.elems != nil:
		return f.runElems(*o.elems)
	}
	return nil
}

func (f *fakeKernel) runElems(o elemOp) error {
	name := o.set.String()
	s, ok := f.table.sets[name]
	if !ok {
		return errors.New("no such set")
	}
	if o.kind != elemAdd {
		for _, e := range o.elems {
			if _, ok := s.elems[e.key]; !ok {
				return errors.New("no such element")
			}
			delete(s.elems, e.key)
		}
	}
	if o.kind == elemDelete {
		return nil
	}
	for _, e := range o.elems {
		old, ok := s.elems[e.key]
		switch {
		case ok && old.value != e.value:
			return errors.New("element exists")
		case ok && (f.old || old.timeout == e.timeout):
			continue
		}
		old.value, old.timeout, old.counted = e.value, e.timeout, true
		s.elems[e.key] = old
		f.deadline[name][e.key] = f.now.Add(e.timeout)
	}
	return nil
}

func (f *fakeKernel) chains(context.Context, string) ([]baseChain, error) {
	return f.foreign, f.chainsFail
}

// hit counts one packet in every element.
func (f *fakeKernel) hit() {
	for _, s := range f.table.sets {
		for k, e := range s.elems {
			e.packets++
			e.bytes += 60
			s.elems[k] = e
		}
	}
}

// edit changes one element under our feet.
func (f *fakeKernel) edit(set setName, r Redirect, change func(*elemState)) {
	e := f.table.sets[set.String()].elems[r.key()]
	change(&e)
	f.table.sets[set.String()].elems[r.key()] = e
}

func newFake(t *testing.T) (*Table, *fakeKernel) {
	t.Helper()
	tab, err := New(Options{})
	require.NoError(t, err)
	f := &fakeKernel{now: time.Unix(1e9, 0)}
	tab.k, tab.now = f, func() time.Time { return f.now }
	return tab, f
}

var (
	api4 = Redirect{VIP: netip.MustParseAddr("192.0.2.1"), From: 6443, To: 9445}
	api6 = Redirect{VIP: netip.MustParseAddr("2001:db8::1"), From: 6443, To: 9445}
	dns4 = Redirect{VIP: netip.MustParseAddr("192.0.2.1"), Proto: UDP, From: 53, To: 5353}
)

// manyRedirects returns n redirects, half of each family.
func manyRedirects(n int) []Redirect {
	list := make([]Redirect, n)
	for i := range list {
		hi, lo := byte(i>>8), byte(i)
		list[i] = Redirect{VIP: netip.AddrFrom4([4]byte{198, 18, hi, lo}), From: 6443, To: 9445}
		if i%2 == 1 {
			list[i].VIP = netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 14: hi, 15: lo})
		}
	}
	return list
}
