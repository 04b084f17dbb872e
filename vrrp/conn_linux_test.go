package vrrp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// connPair is a rawConn on a datagram socket that needs no privilege, and a
// function that puts a packet into it.
func connPair(t *testing.T) (c *rawConn, put func()) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fds[1]) })
	require.NoError(t, unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1))
	c, err = newRawConn(fds[0], memAddr(0), 1)
	require.NoError(t, err)
	return c, func() { require.NoError(t, unix.Send(fds[1], []byte("packet"), unix.MSG_DONTWAIT)) }
}

// A flood that never lets the queue run empty does not keep the driver from its
// own work: drain ends, and is called again for the rest.
func TestConnDrainEndsInAFlood(t *testing.T) {
	c, put := connPair(t)
	defer c.close()
	<-c.ready() // the first look
	put()
	<-c.ready()
	n := 0
	require.NoError(t, c.drain(func(_ time.Time, pkt []byte) {
		require.Equal(t, "packet", string(pkt))
		if n++; n < 2*drainLimit {
			put()
		}
	}))
	require.Equal(t, drainLimit, n)
	<-c.ready()
	n = 0
	require.NoError(t, c.drain(func(time.Time, []byte) { n++ }))
	require.Equal(t, 1, n)
}

// Each arrival wakes the driver, whether or not it took what came before.
func TestConnWakesAtEachArrival(t *testing.T) {
	c, put := connPair(t)
	defer c.close()
	<-c.ready()
	for range 3 {
		put()
		<-c.ready()
	}
	n := 0
	require.NoError(t, c.drain(func(time.Time, []byte) { n++ }))
	require.Equal(t, 3, n)
}

// A packet is as old as the kernel says, but no older than the last drain.
func TestConnArrivalTimes(t *testing.T) {
	c, put := connPair(t)
	defer c.close()
	require.NoError(t, c.drain(nil))
	drained := c.drained
	put()
	put()
	sent := time.Now()
	require.NoError(t, c.drain(func(at time.Time, _ []byte) {
		require.False(t, at.Before(drained))
		require.False(t, at.After(sent), "not when it was read")
	}))
	require.True(t, c.drained.After(sent))
}

// A closed conn says so, and nothing waits on it for ever.
func TestConnClosed(t *testing.T) {
	c, _ := connPair(t)
	require.NoError(t, c.close())
	<-c.ready()
	require.Error(t, c.drain(nil))
	require.Error(t, c.send(memAddr(1), []byte("x")))
}
