package lb

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// inState gives backends a, b, c, ... of weight 1 a state each: U, R (drain) or D,
// and a tier by the digits, if any.
func inState(states, tiers string) []Backend[int] {
	out := members(slices.Repeat([]int{1}, len(states))...)
	for i, s := range states {
		out[i].State = map[rune]State{'U': Up, 'R': Drain, 'D': Down}[s]
		if tiers != "" {
			out[i].Tier = tiers[i] - '0'
		}
	}
	return out
}

// used returns which backends 60 picks reach, as letters.
func used(t *testing.T, b *Balancer[int]) string {
	seen := map[string]bool{}
	for i := range 60 {
		l, err := b.Pick(uint64(i))
		if err != nil {
			require.ErrorIs(t, err, ErrEmpty)
			return ""
		}
		require.Equal(t, b.Mode(), l.Mode())
		seen[l.Key()] = true
	}
	var out []byte
	for c := byte('a'); c <= 'z'; c++ {
		if seen[string(c)] {
			out = append(out, c)
		}
	}
	return string(out)
}

// A sequence of lists, and who is used on which ground after each.
func TestModes(t *testing.T) {
	type step struct {
		states, tiers string
		used          string
		mode          Mode
	}
	for _, tc := range []struct {
		name   string
		policy Policy
		steps  []step
	}{
		{"backups only while no primary is up", PolicyEmpty, []step{
			{"UUUU", "0011", "ab", ModeNormal},
			{"DUUU", "0011", "b", ModeNormal},
			{"DDUU", "0011", "cd", ModeBackup},
			{"DRUU", "0011", "cd", ModeBackup},
			{"DDDU", "0012", "d", ModeBackup},
			{"DDUU", "0012", "c", ModeBackup},
			{"UDUU", "0011", "a", ModeNormal},
			{"DDDD", "0011", "", ModeEmpty},
		}},
		{"the lowest tier counts, not the first in the list", PolicyEmpty, []step{
			{"UUUU", "2101", "c", ModeNormal},
			{"UUDU", "2101", "bd", ModeBackup},
		}},
		{"panic comes after the backups, and with the lowest tier", PolicyPanic, []step{
			{"DDUU", "0011", "cd", ModeBackup},
			{"DDDD", "0011", "ab", ModePanic},
			{"RRDD", "0011", "cd", ModePanic},
			{"RRRR", "0011", "", ModeEmpty},
		}},
		{"fail static keeps the last good set", PolicyFailStatic, []step{
			{"UUD", "", "ab", ModeNormal},
			{"DDD", "", "ab", ModeFailStatic},
			{"DDD", "", "ab", ModeFailStatic},
			{"RDD", "", "b", ModeFailStatic},
			{"DDU", "", "c", ModeNormal},
			{"DDD", "", "c", ModeFailStatic},
			{"RRR", "", "", ModeEmpty},
		}},
		{"fail static without a good set", PolicyFailStatic, []step{
			{"DDD", "", "", ModeEmpty},
			{"UDD", "", "a", ModeNormal},
		}},
		{"fail static of backups", PolicyFailStatic, []step{
			{"DU", "01", "b", ModeBackup},
			{"DD", "01", "b", ModeFailStatic},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, alg := range []Algorithm{RoundRobin{}, P2C{}, Maglev{Size: 251}, LeastConn{}} {
				b := seeded(t, Config{Algorithm: alg, Policy: tc.policy}, 1, nil)
				for i, s := range tc.steps {
					require.NoError(t, b.Set(inState(s.states, s.tiers)...))
					require.Equal(t, s.mode, b.Mode(), "%s step %d", alg.Name(), i)
					require.Equal(t, s.used, used(t, b), "%s step %d", alg.Name(), i)
				}
			}
		})
	}
}

// A good set is one of keys: a backend that was removed and comes back is new.
func TestFailStaticForgetsWhoLeft(t *testing.T) {
	b := seeded(t, Config{Policy: PolicyFailStatic}, 1, inState("UU", ""))
	require.NoError(t, b.Set(inState("U", "")...))
	require.NoError(t, b.Set(inState("DD", "")...))
	require.Equal(t, "a", used(t, b))
	list := inState("DD", "")
	slices.Reverse(list)
	require.NoError(t, b.Set(list...))
	require.Equal(t, "a", used(t, b), "the place in the list plays no role")
}

// The prober dies, and its verdicts expire one after the other. Without a window all
// connections go to the one that was last.
func TestFailStaticWindow(t *testing.T) {
	_, err := New[int](Config{FailStaticWindow: -1})
	require.ErrorIs(t, err, ErrConfig)
	for _, tc := range []struct {
		name   string
		window time.Duration
		used   string
	}{
		{"without", 0, "d"},
		{"short", 3 * time.Second, "cd"},
		{"long enough", 10 * time.Second, "bcd"},
		{"longer than those before were up", time.Hour, "abcd"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := seeded(t, Config{Policy: PolicyFailStatic, FailStaticWindow: tc.window, SlowStart: time.Minute}, 1, inState("UUUU", ""))
			for _, step := range []struct {
				second int
				states string
			}{
				{0, "UUUU"}, {1, "DUUU"}, {30, "DUUU"}, // a was down long before
				{100, "DDUU"}, {104, "DDDU"}, {106, "DDDU"}, {106, "DDDD"}, {200, "DDDD"},
			} {
				b.Advance(epoch.Add(time.Duration(step.second) * time.Second))
				require.NoError(t, b.Set(inState(step.states, "")...))
			}
			require.Equal(t, ModeFailStatic, b.Mode())
			require.Equal(t, tc.used, used(t, b), "also long after")
			b.Advance(epoch.Add(300 * time.Second))
			require.NoError(t, b.Set(inState("DDRU", "")...))
			require.Equal(t, "d", used(t, b))
			require.NoError(t, b.Set(inState("DDDD", "")...))
			want := "d" // c was drained, and nobody else was up of late
			if tc.window == time.Hour {
				want = "abd"
			}
			require.Equal(t, want, used(t, b))
		})
	}
}

func TestModeAndStateNames(t *testing.T) {
	var modes []string
	for m := ModeNormal; m <= ModeEmpty+1; m++ {
		modes = append(modes, m.String())
	}
	require.Equal(t, []string{"normal", "backup", "failstatic", "panic", "empty", "mode(5)"}, modes)
}

func TestLimitIsValidated(t *testing.T) {
	for want, b := range map[string]Backend[int]{
		`lb: backend 0 "a": limit -1: connection limit is out of range: want 0 (none) to 2147483647`:          {MaxConns: -1},
		`lb: backend 0 "a": limit -2147483648: connection limit is out of range: want 0 (none) to 2147483647`: {MaxConns: math.MinInt32},
	} {
		b.Key = "a"
		_, err := New(Config{}, b)
		require.EqualError(t, err, want)
	}
	_, err := New(Config{}, Backend[int]{Key: "a", MaxConns: math.MaxInt32})
	require.NoError(t, err)
}
