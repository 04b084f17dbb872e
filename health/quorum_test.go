package health

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func quorum(t testing.TB, settle time.Duration, voters ...string) *Quorum {
	q, err := NewQuorum(QuorumConfig{Voters: voters, Settle: settle, Single: true})
	require.NoError(t, err)
	return q
}

// vote is a voter's report about subject "x" for ten seconds.
func vote(voter string, sequence uint64, state State) Report {
	return Report{Lease: Lease{Owner: voter, Epoch: 1, Sequence: sequence, Length: 10 * time.Second}, Subject: "x", State: state}
}

// Each way in which a voter can stand, for 1 to 7 voters, against counting on one's
// fingers. Even splits are among them.
func TestQuorumOfOneToSeven(t *testing.T) {
	stances := []struct {
		name    string
		down    bool
		reports []Report // Owner is filled in
	}{
		{"says down", true, []Report{vote("", 1, Offline)}},
		{"says up", false, []Report{vote("", 1, Online)}},
		{"missing", false, nil},
		{"stale", false, []Report{{Lease: Lease{Epoch: 1, Length: time.Second}, Subject: "x", State: Offline}}},
		{"could not look", false, []Report{vote("", 1, Error)}},
		{"doubts itself", false, []Report{vote("", 1, Offline), {Lease: Lease{Epoch: 1, Length: time.Minute}, State: Error}}},
	}
	for n := 1; n <= 7; n++ {
		kinds := len(stances)
		if n > 4 {
			kinds = 3 // the last three count like the missing one, as shown by then
		}
		var voters []string
		cases := 1
		for i := range n {
			voters = append(voters, fmt.Sprint("voter", i))
			cases *= kinds
		}
		for c := range cases {
			q := quorum(t, time.Millisecond, voters...)
			down, rest, names := 0, c, ""
			for _, v := range voters {
				stance := stances[rest%kinds]
				rest /= kinds
				names += stance.name + ", "
				if stance.down {
					down++
				}
				for _, r := range stance.reports {
					r.Owner = v
					require.NoError(t, q.Report(at(0), r))
				}
			}
			want := Unknown
			if 2*down > n {
				want = Offline
			}
			got := q.At(at(2), "x")
			if got.State != want || got.Down != down || len(got.Votes) != n {
				t.Fatalf("%s: got %+v, want %v", names, got, want)
			}
		}
	}
}

func TestHalfIsNoMajority(t *testing.T) {
	for _, voters := range [][]string{{"a", "b"}, {"a", "b", "c", "d"}, {"a", "b", "c", "d", "e", "f"}} {
		q := quorum(t, time.Second, voters...)
		half := len(voters) / 2
		for _, v := range voters[:half] {
			require.NoError(t, q.Report(at(0), vote(v, 1, Offline)))
		}
		require.Equal(t, NoMajority, q.At(at(2), "x").Reason.Code, "%d of %d", half, len(voters))
		require.NoError(t, q.Report(at(2), vote(voters[half], 1, Offline)))
		require.Equal(t, Settling, q.At(at(2), "x").Reason.Code)
		require.Equal(t, Offline, q.At(at(3), "x").State)
	}
}

func TestVerdictListsTheVotes(t *testing.T) {
	q := quorum(t, time.Second, "c", "a", "b")
	no := vote("c", 1, Offline)
	no.Detail = "no answer"
	require.NoError(t, q.Report(at(0), no))
	require.NoError(t, q.Report(at(1), vote("a", 1, Offline)))
	require.Equal(t, Verdict{
		Status: Status{Offline, at(2), at(10), Reason{Majority, "2 of 3 voters say down, 2 needed"}},
		Down:   2, Need: 2,
		Votes: []Vote{
			{"a", true, Status{Offline, at(1), at(11), Reason{Code: Reported}}},
			{"b", false, Status{}},
			{"c", true, Status{Offline, at(0), at(10), Reason{Reported, "no answer"}}},
		},
	}, q.At(at(2), "x"))

	v := q.At(at(10), "x")
	require.Equal(t, Status{Unknown, at(10), time.Time{}, Reason{NoMajority, "1 of 3 voters say down, 2 needed"}}, v.Status)
	require.Equal(t, Expired, v.Votes[2].Status.Reason.Code)
	require.Equal(t, Status{Reason: Reason{NoMajority, "0 of 3 voters say down, 2 needed"}}, q.At(at(0), "never heard of").Status)
}

