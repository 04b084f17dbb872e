package health

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func leases(t testing.TB, c LeasesConfig) *Leases {
	l, err := NewLeases(c)
	require.NoError(t, err)
	return l
}

// report is one of owner "a" in its first epoch, for ten seconds.
func report(subject string, sequence uint64, state State) Report {
	return Report{Lease: Lease{Owner: "a", Epoch: 1, Sequence: sequence, Length: 10 * time.Second}, Subject: subject, State: state}
}

func heartbeat(sequence uint64, length time.Duration) Report {
	r := report("", sequence, Online)
	r.Length = length
	return r
}

// states returns the states of the subjects, one letter each.
func states(l *Leases, now time.Time, subjects ...string) string {
	var out strings.Builder
	for _, s := range subjects {
		status, _ := l.At(now, s)
		out.WriteString(letters[status.State])
	}
	return out.String()
}

func TestLeaseEndsUnlessRenewed(t *testing.T) {
	l := leases(t, LeasesConfig{})
	_, there := l.At(at(0), "x")
	require.False(t, there)

	r := report("x", 1, Online)
	r.Detail = "status 200"
	require.NoError(t, l.Apply(at(1), r))
	s, there := l.At(at(1), "x")
	require.True(t, there)
	require.Equal(t, Status{Online, at(1), at(11), Reason{Reported, "status 200"}}, s)

	require.NoError(t, l.Apply(at(5), report("x", 2, Online)))
	s, _ = l.At(at(14.999), "x")
	require.Equal(t, Status{Online, at(1), at(15), Reason{Code: Reported}}, s, "a renewal keeps Since")
	s, _ = l.At(at(15), "x")
	require.Equal(t, Status{Unknown, at(15), time.Time{}, Reason{Code: Expired}}, s)

	require.NoError(t, l.Apply(at(16), report("x", 3, Online)))
	s, _ = l.At(at(16), "x")
	require.Equal(t, at(16), s.Since, "one second of nothing lies between")
	require.NoError(t, l.Apply(at(17), report("x", 4, Offline)))
	s, _ = l.At(at(17), "x")
	require.Equal(t, Status{Offline, at(17), at(27), Reason{Code: Reported}}, s)
	require.Equal(t, map[string]Status{"x": s}, l.Snapshot(at(17)))
	require.NoError(t, l.Apply(at(18), report("x", 5, Unknown)))
	s, _ = l.At(at(18), "x")
	require.Equal(t, Status{Unknown, at(18), time.Time{}, Reason{Code: Reported}}, s)
}

// The effective expiry is that of the lease that ends first.
func TestOwnerLeaseBoundsAllItsSubjects(t *testing.T) {
	l := leases(t, LeasesConfig{})
	long := report("x", 1, Online)
	long.Length = time.Hour
	require.NoError(t, l.Apply(at(0), long))
	require.NoError(t, l.Apply(at(0), report("y", 1, Online)))
	require.Equal(t, "NU", states(l, at(10), "x", "y"), "no heartbeat yet, so each for itself")

	require.NoError(t, l.Apply(at(10), heartbeat(1, 20*time.Second)))
	s, _ := l.At(at(29.9), "x")
	require.Equal(t, at(30), s.ValidUntil)
	s, _ = l.At(at(30), "x")
	require.Equal(t, Status{Since: at(30), Reason: Reason{Code: OwnerEnded}}, s)

	// The owner was silent, not gone: what it said of x still holds.
	require.NoError(t, l.Apply(at(40), heartbeat(2, 20*time.Second)))
	s, _ = l.At(at(41), "x")
	require.Equal(t, Status{Online, at(40), at(60), Reason{Code: Reported}}, s)

	// An owner that doubts itself vouches for nothing.
	doubt := heartbeat(3, 20*time.Second)
	doubt.State = Error
	require.NoError(t, l.Apply(at(45), doubt))
	s, _ = l.At(at(46), "x")
	require.Equal(t, Status{Since: at(45), Reason: Reason{Code: OwnerEnded}}, s)
	s, _ = l.Owner(at(46), "a")
	require.Equal(t, Error, s.State)
	s, _ = l.At(at(100), "x")
	require.Equal(t, at(45), s.Since, "nor once its doubt has expired")
}

