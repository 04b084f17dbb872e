package nft

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestApplyIsIdempotent(t *testing.T) {
	tab, f := newFake(t)
	cfg := Config{Redirects: []Redirect{api4, api6}}
	res, err := tab.Apply(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, Result{Rebuilt: true, Changed: 8, Atomic: true}, res)
	require.Len(t, f.commits, 1, "one transaction")

	f.hit()
	res, err = tab.Apply(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, Result{Atomic: true}, res)
	require.NoError(t, tab.Verify(t.Context()))
	got, err := tab.Counters(t.Context())
	require.NoError(t, err)
	require.Equal(t, Traffic{Connections: 1, Packets: 1, Bytes: 60}, got[1].External)
}

func TestApplyChangesOnlyWhatDiffers(t *testing.T) {
	tab, f := newFake(t)
	_, err := tab.Apply(t.Context(), Config{Redirects: []Redirect{api4, api6}})
	require.NoError(t, err)
	f.hit()
	moved := api6
	moved.To = 9446
	res, err := tab.Apply(t.Context(), Config{Redirects: []Redirect{dns4, api4, moved}})
	require.NoError(t, err)
	require.Equal(t, Result{Changed: 4 + 2, Atomic: true}, res, "four new elements, two maps with another port")
	got, err := tab.Counters(t.Context())
	require.NoError(t, err)
	require.Equal(t, []uint64{0, 1, 1}, []uint64{got[0].External.Connections, got[1].External.Connections, got[2].External.Connections})

	res, err = tab.Apply(t.Context(), Config{})
	require.NoError(t, err)
	require.Equal(t, Result{Changed: 12, Atomic: true}, res)
	require.Len(t, f.table.chains, 4, "the chains stay, so open connections live on")
}

func TestApplyCopiesTheConfig(t *testing.T) {
	tab, _ := newFake(t)
	list := []Redirect{api4}
	_, err := tab.Apply(t.Context(), Config{Redirects: list})
	require.NoError(t, err)
	list[0].To = 1
	got, err := tab.Counters(t.Context())
	require.NoError(t, err)
	require.Equal(t, api4, got[0].Redirect)
}

func TestApplyFailureKeepsTheOldState(t *testing.T) {
	tab, f := newFake(t)
	_, err := tab.Apply(t.Context(), Config{Redirects: []Redirect{api4}})
	require.NoError(t, err)
	f.hit()
	f.refuse = errors.New("operation not permitted")
	_, err = tab.Apply(t.Context(), Config{Redirects: []Redirect{dns4}})
	require.ErrorIs(t, err, f.refuse)
	f.refuse = nil
	require.NoError(t, tab.Verify(t.Context()), "what was applied before still is")
	got, err := tab.Counters(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, got[0].External.Connections)
}

func TestApplyRefusesAForeignTable(t *testing.T) {
	tab, f := newFake(t)
	theirs := state{present: true, chains: map[string]chainState{"input": {kind: "filter", hook: "input"}}}
	f.table = theirs
	_, err := tab.Apply(t.Context(), Config{Redirects: []Redirect{api4}})
	require.ErrorIs(t, err, ErrForeign)
	require.ErrorIs(t, tab.Remove(t.Context()), ErrForeign)
	require.Empty(t, f.commits)
	require.Equal(t, theirs, f.table)
}

func TestApplyPlansAgainWhenTheTableChangedMeanwhile(t *testing.T) {
	tab, f := newFake(t)
	_, err := tab.Apply(t.Context(), Config{Redirects: []Redirect{api4}})
	require.NoError(t, err)
	f.afterRead = func() { f.now = f.now.Add(tab.opts.Timeout) } // expires before it can be deleted
	_, err = tab.Apply(t.Context(), Config{Redirects: []Redirect{api6}})
	require.NoError(t, err)
	require.NoError(t, tab.Verify(t.Context()))
}

// Lost answers say nothing about the commit:
// https://github.com/google/nftables/issues/103 and
// https://github.com/google/nftables/issues/350.
func TestLostAnswersAreVerified(t *testing.T) {
	tab, f := newFake(t)
	f.lose = true
	_, err := tab.Apply(t.Context(), Config{Redirects: []Redirect{api4}})
	require.NoError(t, err, "it was committed")
	require.NoError(t, tab.Renew(t.Context()))

	f.refuse = errUncertain
	_, err = tab.Apply(t.Context(), Config{Redirects: []Redirect{api6}})
	var mismatch *MismatchError
	require.ErrorAs(t, err, &mismatch, "it was not committed")
	f.refuse = nil
	require.NoError(t, tab.Verify(t.Context()), "and the old state stands")
}

