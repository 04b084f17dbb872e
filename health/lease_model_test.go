package health

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// accepted is an input that the store took, with its arrival.
type accepted struct {
	when time.Time
	r    Report
	low  bool // it was an accusation
}

// leaseModel tells from the whole history whether a subject is online: the last
// input about it is a report of its holder's last epoch, is not over, and so is
// the last heartbeat of that epoch if there was one.
func leaseModel(history []accepted, subject string, now time.Time) bool {
	var last, beat *accepted
	for i, h := range history {
		if h.r.Subject == subject {
			last = &history[i]
		}
	}
	if last == nil || last.low || last.r.State != Online || !now.Before(last.when.Add(last.r.Length)) {
		return false
	}
	for i, h := range history {
		switch {
		case h.r.Owner != last.r.Owner || h.low && h.r.Subject != "":
		case h.r.Epoch > last.r.Epoch:
			return false
		case h.r.Epoch == last.r.Epoch && h.r.Subject == "":
			beat = &history[i]
		}
	}
	return beat == nil || !beat.low && beat.r.State == Online && now.Before(beat.when.Add(beat.r.Length))
}

// Whatever arrives in whatever order, a subject is online exactly when the model
// says so, and never after ValidUntil.
func TestLeasesAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, err := NewLeases(LeasesConfig{MayLower: func(string, string) bool { return true }})
		require.NoError(t, err)
		subjects := []string{"", "x", "y"}
		small := rapid.Uint64Range(0, 3)
		now := epoch
		var history []accepted
		for range rapid.IntRange(1, 25).Draw(t, "inputs") {
			now = now.Add(time.Duration(rapid.IntRange(0, 4).Draw(t, "pause")) * time.Second)
			r := Report{
				Lease: Lease{
					Owner: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "owner"),
					Epoch: small.Draw(t, "epoch") / 3, Term: small.Draw(t, "term") / 3, Sequence: small.Draw(t, "sequence"),
					Length: time.Duration(rapid.IntRange(1, 9).Draw(t, "length")) * time.Second,
				},
				Subject: rapid.SampledFrom(subjects).Draw(t, "subject"),
				State:   rapid.SampledFrom([]State{Online, Online, Online, Offline, Error}).Draw(t, "state"),
			}
			before := l.Snapshot(now)
			low := rapid.IntRange(0, 4).Draw(t, "low") == 0
			var err error
			if low {
				err = l.Lower(now, Accusation{By: "c", Lease: r.Lease, Subject: r.Subject})
			} else {
				err = l.Apply(now, r)
			}
			if err == nil {
				history = append(history, accepted{now, r, low})
			} else {
				require.Equal(t, before, l.Snapshot(now), "a refused input changes nothing")
			}
			for _, later := range []time.Duration{0, time.Second, 3 * time.Second, 8 * time.Second, 9 * time.Second} {
				for _, s := range subjects[1:] {
					status, _ := l.At(now.Add(later), s)
					require.Equal(t, leaseModel(history, s, now.Add(later)), status.State == Online, "%q %v after %+v", s, later, history)
					require.False(t, status.Since.After(now.Add(later)))
					if status.State != Unknown {
						end, _ := l.At(status.ValidUntil, s)
						require.Equal(t, Unknown, end.State)
						require.Equal(t, status.ValidUntil, end.Since)
					}
				}
			}
		}
	})
}