func TestOneVoterOneVote(t *testing.T) {
	q := quorum(t, time.Millisecond, "a", "b", "c")
	for i := range uint64(5) {
		require.NoError(t, q.Report(at(0), vote("a", i, Offline)))
	}
	again := vote("a", 1, Offline)
	again.Epoch, again.Term = 2, 7
	require.NoError(t, q.Report(at(0), again))
	require.Equal(t, 1, q.At(at(1), "x").Down)
	require.ErrorIs(t, q.Report(at(1), vote("a", 9, Online)), ErrFenced, "of its last life")
	require.ErrorIs(t, q.Report(at(1), again), ErrStale)
	again.Term, again.Sequence = 0, 2
	require.NoError(t, q.Report(at(1), again), "votes have no terms")
	require.ErrorIs(t, q.Report(at(1), vote("stranger", 1, Offline)), ErrPermission)
	again.Length = 0
	require.ErrorIs(t, q.Report(at(1), again), ErrReport)
}

// The majority counts, not who it is made of; but it may have no gap.
func TestMajorityMustSettle(t *testing.T) {
	q := quorum(t, 5*time.Second, "a", "b", "c")
	require.NoError(t, q.Report(at(0), vote("a", 1, Offline)))
	require.NoError(t, q.Report(at(0), vote("b", 1, Offline)))
	require.NoError(t, q.Report(at(3), vote("c", 1, Offline)))
	require.NoError(t, q.Report(at(4), vote("a", 2, Online)))
	require.Equal(t, Settling, q.At(at(4.999), "x").Reason.Code)
	require.Equal(t, at(5), q.Deadline(at(4)))
	require.Equal(t, at(5), q.At(at(5), "x").Since)
	require.Equal(t, at(10), q.Deadline(at(5)))

	require.NoError(t, q.Report(at(6), vote("b", 2, Online)))
	require.Equal(t, Status{Since: at(6), Reason: Reason{NoMajority, "1 of 3 voters say down, 2 needed"}}, q.At(at(6), "x").Status)
	require.NoError(t, q.Report(at(6), vote("b", 3, Offline)))
	v := q.At(at(7), "x")
	require.Equal(t, Settling, v.Reason.Code, "an instant of doubt begins it anew")
	require.Equal(t, at(6), v.Since)
	require.Equal(t, at(11), q.Deadline(at(7)))

	// Nobody asked while the votes had ended.
	require.NoError(t, q.Report(at(20), vote("b", 4, Offline)))
	require.NoError(t, q.Report(at(20), vote("c", 2, Offline)))
	require.Equal(t, Settling, q.At(at(24), "x").Reason.Code)
	require.Equal(t, Offline, q.At(at(25), "x").State)
	require.True(t, q.Deadline(at(30)).IsZero())
}

func TestMajorityThatEndsBeforeItSettles(t *testing.T) {
	q := quorum(t, 10*time.Second, "a")
	require.NoError(t, q.Report(at(0), vote("a", 1, Offline)))
	require.True(t, q.Deadline(at(0)).IsZero())
	require.Equal(t, Status{Reason: Reason{NoMajority, "0 of 1 voters say down, 1 needed"}}, q.At(at(10), "x").Status)
}

func TestRestartedVoterHasNoVote(t *testing.T) {
	q := quorum(t, time.Millisecond, "a")
	require.NoError(t, q.Report(at(0), vote("a", 1, Offline)))
	elsewhere := vote("a", 1, Offline)
	elsewhere.Epoch, elsewhere.Subject = 2, "y"
	require.NoError(t, q.Report(at(1), elsewhere))
	v := q.At(at(1), "x")
	require.Equal(t, Unknown, v.State)
	require.Equal(t, at(1), v.Since)
	require.Equal(t, OwnerRestarted, v.Votes[0].Status.Reason.Code)
}

func TestQuorumAfterSuspend(t *testing.T) {
	q := quorum(t, 5*time.Second, "a", "b", "c")
	require.NoError(t, q.Report(at(0), vote("a", 1, Offline)))
	require.NoError(t, q.Report(at(0), vote("b", 1, Offline)))
	long := vote("c", 1, Offline)
	long.Length = time.Minute
	require.NoError(t, q.Report(at(0), long))
	require.Equal(t, Offline, q.At(at(5), "x").State)

	q.Suspended(at(6), 0)
	require.Equal(t, Offline, q.At(at(6), "x").State)
	q.Suspended(at(6), time.Second)
	v := q.At(at(6), "x")
	require.Equal(t, Settling, v.Reason.Code, "a short nap: all votes are left, but we just woke up")
	require.Equal(t, at(6), v.Since)
	q.Suspended(at(7), 30*time.Second)
	v = q.At(at(7), "x")
	require.Equal(t, 1, v.Down)
	require.Equal(t, NoMajority, v.Reason.Code)
}

