package vrrp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A full box merges: nothing is lost of how many there were and how it ended.
func TestEventBoxMerges(t *testing.T) {
	b := newEventBox()
	states := []State{Backup, Active}
	for i := range eventBoxSize + 5 {
		b.put(Event{From: states[i%2], To: states[(i+1)%2]})
	}
	b.close()
	var got []Event
	b.dispatch(func(e Event) { got = append(got, e) })
	require.Len(t, got, eventBoxSize)
	last := got[len(got)-1]
	require.Equal(t, 5, last.Missed)
	require.Equal(t, got[len(got)-2].To, last.From)
	require.Equal(t, states[(eventBoxSize+5)%2], last.To)
}
