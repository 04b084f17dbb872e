package memnet_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/internal/memnet"
)

func TestDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New(3 * time.Millisecond)
		a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		pa, pb := n.Port(a), n.Port(b)
		begin := time.Now()
		buf := []byte("one")
		pa.Send(b, buf)
		copy(buf, "two") // the sender may reuse its buffer
		pa.Send(b, buf)
		<-pb.Ready()
		synctest.Wait()
		got := pb.Drain()
		require.Len(t, got, 2)
		require.Equal(t, "one", string(got[0].Data))
		require.Equal(t, "two", string(got[1].Data))
		require.Equal(t, a, got[0].From)
		require.Equal(t, 3*time.Millisecond, got[0].At.Sub(begin))
		require.Empty(t, pb.Drain())

		n.Cut(a, b, true)
		pa.Send(b, buf)
		pb.Send(a, buf)
		time.Sleep(time.Second)
		require.Empty(t, pa.Drain())
		require.Empty(t, pb.Drain())

		n.Cut(a, b, false)
		pb.Close()
		pa.Send(b, buf)
		time.Sleep(time.Second)
		require.Empty(t, pb.Drain())
	})
}
