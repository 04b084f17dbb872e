package health

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// node is a host that probes one target, x, every five seconds and reports each
// completed probe, and that sends a heartbeat every second. Its reports reach the
// reader at once unless a test holds them back.
type node struct {
	machine   *Machine
	epoch     uint64
	sequence  uint64
	dead      bool // it does nothing
	hung      bool // its prober does nothing, but its heartbeat goes on
	targetBad bool // x does not answer
	lost      bool // what it sends is lost

	sent []Report // all of it
}

func newNode(t *testing.T, epoch uint64) *node {
	return &node{epoch: epoch, machine: machine(t, Config{Interval: 5 * time.Second, Timeout: time.Second, Fall: 2, Lease: 15 * time.Second})}
}

// run lets the node live from one second to another, the latter not included.
func (n *node) run(t *testing.T, reader *Leases, from, to int) {
	for second := from; second < to; second++ {
		now := at(float64(second))
		if n.dead {
			continue
		}
		n.send(t, reader, now, "", Online, 5*time.Second)
		if n.hung || now.Before(n.machine.Deadline()) {
			continue
		}
		outcome := Good
		if n.targetBad {
			outcome = Bad
		}
		n.machine.Observe(now, Result{Outcome: outcome})
		s := n.machine.At(now)
		n.send(t, reader, now, "x", s.State, n.machine.Config().Lease)
	}
}

func (n *node) send(t *testing.T, reader *Leases, now time.Time, subject string, s State, length time.Duration) {
	n.sequence++
	r := Report{Lease: Lease{Owner: "node", Epoch: n.epoch, Sequence: n.sequence, Length: length}, Subject: subject, State: s}
	n.sent = append(n.sent, r)
	if !n.lost {
		require.NoError(t, reader.Apply(now, r))
	}
}

// last returns the last report about x.
func (n *node) last() Report {
	for i := len(n.sent) - 1; ; i-- {
		if n.sent[i].Subject == "x" {
			return n.sent[i]
		}
	}
}

func stateOf(l *Leases, second float64) string { return states(l, at(second), "x") }

// The report that this package began with: a health monitor that lives on the host
// of what it monitors leaves "online" behind for ever when that host dies.
//
// First the prober is stalled while its host is well, then the host dies, then it is
// back without the target, then the target answers.
func TestProberThatLeavesOnlineBehind(t *testing.T) {
	reader := leases(t, LeasesConfig{NeedOwner: true})
	n := newNode(t, 1)
	n.run(t, reader, 0, 21)
	require.Equal(t, "N", stateOf(reader, 20))

	n.hung = true
	n.run(t, reader, 21, 300)
	require.Equal(t, "N", stateOf(reader, 34.9))
	s, _ := reader.At(at(35), "x")
	require.Equal(t, Status{Since: at(35), Reason: Reason{Code: Expired}}, s, "a heartbeat does not keep a stuck prober's word alive")
	owner, _ := reader.Owner(at(299), "node")
	require.Equal(t, Online, owner.State)

	n.hung = false
	n.run(t, reader, 300, 321)
	require.Equal(t, "N", stateOf(reader, 320))
	n.dead = true
	n.run(t, reader, 321, 400)
	require.Equal(t, "N", stateOf(reader, 324.9))
	s, _ = reader.At(at(325), "x")
	require.Equal(t, Status{Since: at(325), Reason: Reason{Code: OwnerEnded}}, s, "one heartbeat for all its targets, and the bound is its Length")

	again := newNode(t, 2)
	again.targetBad = true
	again.run(t, reader, 400, 405)
	require.Equal(t, "U", stateOf(reader, 404), "no evidence yet, neither the old verdict nor an accusation")
	require.ErrorIs(t, reader.Apply(at(404), n.last()), ErrFenced, "a stale up flag of the past")
	again.run(t, reader, 405, 410)
	require.Equal(t, "F", stateOf(reader, 409))
	again.targetBad = false
	again.run(t, reader, 410, 411)
	require.Equal(t, "N", stateOf(reader, 410), "the first good probe")
}

// https://github.com/hashicorp/consul/pull/912: a renewal that is lost is no reason to
// give up, as long as one gets through in time.
func TestLostRenewals(t *testing.T) {
	reader := leases(t, LeasesConfig{})
	n := newNode(t, 1)
	for second := range 100 {
		n.lost = second%2 != 0 // so every other report about x
		n.run(t, reader, second, second+1)
		require.Equal(t, "N", stateOf(reader, float64(second)), "second %d", second)
	}
}

// https://github.com/haproxy/haproxy/issues/918: after a reload nothing is known, so
// nothing is up.
func TestReloadStartsUnknown(t *testing.T) {
	n := newNode(t, 1)
	n.run(t, leases(t, LeasesConfig{}), 0, 30)
	require.Equal(t, Online, n.machine.At(at(29)).State)
	require.Equal(t, Unknown, newNode(t, 2).machine.At(at(29)).State)
	_, there := leases(t, LeasesConfig{}).At(at(29), "x")
	require.False(t, there)
}

// https://github.com/haproxy/haproxy/issues/3330: a process that has stopped probing
// but still serves must not trust what it knew.
func TestStalledProberDistrustsItself(t *testing.T) {
	n := newNode(t, 1)
	n.run(t, leases(t, LeasesConfig{}), 0, 21)
	require.Equal(t, Online, n.machine.At(at(34.9)).State)
	require.Equal(t, Unknown, n.machine.At(at(35)).State)
}