func TestNeedOwner(t *testing.T) {
	l := leases(t, LeasesConfig{NeedOwner: true})
	require.NoError(t, l.Apply(at(0), report("x", 1, Online)))
	require.Equal(t, "U", states(l, at(0), "x"))
	s, there := l.Owner(at(0), "a")
	require.True(t, there)
	require.Equal(t, Unknown, s.State)
	_, there = l.Owner(at(0), "b")
	require.False(t, there)
	require.NoError(t, l.Apply(at(1), heartbeat(1, time.Second)))
	require.Equal(t, "N", states(l, at(1), "x"))
	require.Equal(t, "U", states(l, at(2), "x"))
}

// An owner that was killed and started again knows nothing, so nothing is known.
func TestOwnerRestartBeginsWithUnknown(t *testing.T) {
	l := leases(t, LeasesConfig{})
	require.NoError(t, l.Apply(at(0), heartbeat(1, time.Hour)))
	require.NoError(t, l.Apply(at(0), report("x", 100, Online)))
	require.NoError(t, l.Apply(at(0), report("y", 100, Offline)))

	again := heartbeat(1, time.Hour)
	again.Epoch = 2
	require.NoError(t, l.Apply(at(2), again))
	require.Equal(t, "UU", states(l, at(2), "x", "y"))
	s, _ := l.At(at(3), "x")
	require.Equal(t, Status{Since: at(2), Reason: Reason{Code: OwnerRestarted}}, s)

	first := report("x", 1, Online) // it counts from the start again
	first.Epoch = 2
	require.NoError(t, l.Apply(at(4), first))
	require.Equal(t, "NU", states(l, at(4), "x", "y"))
	s, _ = l.At(at(4), "x")
	require.Equal(t, at(4), s.Since)
}

func TestRestartIsNoticedWithoutHeartbeats(t *testing.T) {
	l := leases(t, LeasesConfig{})
	require.NoError(t, l.Apply(at(0), report("x", 1, Online)))
	require.NoError(t, l.Apply(at(0), report("y", 1, Online)))
	again := report("x", 1, Offline)
	again.Epoch = 2
	require.NoError(t, l.Apply(at(1), again))
	require.Equal(t, "FU", states(l, at(1), "x", "y"))
}

// What was sent before the restart and arrives after it changes nothing.
func TestLatePacketOfAnOldEpochIsFenced(t *testing.T) {
	l := leases(t, LeasesConfig{MayLower: func(string, string) bool { return true }})
	again := report("x", 1, Offline)
	again.Epoch = 2
	require.NoError(t, l.Apply(at(0), again))
	before := l.Snapshot(at(1))

	late := report("x", 1000, Online)
	require.ErrorIs(t, l.Apply(at(1), late), ErrFenced)
	late.Term = 9
	require.ErrorIs(t, l.Apply(at(1), late), ErrFenced, "a term does not make a dead owner alive")
	require.ErrorIs(t, l.Apply(at(1), report("new", 1, Online)), ErrFenced)
	require.ErrorIs(t, l.Apply(at(1), heartbeat(1, time.Second)), ErrFenced)
	require.ErrorIs(t, l.Lower(at(1), Accusation{By: "b", Lease: late.Lease, Subject: "x"}), ErrFenced)
	require.Equal(t, before, l.Snapshot(at(1)))
}

// https://github.com/kubernetes/kubernetes/issues/113081: renewals are told apart by
// a number that grows and not by a time of the writer's clock, which may go back.
func TestRenewalsAreOrderedBySequence(t *testing.T) {
	l := leases(t, LeasesConfig{})
	require.NoError(t, l.Apply(at(0), report("x", 5, Online)))
	for _, old := range []uint64{5, 4, 0} {
		require.ErrorIs(t, l.Apply(at(1), report("x", old, Offline)), ErrStale)
	}
	require.NoError(t, l.Apply(at(1), report("y", 1, Online)), "each subject counts for itself")
	s, _ := l.At(at(2), "x")
	require.Equal(t, at(10), s.ValidUntil, "a replayed report renews nothing")
}

// https://github.com/hashicorp/consul/issues/1172 and
// https://github.com/kubernetes/kubernetes/issues/6193: the end is exact, and it is
// reckoned from the arrival by the reader's clock alone.
func TestLateRenewalIsJudgedByItsArrival(t *testing.T) {
	l := leases(t, LeasesConfig{})
	require.NoError(t, l.Apply(at(0), report("x", 1, Online)))
	require.Equal(t, "U", states(l, at(10), "x"))
	// Sent at 9, in time by the writer's clock.
	require.NoError(t, l.Apply(at(12), report("x", 2, Online)))
	s, _ := l.At(at(12), "x")
	require.Equal(t, Status{Online, at(12), at(22), Reason{Code: Reported}}, s)
	require.Empty(t, l.Expire(at(12)), "the sweep came late, and has nothing true to say")
}