// The library does not tell when a listing was interrupted by another writer.
func TestTornListingIsReadAgain(t *testing.T) {
	tab, f := newFake(t)
	cfg := Config{Redirects: []Redirect{api4}}
	_, err := tab.Apply(t.Context(), cfg)
	require.NoError(t, err)
	f.hit()
	f.torn = true
	require.NoError(t, tab.Verify(t.Context()))
	f.torn = true
	require.NoError(t, tab.Renew(t.Context()))
	f.torn = true
	res, err := tab.Apply(t.Context(), cfg)
	require.NoError(t, err)
	require.False(t, res.Rebuilt, "no base chain is made anew without need")
	f.torn = true
	got, err := tab.Counters(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, got[0].External.Connections, "neither lost nor counted twice")
}

func TestConflictsAreReportedNotFatal(t *testing.T) {
	tab, f := newFake(t)
	f.foreign = []baseChain{
		{"ip", "first", "pre", "nat", "prerouting", -120, false},
		{"inet", "same", "out", "nat", "output", -110, false},
		{"ip6", "later", "pre", "nat", "prerouting", -100, false},
		{"ip", "post", "post", "nat", "postrouting", -120, false},
		{"inet", "firewall", "in", "filter", "input", 0, true},
		{"inet", "firewall", "fwd", "filter", "forward", 0, true},
	}
	res, err := tab.Apply(t.Context(), Config{})
	require.NoError(t, err)
	require.Equal(t, []Conflict{
		{"ip", "first", "pre", "prerouting", -120, RewritesFirst},
		{"inet", "same", "out", "output", -110, SamePriority},
		{"inet", "firewall", "in", "input", 0, Drops},
	}, res.Conflicts)
	require.Equal(t, `chain pre of table ip first (hook prerouting, priority -120) rewrites before ours; choose a lower Options.Priority`, res.Conflicts[0].String())

	f.chainsFail = errors.New("interrupted")
	res, err = tab.Apply(t.Context(), Config{})
	require.NoError(t, err)
	require.ErrorIs(t, res.ConflictsErr, f.chainsFail)
}

func TestRenewOutlivesTheTimeout(t *testing.T) {
	for _, old := range []bool{false, true} {
		t.Run(map[bool]string{false: "kernel extends", true: "kernel before 6.12"}[old], func(t *testing.T) {
			tab, f := newFake(t)
			f.old = old
			_, err := tab.Apply(t.Context(), Config{Redirects: []Redirect{api4, api6}})
			require.NoError(t, err)
			for i := range 12 { // four timeouts
				f.hit()
				f.now = f.now.Add(tab.RenewEvery())
				require.NoError(t, tab.Renew(t.Context()))
				require.NoError(t, tab.Verify(t.Context()))
				require.Equal(t, Installed, tab.Status().State)
				got, err := tab.Counters(t.Context())
				require.NoError(t, err)
				require.EqualValues(t, i+1, got[0].External.Connections, "no count is lost")
				require.EqualValues(t, 60*(i+1), got[1].Local.Bytes)
			}
			require.Equal(t, old, tab.replaces)
			require.Equal(t, time.Unix(1e9, 0), tab.Status().Since)
		})
	}
}

// A renewal that repeats the timeout is the trap: nothing is extended.
func TestRenewAlternatesTimeouts(t *testing.T) {
	tab, f := newFake(t)
	_, err := tab.Apply(t.Context(), Config{Redirects: []Redirect{api4}})
	require.NoError(t, err)
	_, err = tab.Apply(t.Context(), Config{Redirects: []Redirect{api4, api6}})
	require.NoError(t, err, "now the two have different timeouts")
	for range 3 {
		before := f.table.clone()
		f.now = f.now.Add(time.Second)
		require.NoError(t, tab.Renew(t.Context()))
		for name, set := range f.table.sets {
			for k, e := range set.elems {
				require.NotEqual(t, before.sets[name].elems[k].timeout, e.timeout, "%s %s", name, keyText(k))
			}
		}
	}
	require.False(t, tab.replaces)
}

func TestRenewBringsBackWhatExpired(t *testing.T) {
	tab, f := newFake(t)
	_, err := tab.Apply(t.Context(), Config{Redirects: []Redirect{api4}})
	require.NoError(t, err)
	f.hit()
	require.NoError(t, tab.Verify(t.Context()))
	f.now = f.now.Add(2 * tab.opts.Timeout)
	require.Equal(t, Status{State: Unknown, Since: time.Unix(1e9, 0).Add(tab.opts.Timeout), Reason: Expired}, tab.Status())
	var mismatch *MismatchError
	require.ErrorAs(t, tab.Verify(t.Context()), &mismatch)
	require.Equal(t, "element 192.0.2.1 . tcp . 6443 of set external4_packets is missing, want a counter", mismatch.Differences[0].String())

	require.NoError(t, tab.Renew(t.Context()))
	require.NoError(t, tab.Verify(t.Context()))
	got, err := tab.Counters(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, got[0].External.Connections)
}

