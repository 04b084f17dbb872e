// Package capture watches one Ethernet segment, so that everything measured on
// it has its instants from one clock.
//
// A [Capture] reads the frames that tell how an address moves: VRRP adverts,
// ARP, pings, the ends of TCP connections, and marks. A mark is a frame that
// [Capture.Mark] sends to the captured interface itself, with a short text in
// it: whoever breaks something marks the instant, and the mark takes its place
// among the packets, stamped by the same kernel as they are.
//
//	c, err := capture.Open(capture.Config{Interface: "br0", Packet: func(p capture.Packet) { ... }})
//	go c.Run(ctx)
//	c.Mark(`{"event":"fault"}`)
//	...
//	if c.Stats().Lost > 0 { ... } // the picture has holes
//
// The kernel starts to stamp within moments of Open, or has done so already; a
// frame that comes before counts as received when it is read.
//
// [Decode] alone turns a frame into a [Packet], wherever the frame came from.
//
// Capturing is for Linux and needs CAP_NET_RAW in the interface's namespace.
package capture

import (
	"io"
	"time"
)

// Config configures [Open].
type Config struct {
	// Interface is the name of the interface to read. On a bridge, every frame
	// that passes between its ports is seen once.
	Interface string

	// Packet is called with each decoded packet, one at a time, in the order
	// in which the kernel queued them. Packets of different ports that crossed
	// on different processors can differ from the order of At by microseconds.
	// It is called by [Capture.Run]'s goroutine: while it does not return,
	// packets wait in the kernel's buffer.
	Packet func(Packet)

	// Pcap, if set, also receives the frames as a pcap file with nanosecond
	// stamps, for tcpdump or Wireshark.
	Pcap io.Writer

	// Buffer is the kernel's receive buffer in bytes; 0 means 16 MiB. Without
	// privilege on the host the kernel may grant less, see net.core.rmem_max.
	Buffer int
}

// MaxMark is the longest text of a mark in bytes.
const MaxMark = 1400

// Stats counts what a capture has seen.
type Stats struct {
	Frames  uint64 // frames of a kind that interests us
	Packets uint64 // of these, well-formed and handed out
	Lost    uint64 // frames that the kernel dropped because its buffer was full
}

// arrival turns a kernel stamp, which is wall-clock time, into an instant with
// a monotonic reading, so that differences survive a step of the wall clock.
// The frame was read at now, and the queue was last seen empty at drained: a
// stamp from after now, or from long before drained, is one that the clock was
// set after, and the best that is known then is now.
func arrival(now, drained, stamp time.Time) time.Time {
	// A frame is stamped when its port receives it, and queued a little later.
	const queueing = 100 * time.Millisecond
	age := now.Round(0).Sub(stamp)
	if age < 0 || age > now.Sub(drained)+queueing {
		return now
	}
	return now.Add(-age)
}