// https://github.com/kubernetes/kubernetes/issues/47671: the length travels with the
// lease, as only its writer knows how often it renews.
func TestLengthTravelsWithTheLease(t *testing.T) {
	l := leases(t, LeasesConfig{})
	r := report("x", 1, Online)
	r.Length = 3 * time.Second
	require.NoError(t, l.Apply(at(0), r))
	r.Sequence, r.Length = 2, time.Minute
	require.NoError(t, l.Apply(at(1), r))
	s, _ := l.At(at(2), "x")
	require.Equal(t, at(61), s.ValidUntil)
}

func TestOnlyTheHolderRaises(t *testing.T) {
	l := leases(t, LeasesConfig{})
	require.NoError(t, l.Apply(at(0), report("x", 1, Offline)))
	other := report("x", 99, Online)
	other.Owner, other.Epoch = "b", 7
	require.ErrorIs(t, l.Apply(at(1), other), ErrHeld)
	require.ErrorIs(t, l.Apply(at(30), other), ErrHeld, "also when the lease has ended")
	require.Equal(t, "F", states(l, at(1), "x"))

	other.Term = 1
	require.NoError(t, l.Apply(at(2), other), "a take-over")
	require.Equal(t, "N", states(l, at(2), "x"))
	require.ErrorIs(t, l.Apply(at(3), report("x", 2, Offline)), ErrFenced, "the last holder")

	back := report("x", 3, Online)
	back.Term = 2
	require.NoError(t, l.Apply(at(4), back))
	require.ErrorIs(t, l.Apply(at(5), other), ErrFenced)
	s, _ := l.At(at(5), "x")
	require.Equal(t, at(4), s.Since, "another holder, another verdict")
	back.Term, back.Sequence = 3, 0
	require.NoError(t, l.Apply(at(6), back), "a new term counts from the start")
}

func TestOthersMayLower(t *testing.T) {
	accuse := func(sequence uint64, length time.Duration) Accusation {
		r := report("x", sequence, Online)
		r.Length = length
		return Accusation{By: "b", Lease: r.Lease, Subject: "x", Detail: "no answer"}
	}
	l := leases(t, LeasesConfig{MayLower: func(by, subject string) bool { return by == "b" && subject == "x" }})
	require.ErrorIs(t, l.Lower(at(0), accuse(1, time.Second)), ErrNoTarget)
	require.NoError(t, l.Apply(at(0), report("x", 2, Online)))
	require.ErrorIs(t, l.Lower(at(1), accuse(1, time.Second)), ErrStale, "refuted before it arrived")
	c := accuse(2, time.Second)
	c.By = "c"
	require.ErrorIs(t, l.Lower(at(1), c), ErrPermission)
	c = accuse(2, time.Second)
	c.Epoch = 2
	require.ErrorIs(t, l.Lower(at(1), c), ErrFenced)

	require.NoError(t, l.Lower(at(1), accuse(2, 4*time.Second)))
	s, _ := l.At(at(1), "x")
	require.Equal(t, Status{Offline, at(1), at(5), Reason{Lowered, "by b: no answer"}}, s)
	require.NoError(t, l.Lower(at(2), accuse(2, time.Second)), "again, but shorter")
	s, _ = l.At(at(2), "x")
	require.Equal(t, Status{Offline, at(1), at(5), Reason{Lowered, "by b: no answer"}}, s)
	s, _ = l.At(at(5), "x")
	require.Equal(t, Unknown, s.State, "not Online, though the holder's lease would last until 10")

	require.NoError(t, l.Apply(at(6), report("x", 3, Online)))
	s, _ = l.At(at(6), "x")
	require.Equal(t, Status{Online, at(6), at(16), Reason{Code: Reported}}, s, "only the holder brings it back")

	require.NoError(t, l.Lower(at(7), accuse(5, time.Second)))
	require.NoError(t, l.Lower(at(7), accuse(4, time.Second)))
	require.ErrorIs(t, l.Apply(at(7.9), report("x", 5, Online)), ErrStale, "the accuser knew a later renewal")
	require.NoError(t, l.Apply(at(8), report("x", 5, Online)), "but its word ends, be the number what it may")
	require.NoError(t, l.Lower(at(9), accuse(math.MaxUint64, time.Second)))
	require.NoError(t, l.Lower(at(10), accuse(5, time.Second)), "another one, of less")
	require.NoError(t, l.Apply(at(10), report("x", 6, Online)))
	require.ErrorIs(t, leases(t, LeasesConfig{}).Lower(at(0), accuse(1, 1)), ErrPermission, "by default nobody may")

	require.NoError(t, l.Apply(at(10), heartbeat(1, time.Second)))
	require.NoError(t, l.Apply(at(10), report("x", 7, Online)))
	require.NoError(t, l.Lower(at(10), accuse(7, 5*time.Second)))
	require.Equal(t, "FU", states(l, at(11), "x", "z"), "the owner is gone, but it is not the owner who says so")

	again := heartbeat(1, time.Second)
	again.Epoch = 2
	require.NoError(t, l.Apply(at(20), again))
	require.ErrorIs(t, l.Lower(at(20), accuse(7, time.Second)), ErrFenced, "what it accuses died with the owner's epoch")
}