func TestRenewRepairsNothingElse(t *testing.T) {
	for name, damage := range map[string]func(*fakeKernel){
		"table gone": func(f *fakeKernel) { f.table = state{} },
		"value":      func(f *fakeKernel) { f.edit(setName{}, api4, func(e *elemState) { e.value = dns4.value() }) },
		"rule": func(f *fakeKernel) {
			c := f.table.chains["output"]
			c.rules = c.rules[:1]
			f.table.chains["output"] = c
		},
	} {
		t.Run(name, func(t *testing.T) {
			tab, f := newFake(t)
			cfg := Config{Redirects: []Redirect{api4}}
			_, err := tab.Apply(t.Context(), cfg)
			require.NoError(t, err)
			damage(f)
			err = tab.Renew(t.Context())
			var mismatch *MismatchError
			require.ErrorAs(t, err, &mismatch)
			require.Equal(t, name == "table gone", errors.Is(err, ErrNotInstalled))
			require.Equal(t, Faulty, tab.Status().State)
			require.Equal(t, Mismatch, tab.Status().Reason)
			require.False(t, tab.replaces, "no sign of an old kernel")

			_, err = tab.Apply(t.Context(), cfg)
			require.NoError(t, err)
			require.NoError(t, tab.Verify(t.Context()))
			require.Equal(t, Installed, tab.Status().State)
		})
	}
}

func TestStatusWithoutRenewalIsUnknown(t *testing.T) {
	tab, f := newFake(t)
	require.Equal(t, Status{}, tab.Status())
	_, err := tab.Apply(t.Context(), Config{Redirects: []Redirect{api4}})
	require.NoError(t, err)
	start := f.now
	installed := Status{Installed, start, start.Add(DefaultTimeout), Applied}
	require.Equal(t, installed, tab.Status())

	// Verify proves the content, but the kernel's lifetimes run on.
	f.now = start.Add(DefaultTimeout - time.Second)
	require.NoError(t, tab.Verify(t.Context()))
	installed.Reason = Verified
	require.Equal(t, installed, tab.Status())

	f.now = start.Add(DefaultTimeout)
	require.Equal(t, Status{Unknown, f.now, time.Time{}, Expired}, tab.Status())

	require.NoError(t, tab.Remove(t.Context()))
	require.Equal(t, Removed, tab.Status().State)
	f.now = f.now.Add(DefaultTimeout)
	require.Equal(t, Unknown, tab.Status().State, "somebody may have made the table again")
}

func TestNothingApplied(t *testing.T) {
	tab, f := newFake(t)
	require.ErrorIs(t, tab.Renew(t.Context()), ErrNotApplied)
	require.ErrorIs(t, tab.Verify(t.Context()), ErrNotApplied)
	_, err := tab.Counters(t.Context())
	require.ErrorIs(t, err, ErrNotApplied)
	require.Empty(t, f.commits)

	require.NoError(t, tab.Remove(t.Context()), "removing what is not there is no error")
	_, err = tab.Apply(t.Context(), Config{Redirects: []Redirect{api4}})
	require.NoError(t, err)
	require.NoError(t, tab.Remove(t.Context()))
	require.False(t, f.table.present)
	require.ErrorIs(t, tab.Verify(t.Context()), ErrNotApplied)
}

// A process that was restarted finds its table and goes on with its counters.
func TestAnotherProcessTakesTheTableOver(t *testing.T) {
	tab, f := newFake(t)
	cfg := Config{Redirects: []Redirect{api4}}
	_, err := tab.Apply(t.Context(), cfg)
	require.NoError(t, err)
	f.hit()
	next, err := New(Options{})
	require.NoError(t, err)
	next.k, next.now = f, tab.now
	res, err := next.Apply(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, Result{Atomic: true}, res)
	got, err := next.Counters(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, got[0].External.Connections)
}

func TestCountersSurviveARebuild(t *testing.T) {
	tab, f := newFake(t)
	cfg := Config{Redirects: []Redirect{api4}}
	_, err := tab.Apply(t.Context(), cfg)
	require.NoError(t, err)
	f.hit()
	f.table.flags = 1 // dormant
	res, err := tab.Apply(t.Context(), cfg)
	require.NoError(t, err)
	require.True(t, res.Rebuilt)
	f.hit() // as many as before: the sum must not stand still
	got, err := tab.Counters(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, got[0].Local.Packets)
}

func TestSmallBuffersTakeSeveralTransactions(t *testing.T) {
	tab, f := newFake(t)
	f.limit = 212992
	cfg := Config{Redirects: manyRedirects(4000)}
	res, err := tab.Apply(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, Result{Rebuilt: true, Changed: 16000, Atomic: false}, res)
	require.Greater(t, len(f.commits), 2)
	require.NoError(t, tab.Renew(t.Context()))
	require.NoError(t, tab.Verify(t.Context()))
}
