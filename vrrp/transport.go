package vrrp

import (
	"net/netip"
	"time"
)

// transport carries the packets of one instance. In virtual time it is memory,
// else a raw socket.
type transport interface {
	// ready is signalled when packets may be waiting.
	ready() <-chan struct{}
	// drain hands over every packet that has arrived before the call, oldest first,
	// with its time of arrival. A packet is valid only during the call. A returned
	// error means that nothing can be received any more.
	drain(receive func(arrival time.Time, packet []byte)) error
	// send sends a VRRP message; the IP header is the transport's.
	send(dst netip.Addr, msg []byte) error
	close() error
}

// arrival turns a kernel stamp of the wall clock into an instant that can be
// compared with now: as old as the stamp says, but neither younger than now nor
// older than the moment at which the queue was last seen empty. So a wall clock
// that was set meanwhile does no harm.
func arrival(now, stamp, drained time.Time) time.Time {
	age := now.Round(0).Sub(stamp)
	return now.Add(-min(max(age, 0), now.Sub(drained)))
}
