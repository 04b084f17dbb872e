package nft

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDiffNamesWhatDiffers(t *testing.T) {
	o := testOptions()
	want := newLayout(o, Config{Redirects: []Redirect{api4}})
	require.Empty(t, diff(o, want, stateOf(want)))
	external := setName{}

	tests := map[string]struct {
		damage func(*state)
		says   string
	}{
		"table": {func(s *state) { *s = state{} }, "table is missing, want table inet lastbeat"},
		"flags": {func(s *state) { s.flags = 1 }, "flags of the table is 0x1, want none"},
		"chain": {func(s *state) { delete(s.chains, "output") }, "chain output is missing, want type nat hook output priority -110 policy accept"},
		"priority": {func(s *state) {
			c := s.chains["prerouting"]
			c.priority = -90
			s.chains["prerouting"] = c
		}, "chain prerouting is type nat hook prerouting priority -90 policy accept, want type nat hook prerouting priority -110 policy accept"},
		"policy": {func(s *state) {
			c := s.chains["output_count"]
			c.policy = "drop"
			s.chains["output_count"] = c
		}, "chain output_count is type filter hook output priority -150 policy drop, want type filter hook output priority -150 policy accept"},
		"extra chain": {func(s *state) { s.chains["more"] = chainState{} }, "chain more should not be there: no base chain"},
		"rule gone": {func(s *state) {
			c := s.chains["output"]
			c.rules = c.rules[:1]
			s.chains["output"] = c
		}, "rule 2 of chain output is missing, want fib daddr type local dnat ip6 to ip6 daddr . meta l4proto . th dport map @local6"},
		"extra rule": {func(s *state) {
			c := s.chains["output"]
			c.rules = append(c.rules[:2:2], "accept")
			s.chains["output"] = c
		}, "rule 3 of chain output should not be there: accept"},
		"map":       {func(s *state) { delete(s.sets, "local4") }, "map local4 is missing, want ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service, timeout"},
		"extra set": {func(s *state) { s.sets["x"] = setState{shape: "ipv4_addr"} }, "set x should not be there: ipv4_addr"},
		"set for map": {func(s *state) {
			x := s.sets["local4"]
			x.isMap = false
			s.sets["local4"] = x
		}, "map local4 is set local4, want map local4"},
		"shape": {func(s *state) {
			x := s.sets["local4"]
			x.shape = "ipv4_addr"
			s.sets["local4"] = x
		}, "map local4 is ipv4_addr, want ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service, timeout"},
		"element": {func(s *state) { delete(s.sets["external4"].elems, api4.key()) }, "element 192.0.2.1 . tcp . 6443 of map external4 is missing, want 192.0.2.1 . 9445"},
		"value": {func(s *state) { editElem(s, external, func(e *elemState) { e.value = dns4.value() }) },
			"element 192.0.2.1 . tcp . 6443 of map external4 is 192.0.2.1 . 5353, want 192.0.2.1 . 9445"},
		"counter": {func(s *state) { editElem(s, external, func(e *elemState) { e.counted = false }) },
			"element 192.0.2.1 . tcp . 6443 of map external4 is not counted, want 192.0.2.1 . 9445, counted"},
		"timeout": {func(s *state) { editElem(s, external, func(e *elemState) { e.timeout = time.Hour }) },
			"element 192.0.2.1 . tcp . 6443 of map external4 is timeout 1h0m0s, want timeout 6s or 6.6s"},
		"extra element": {func(s *state) { s.sets["external4"].elems[dns4.key()] = elemState{value: dns4.value()} },
			"element 192.0.2.1 . udp . 53 of map external4 should not be there: 192.0.2.1 . 5353"},
		"foreign bytes": {func(s *state) { s.sets["external4"].elems["ab"] = elemState{value: "c"} },
			"element 6162 of map external4 should not be there: 63"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			have := stateOf(want)
			test.damage(&have)
			diffs := diff(o, want, have)
			require.Len(t, diffs, 1)
			require.Equal(t, test.says, diffs[0].String())
			err := &MismatchError{o.Table, diffs}
			require.Equal(t, name == "table", err.Is(ErrNotInstalled))
		})
	}
}

func editElem(s *state, set setName, change func(*elemState)) {
	e := s.sets[set.String()].elems[api4.key()]
	change(&e)
	s.sets[set.String()].elems[api4.key()] = e
}

func TestMismatchErrorIsShort(t *testing.T) {
	err := &MismatchError{Table: "x"}
	for i := range 500 {
		err.Differences = append(err.Differences, Difference{Object: fmt.Sprintf("chain %d", i), Want: "a"})
	}
	require.EqualError(t, err, "nft: table inet x differs from what was applied: chain 0 is missing, want a; chain 1 is missing, want a; "+
		"chain 2 is missing, want a; chain 3 is missing, want a; and 496 more (call Apply to repair it)")
}