func TestAccusedOwnerVouchesForNothing(t *testing.T) {
	l := leases(t, LeasesConfig{MayLower: func(string, string) bool { return true }})
	dead := Accusation{By: "b", Lease: heartbeat(1, time.Minute).Lease}
	require.ErrorIs(t, l.Lower(at(0), dead), ErrNoTarget)
	require.NoError(t, l.Apply(at(0), heartbeat(1, time.Minute)))
	require.NoError(t, l.Apply(at(0), report("x", 1, Online)))
	require.NoError(t, l.Lower(at(1), dead))
	require.Equal(t, "U", states(l, at(1), "x"))
	s, _ := l.Owner(at(1), "a")
	require.Equal(t, Offline, s.State)
	require.NoError(t, l.Apply(at(2), heartbeat(2, time.Minute)), "it was a mistake")
	require.Equal(t, "N", states(l, at(2), "x"))
}

func TestExpireOnlyAnnounces(t *testing.T) {
	l := leases(t, LeasesConfig{})
	require.True(t, l.Deadline().IsZero())
	require.NoError(t, l.Apply(at(0), heartbeat(1, 12*time.Second)))
	for _, r := range []Report{report("y", 1, Online), report("x", 1, Offline), report("u", 1, Unknown)} {
		require.NoError(t, l.Apply(at(0), r))
	}
	late := report("z", 1, Online)
	late.Length = time.Hour
	require.NoError(t, l.Apply(at(0), late))

	require.Equal(t, at(10), l.Deadline())
	require.Empty(t, l.Expire(at(9.9)))
	require.Equal(t, "UUN", states(l, at(10), "x", "y", "z"), "before any sweep")
	gone := func(when float64, code Code) Status { return Status{Since: at(when), Reason: Reason{Code: code}} }
	require.Equal(t, []LeaseEvent{
		{"a", "x", Offline, gone(10, Expired)},
		{"a", "y", Online, gone(10, Expired)},
	}, l.Expire(at(11)))
	require.Empty(t, l.Expire(at(11)))
	require.Equal(t, at(12), l.Deadline())
	end := []LeaseEvent{{"a", "", Online, gone(12, Expired)}, {"a", "z", Online, gone(12, OwnerEnded)}}
	require.Equal(t, end, l.Expire(at(20)))
	require.True(t, l.Deadline().IsZero())

	// z is back with its owner, and ends once more.
	require.NoError(t, l.Apply(at(20), heartbeat(2, time.Second)))
	require.Equal(t, at(21), l.Deadline())
	require.Len(t, l.Expire(at(21)), 2)
}