func TestForgetVotes(t *testing.T) {
	q := quorum(t, time.Millisecond, "a")
	require.NoError(t, q.Report(at(0), vote("a", 1, Offline)))
	require.True(t, q.Forget("x"))
	require.False(t, q.Forget("x"))
	require.Equal(t, Verdict{Status: Status{Reason: Reason{NoMajority, "0 of 1 voters say down, 1 needed"}}, Need: 1, Votes: []Vote{{Voter: "a"}}}, q.At(at(1), "x"))
}

func TestQuorumConfigFaults(t *testing.T) {
	for _, tc := range []struct {
		name   string
		config QuorumConfig
		want   string
	}{
		{"nobody", QuorumConfig{}, "health: Voters is a list of 0: want 1 to 1000 voters"},
		{"too many", QuorumConfig{Voters: make([]string, 1001)}, "health: Voters is a list of 1001: want 1 to 1000 voters"},
		{"twice", QuorumConfig{Voters: []string{"a", "b", "a"}}, `health: Voters is ["a" "b" "a"]: want each voter once, but "a" is there again`},
		{"nameless", QuorumConfig{Voters: []string{"a", ""}}, `health: Voters is ["a" ""]: want a name for each`},
		{"one", QuorumConfig{Voters: []string{"a"}}, `health: Voters is ["a"]: want two or more voters, or Single for the word of one`},
		{"settle", QuorumConfig{Voters: []string{"a", "b"}, Settle: -1}, "health: Settle is -1ns: want 1ms to 24h0m0s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := NewQuorum(tc.config)
			require.ErrorIs(t, err, ErrConfig)
			require.ErrorContains(t, err, tc.want)
		})
	}
	voters := []string{"b", "a"}
	q, err := NewQuorum(QuorumConfig{Voters: voters})
	require.NoError(t, err)
	require.Equal(t, []string{"b", "a"}, voters, "the caller's list is left alone")
	require.NoError(t, q.Report(at(0), vote("a", 1, Offline)))
	require.NoError(t, q.Report(at(0), vote("b", 1, Offline)))
	require.Equal(t, at(1), q.At(at(1), "x").Since, "the default settle time")
}

// cast is a vote of the model, in whole seconds.
type cast struct {
	second, length int
	voter          string
	down           bool
}

// quorumModel tells from the whole history whether the verdict at a second is
// Offline. It counts anew at each second and after each vote, and remembers only
// since when it has found a majority every time.
func quorumModel(history []cast, voters, settle, second int) bool {
	majority := func(history []cast, second int) bool {
		last := map[string]cast{}
		for _, c := range history {
			last[c.voter] = c
		}
		down := 0
		for _, c := range last {
			if c.down && second < c.second+c.length {
				down++
			}
		}
		return 2*down > voters
	}
	since := -1
	for s := 0; s <= second; s++ {
		for i := 0; i <= len(history); i++ {
			before := i < len(history) && history[i].second < s
			after := i > 0 && history[i-1].second > s
			switch {
			case before || after: // not the votes that are known at this second
			case !majority(history[:i], s):
				since = -1
			case since < 0:
				since = s
			}
		}
	}
	return since >= 0 && second >= since+settle
}

func TestQuorumAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "voters")
		settle := rapid.IntRange(1, 4).Draw(t, "settle")
		config := QuorumConfig{Settle: time.Duration(settle) * time.Second, Single: true}
		for i := range n {
			config.Voters = append(config.Voters, string(rune('a'+i)))
		}
		q, err := NewQuorum(config)
		require.NoError(t, err)
		var history []cast
		now := 0
		for i := range rapid.IntRange(1, 20).Draw(t, "votes") {
			now += rapid.IntRange(0, 2).Draw(t, "pause")
			c := cast{now, rapid.IntRange(1, 8).Draw(t, "length"), rapid.SampledFrom(config.Voters).Draw(t, "voter"), rapid.IntRange(0, 4).Draw(t, "down") > 0}
			r := vote(c.voter, uint64(i), Online)
			r.Length = time.Duration(c.length) * time.Second
			if c.down {
				r.State = Offline
			}
			require.NoError(t, q.Report(at(float64(now)), r))
			history = append(history, c)
			for second := now; second < now+12; second++ {
				got := q.At(at(float64(second)), "x")
				if want := quorumModel(history, n, settle, second); want != (got.State == Offline) {
					t.Fatalf("second %d: got %v, want offline %t by %+v, of %d voters", second, got.Status, want, history, n)
				}
				// What the verdict promises of the time to come, it keeps.
				if next := q.Deadline(at(float64(second))); !next.IsZero() {
					require.Equal(t, got.State, q.At(next.Add(-1), "x").State)
					require.NotEqual(t, got.State, q.At(next, "x").State)
				} else {
					require.Equal(t, got.State, q.At(at(float64(second+100)), "x").State)
				}
			}
		}
	})
}
