package health

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whoever waits longest is first; one who left and came back waits anew.
func TestMailboxOrder(t *testing.T) {
	b := newMailbox()
	put := func(key string, old, now State) { b.put(key, old, Status{State: now}) }
	put("a", Unknown, Online)
	put("b", Unknown, Online)
	put("c", Unknown, Offline)
	put("a", Online, Unknown) // back where it was
	put("b", Online, Offline)
	put("a", Unknown, Offline)
	b.drop("c")
	var got []string
	for e, ok := b.take(); ok; e, ok = b.take() {
		got = append(got, fmt.Sprintf("%s %v->%v", e.Key, e.Old, e.New.State))
	}
	require.Equal(t, []string{"b unknown->offline", "a unknown->offline"}, got)
}

// However often targets come and go, a stuck consumer costs no more memory than one
// event for each.
func TestMailboxIsBounded(t *testing.T) {
	b := newMailbox()
	const keys = 100
	for range 1000 {
		for i := range keys {
			b.put(fmt.Sprint(i), Unknown, Status{State: Online})
		}
		for i := range keys {
			if i%2 == 0 {
				b.put(fmt.Sprint(i), Online, Status{State: Unknown})
			} else {
				b.drop(fmt.Sprint(i))
			}
		}
		require.Empty(t, b.pending)
	}
	require.LessOrEqual(t, len(b.order), 2*keys+16)
	_, ok := b.take()
	require.False(t, ok)
	require.Empty(t, b.order)
}
