package health

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func combination(t testing.TB, rule Rule, causes ...string) *Combination {
	c, err := NewCombination(rule, causes...)
	require.NoError(t, err)
	return c
}

// says is a status that holds from one second to another.
func says(s State, from, to float64) Status {
	if s == Unknown {
		return Status{Since: at(from)}
	}
	return Status{State: s, Since: at(from), ValidUntil: at(to)}
}

// Each pair of states under each rule, for an active and a passive cause.
func TestRules(t *testing.T) {
	states := "UNFE"
	for _, tc := range []struct {
		rule Rule
		// want has a row for each state of the active cause, and in it a letter
		// for each of the passive.
		want [4]string
	}{
		//                  passive: UNFE
		{WorstWins, [4]string{0: "UNFE", 1: "NNFN", 2: "FFFF", 3: "ENFE"}},
		{ActiveWins, [4]string{0: "UNFE", 1: "NNNN", 2: "FFFF", 3: "ENFE"}},
		{AllOf, [4]string{0: "UUFE", 1: "UNFE", 2: "FFFF", 3: "EEFE"}},
		{AnyOf, [4]string{0: "UNUE", 1: "NNNN", 2: "UNFE", 3: "ENEE"}},
	} {
		for active := Unknown; active <= Error; active++ {
			for passive := Unknown; passive <= Error; passive++ {
				c := combination(t, tc.rule, "active", "passive")
				require.NoError(t, c.Observe(at(0), "active", says(active, 0, 9)))
				require.NoError(t, c.Observe(at(0), "passive", says(passive, 0, 9)))
				got := letters[c.At(at(1)).State]
				require.Equal(t, string(tc.want[active][passive]), got, "%v: active %c, passive %c", tc.rule, states[active], states[passive])
				require.Equal(t, Unknown, c.At(at(9)).State)
			}
		}
	}
}

// https://github.com/envoyproxy/envoy/issues/28303: a good probe must not undo what
// traffic says, nor the other way round.
func TestCausesDoNotOverwriteEachOther(t *testing.T) {
	c := combination(t, WorstWins, "probe", "traffic")
	ejected := says(Offline, 1, 30)
	ejected.Reason = Reason{Failed, "5 errors in a row"}
	require.NoError(t, c.Observe(at(1), "traffic", ejected))
	for s := 1.0; s < 20; s++ {
		require.NoError(t, c.Observe(at(s), "probe", says(Online, 0, s+10)))
		require.Equal(t, Status{Offline, at(1), at(30), Reason{Failed, "by traffic: 5 errors in a row"}}, c.At(at(s)))
	}
	require.Equal(t, says(Online, 0, 29), c.Causes(at(20))["probe"])
}

// https://github.com/haproxy/haproxy/issues/1234: what traffic took down gets no
// traffic, so it must come back without.
func TestEachDownHasAWayUp(t *testing.T) {
	c := combination(t, WorstWins, "probe", "traffic")
	require.NoError(t, c.Observe(at(0), "probe", says(Online, 0, 100)))
	require.NoError(t, c.Observe(at(1), "traffic", says(Offline, 1, 30)))
	require.Equal(t, at(30), c.At(at(29)).ValidUntil)
	require.Equal(t, Status{Online, at(30), at(100), Reason{Detail: "by probe"}}, c.At(at(30)))
}

// https://github.com/acassen/keepalived/pull/381: who said down must be known, or
// nobody can ever take it back.
func TestReasonNamesTheCause(t *testing.T) {
	c := combination(t, AllOf, "tcp", "http")
	require.Equal(t, Status{Reason: Reason{Detail: "by tcp"}}, c.At(at(0)), "never probed by tcp")
	require.NoError(t, c.Observe(at(0), "tcp", says(Online, 0, 20)))
	bad := says(Offline, 0, 10)
	bad.Reason = Reason{Failed, "status 503"}
	require.NoError(t, c.Observe(at(0), "http", bad))
	require.Equal(t, Reason{Failed, "by http: status 503"}, c.At(at(1)).Reason)
	require.Equal(t, Status{Unknown, at(10), time.Time{}, Reason{Expired, "by http: status 503"}}, c.At(at(10)))
	require.Equal(t, Status{Unknown, at(10), time.Time{}, Reason{Expired, "status 503"}}, c.Causes(at(10))["http"])
	require.ErrorIs(t, c.Observe(at(0), "icmp", bad), ErrKey)
}