// https://github.com/kubernetes/client-go/issues/448: a new reader can't know how old
// what it hears is, so it waits for a full Length. That is the price of not comparing
// clocks, and there is no more to it.
func TestNewReaderWaitsForAFullLease(t *testing.T) {
	n := newNode(t, 1)
	n.run(t, leases(t, LeasesConfig{}), 0, 21)
	reader := leases(t, LeasesConfig{})
	require.NoError(t, reader.Apply(at(1000), n.last())) // as a store that kept it would tell
	require.Equal(t, "N", stateOf(reader, 1014.9))
	require.Equal(t, "U", stateOf(reader, 1015))
}

// https://github.com/kubernetes/kubernetes/issues/32510: a reader without a past must
// not act on silence.
func TestNewReaderHoldsStill(t *testing.T) {
	reader := leases(t, LeasesConfig{Hold: 15 * time.Second})
	newNode(t, 1).run(t, reader, 100, 101)
	require.False(t, reader.MayAccuse(at(114.9)))
	require.True(t, reader.MayAccuse(at(115)))
}

// https://github.com/kubernetes/kubernetes/issues/89898: when all probes of a loaded
// node time out together, the node is the cause they have in common.
func TestLoadedObserverDoubtsItselfFirst(t *testing.T) {
	doubt := calm(t, LocalConfig{})
	guard := guardOf(t, FailStaticConfig{}, 10)
	// Its loop ran three seconds late, and by then all ten have timed out.
	doubt.Tick(at(4), at(1), time.Second)
	for i := range 10 {
		guard.Observe(at(4), fmt.Sprint(i), off(4))
	}
	require.False(t, doubt.At(at(4)).MayAccuse)
	require.True(t, frozen(guard, at(4)))
	s, _ := guard.At(at(4), "9")
	require.Equal(t, Online, s.State)
	s, _ = guard.At(at(64), "9")
	require.Equal(t, Offline, s.State, "but not for ever")
}

// Read at ValidUntil or later, each verdict is gone, whoever gives it and whatever it
// was, if nothing is renewed.
func TestNothingOutlivesValidUntil(t *testing.T) {
	vote := vote("a", 1, Offline)
	store, votes := leases(t, LeasesConfig{MayLower: func(string, string) bool { return true }}), quorum(t, time.Second, "a")
	require.NoError(t, store.Apply(at(0), report("x", 1, Online)))
	require.NoError(t, store.Apply(at(0), report("y", 1, Error)))
	require.NoError(t, store.Apply(at(0), report("z", 1, Online)))
	require.NoError(t, store.Apply(at(0), heartbeat(1, time.Minute)))
	require.NoError(t, store.Lower(at(1), Accusation{By: "b", Lease: report("z", 1, Online).Lease, Subject: "z"}))
	require.NoError(t, votes.Report(at(0), vote))
	online, offline, failing := machine(t, Config{}), machine(t, Config{Fall: 1}), machine(t, Config{})
	online.Observe(at(0), Result{Outcome: Good})
	offline.Observe(at(0), Result{Outcome: Bad})
	failing.Observe(at(0), Result{Outcome: LocalError})
	guard := failStatic(t, FailStaticConfig{})
	frozenGuard := failStatic(t, FailStaticConfig{})
	guard.Observe(at(0), "x", on(0, 10))
	for i := range 6 {
		frozenGuard.Observe(at(0), fmt.Sprint(i), on(0, 10))
		frozenGuard.Observe(at(1), fmt.Sprint(i), Status{Offline, at(1), at(30), Reason{}})
	}
	causes := combination(t, AnyOf, "a", "b")
	require.NoError(t, causes.Observe(at(0), "a", says(Online, 0, 10)))
	require.NoError(t, causes.Observe(at(0), "b", says(Online, 0, 20)))
	beats := accrual(t, PhiConfig{})
	beats.Heartbeat(at(0))
	damped := flap(t, FlapConfig{HalfLife: time.Hour})
	for range 3 {
		damped.fallAt(at(0))
	}

	of := func(l *Leases, subject string) func(time.Time) Status {
		return func(now time.Time) Status { s, _ := l.At(now, subject); return s }
	}
	for name, read := range map[string]func(time.Time) Status{
		"machine, online":  online.At,
		"machine, offline": offline.At,
		"machine, error":   failing.At,
		"lease, online":    of(store, "x"),
		"lease, error":     of(store, "y"),
		"lease, lowered":   of(store, "z"),
		"owner":            func(now time.Time) Status { s, _ := store.Owner(now, "a"); return s },
		"quorum":           func(now time.Time) Status { return votes.At(now, "x").Status },
		"guard":            func(now time.Time) Status { s, _ := guard.At(now, "x"); return s },
		"frozen guard":     func(now time.Time) Status { s, _ := frozenGuard.At(now, "0"); return s },
		"combination":      causes.At,
		"heartbeats":       beats.At,
		"damped":           func(now time.Time) Status { return damped.Damp(now, online.At(now)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := read(at(2))
			require.NotEqual(t, Unknown, s.State)
			require.True(t, s.ValidUntil.After(at(2)))
			require.Equal(t, s.State, read(s.ValidUntil.Add(-1)).State)
			for _, late := range []time.Duration{0, 1, time.Second, time.Hour, 24 * 365 * time.Hour} {
				got := read(s.ValidUntil.Add(late))
				require.Equal(t, Unknown, got.State, "%v late", late)
				require.True(t, got.ValidUntil.IsZero())
			}
		})
	}
}
