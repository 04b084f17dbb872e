package load

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lastbeat/lastbeat/examples/internal/capture"
	"github.com/lastbeat/lastbeat/internal/netns/nstest"
)

// Each address gets pings of its own identifier, in order and without holes; one
// that cannot be reached stops nothing.
func TestKernelPings(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		defer goleak.VerifyNone(t)
		ctx, cancel := context.WithCancel(t.Context())
		type flow struct {
			kind capture.Kind
			id   uint16
		}
		next := map[flow]uint16{}
		c, err := capture.Open(capture.Config{Interface: "lo", Packet: func(p capture.Packet) {
			if p.Kind != capture.EchoRequest && p.Kind != capture.EchoReply {
				return
			}
			f := flow{p.Kind, p.ID}
			switch p.Seq { // on lo each packet is seen leaving and arriving
			case next[f]:
				next[f]++
			case next[f] - 1:
			default:
				t.Errorf("%v of %v: sequence %d, not %d", p.Kind, p.Dst, p.Seq, next[f])
			}
			if next[flow{capture.EchoReply, DefaultPingID}] >= 5 && next[flow{capture.EchoReply, DefaultPingID + 2}] >= 5 {
				cancel()
			}
		}})
		require.NoError(t, err)
		captured := make(chan error, 1)
		go func() { captured <- c.Run(ctx) }()
		require.NoError(t, Run(ctx, Config{PingEvery: time.Millisecond, Pings: []netip.Addr{
			netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("127.0.0.2"),
		}}, nil))
		require.NoError(t, <-captured)
		require.Zero(t, next[flow{capture.EchoReply, DefaultPingID + 1}])
	})
}