// https://github.com/golang/go/issues/24595: the monotonic clock stands still while
// the machine sleeps, so a lease would last longer by the nap.
func TestSuspendEndsLeases(t *testing.T) {
	l := leases(t, LeasesConfig{Hold: 3 * time.Second})
	require.False(t, l.MayAccuse(at(0)), "nothing was heard yet")
	require.NoError(t, l.Apply(at(0), report("short", 1, Online)))
	require.False(t, l.MayAccuse(at(2)), "a new reader holds still")
	require.True(t, l.MayAccuse(at(3)))
	long := report("long", 1, Online)
	long.Length = time.Minute
	require.NoError(t, l.Apply(at(0), long))

	l.Suspended(at(4), 0)
	l.Suspended(at(4), -time.Second)
	require.True(t, l.MayAccuse(at(4)))

	l.Suspended(at(4), 6*time.Second) // exactly what remains of short
	s, _ := l.At(at(4), "short")
	require.Equal(t, Status{Since: at(4), Reason: Reason{Code: Suspended}}, s)
	s, _ = l.At(at(4), "long")
	require.Equal(t, at(54), s.ValidUntil, "the nap counts against it too")
	require.False(t, l.MayAccuse(at(6.9)), "its silence was ours")
	require.True(t, l.MayAccuse(at(7)))
	require.Equal(t, []LeaseEvent{{"a", "short", Online, Status{Since: at(4), Reason: Reason{Code: Suspended}}}}, l.Expire(at(4)))

	require.NoError(t, l.Apply(at(5), heartbeat(1, time.Second)))
	l.Suspended(at(5), 2*time.Second)
	s, _ = l.At(at(6), "long")
	require.Equal(t, Status{Since: at(5), Reason: Reason{Code: Suspended}}, s, "its owner's lease ended so")
}

// https://github.com/kubernetes/kubernetes/issues/108844: a step of the wall clock by
// a day is no event. Instants that carry a monotonic reading are compared by that
// alone, so it is enough that no end of a lease loses it.
func TestWallClockStepHasNoEffect(t *testing.T) {
	monotonic := func(when time.Time) {
		t.Helper()
		require.Contains(t, when.String(), " m=")
		require.NotContains(t, when.Round(0).String(), " m=", "the check can fail")
	}
	now := time.Now()
	l := leases(t, LeasesConfig{})
	require.NoError(t, l.Apply(now, heartbeat(1, 5*time.Second)))
	require.NoError(t, l.Apply(now, report("x", 1, Online)))
	l.Suspended(now, time.Second)
	s, _ := l.At(now, "x")
	monotonic(s.ValidUntil)
	monotonic(l.Deadline())
	l.Suspended(now, 10*time.Second)
	s, _ = l.At(now, "x")
	monotonic(s.Since)

	m := machine(t, Config{})
	m.Observe(now, Result{Outcome: Good})
	monotonic(m.At(now).ValidUntil)
	monotonic(m.Deadline())
}

func TestForget(t *testing.T) {
	l := leases(t, LeasesConfig{})
	require.False(t, l.Forget("x"))
	require.False(t, l.ForgetOwner("a"))
	require.NoError(t, l.Apply(at(0), report("x", 1, Online)))
	require.NoError(t, l.Apply(at(0), report("y", 1, Online)))
	require.True(t, l.Forget("x"))
	require.Len(t, l.Snapshot(at(0)), 1)
	require.True(t, l.ForgetOwner("a"))
	require.Empty(t, l.Snapshot(at(0)))
	other := report("y", 1, Online)
	other.Owner, other.Epoch = "b", 0
	require.NoError(t, l.Apply(at(0), other))
}

func TestBadReports(t *testing.T) {
	l := leases(t, LeasesConfig{MayHold: func(owner, subject string) bool { return subject != "secret" }})
	for _, tc := range []struct {
		name   string
		change func(*Report)
		want   string
	}{
		{"no owner", func(r *Report) { r.Owner = "" }, `health: bad report: "x" of "": Owner is empty: want a name`},
		{"no length", func(r *Report) { r.Length = 0 }, `health: bad report: "x" of "a": Length is 0s: want 1ns to 30000h0m0s`},
		{"for ever", func(r *Report) { r.Length = maxLease + 1 }, `health: bad report: "x" of "a": Length is 30000h0m0.000000001s: want 1ns to 30000h0m0s`},
		{"state", func(r *Report) { r.State = 4 }, `health: bad report: "x" of "a": State is state(4): want one of the states`},
		{"not permitted", func(r *Report) { r.Subject = "secret" }, `health: not permitted: "secret" of "a": MayHold refuses`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := report("x", 1, Online)
			tc.change(&r)
			require.EqualError(t, l.Apply(at(0), r), tc.want)
			require.Empty(t, l.Snapshot(at(0)))
			_, there := l.Owner(at(0), "a")
			require.False(t, there)
		})
	}
	require.ErrorIs(t, l.Lower(at(0), Accusation{Lease: Lease{Length: 1}}), ErrReport)
	for _, hold := range []time.Duration{-1, 1, 25 * time.Hour} {
		_, err := NewLeases(LeasesConfig{Hold: hold})
		require.ErrorIs(t, err, ErrConfig)
	}
}
