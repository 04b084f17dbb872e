package nft

import (
	"testing"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"github.com/stretchr/testify/require"
)

// The planned size decides what fits into a socket's buffer, so it must never be
// below the real one; and no attribute may exceed its 16-bit length.
func TestPlannedSizeBoundsTheMessages(t *testing.T) {
	o := testOptions()
	l := newLayout(o, Config{Redirects: manyRedirects(2*chunk + 2)})
	for name, ops := range map[string][]op{
		"create":  newPlan(o, l, state{}, false).ops,
		"replace": newPlan(o, l, stateOf(l), true).ops,
		"empty":   newPlan(o, newLayout(o, Config{}), stateOf(l), false).ops,
		"remove":  {{addTable: true}, {delTable: true}},
	} {
		t.Run(name, func(t *testing.T) {
			sent := 0
			c, err := nftables.New(nftables.WithTestDial(func(req []netlink.Message) ([]netlink.Message, error) {
				if len(req) == 0 {
					return []netlink.Message{{Header: netlink.Header{Type: netlink.Error}, Data: make([]byte, 4)}}, nil
				}
				for _, m := range req {
					sent += 16 + len(m.Data) + 3
					require.Less(t, len(m.Data), 1<<16)
				}
				return nil, nil
			}))
			require.NoError(t, err)
			require.NoError(t, build(c, o.Table, ops))
			_ = c.Flush() // whatever it makes of the answers
			require.Positive(t, sent)
			require.LessOrEqual(t, sent, sizeOf(ops))
			t.Logf("%d of %d bytes", sent, sizeOf(ops))
		})
	}
}