// What ended before the last input has had its effect, and has no other later.
func TestOldEndsDoNotMoveSince(t *testing.T) {
	c := combination(t, WorstWins, "a", "b", "c")
	require.NoError(t, c.Observe(at(0), "b", says(Offline, 0, 7)))
	require.NoError(t, c.Observe(at(0), "c", says(Offline, 0, 8)))
	require.NoError(t, c.Observe(at(10), "a", says(Online, 10, 20)))
	require.Equal(t, at(10), c.At(at(11)).Since)
}

func TestCombinationConfigFaults(t *testing.T) {
	for _, tc := range []struct {
		name   string
		rule   Rule
		causes []string
		want   string
	}{
		{"rule", 4, []string{"a"}, "health: Rule is rule(4): want WorstWins, ActiveWins, AllOf or AnyOf"},
		{"none", AnyOf, nil, "health: Causes is []: want at least one"},
		{"empty", AnyOf, []string{""}, `health: Causes is [""]: want names that are not empty and differ`},
		{"twice", AnyOf, []string{"a", "b", "a"}, `health: Causes is ["a" "b" "a"]: want names that are not empty and differ`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := NewCombination(tc.rule, tc.causes...)
			require.ErrorIs(t, err, ErrConfig)
			require.EqualError(t, err, tc.want)
		})
	}
	require.Equal(t, "worst wins active wins all of any of", fmt.Sprint(WorstWins, " ", ActiveWins, " ", AllOf, " ", AnyOf))
}

// The result, its Since and its ValidUntil against looking at each second.
func TestCombinationAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := rapid.SampledFrom([]Rule{WorstWins, ActiveWins, AllOf, AnyOf}).Draw(t, "rule")
		names := []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "causes")]
		c, err := NewCombination(rule, names...)
		require.NoError(t, err)
		state, since := Unknown, time.Time{} // as of the last second
		look := func(second int) {
			// Of the state alone the table above tells; a second Combination
			// without a past applies it.
			fresh, err := NewCombination(rule, names...)
			require.NoError(t, err)
			for name, s := range c.Causes(at(float64(second))) {
				require.NoError(t, fresh.Observe(at(float64(second)), name, s))
			}
			if s := fresh.At(at(float64(second))).State; s != state {
				state, since = s, at(float64(second))
			}
		}
		for second := range rapid.IntRange(1, 30).Draw(t, "seconds") {
			look(second)
			for range rapid.IntRange(0, 2).Draw(t, "inputs") {
				s := says(State(rapid.IntRange(0, 3).Draw(t, "state")), float64(second), float64(second+rapid.IntRange(1, 9).Draw(t, "length")))
				require.NoError(t, c.Observe(at(float64(second)), rapid.SampledFrom(names).Draw(t, "cause"), s))
				look(second)
			}
			now := at(float64(second))
			got := c.At(now)
			require.Equal(t, state, got.State)
			require.Equal(t, since, got.Since)
			if got.State == Unknown {
				require.True(t, got.ValidUntil.IsZero())
				continue
			}
			require.Equal(t, got.State, c.At(got.ValidUntil.Add(-1)).State)
			next := c.At(got.ValidUntil)
			require.NotEqual(t, got.State, next.State)
			require.Equal(t, got.ValidUntil, next.Since)
		}
	})
}

func TestAdminIsApart(t *testing.T) {
	for _, tc := range []struct {
		admin              Admin
		state              State
		probe, fresh, held bool
	}{
		{InService, Online, true, true, true},
		{InService, Offline, true, false, false},
		{InService, Unknown, true, false, false},
		{InService, Error, true, false, false},
		{Drain, Online, true, false, true},
		{Drain, Offline, true, false, false},
		{Maintenance, Online, false, false, false},
		{Maintenance, Unknown, false, false, false},
		{Admin(9), Online, false, false, false},
	} {
		fresh, held := tc.admin.Use(tc.state)
		require.Equal(t, []bool{tc.probe, tc.fresh, tc.held}, []bool{tc.admin.Probe(), fresh, held}, "%v, %v", tc.admin, tc.state)
	}
	require.Equal(t, "in service drain maintenance admin(3)", fmt.Sprint(InService, " ", Drain, " ", Maintenance, " ", Admin(3)))
}
