package capture

import (
	"encoding/binary"
	"io"
	"time"
)

// pcapWriter writes frames in the classic pcap format with nanosecond stamps.
// After the first failed write it writes no more and keeps the error: a full
// disk must not end a measurement.
type pcapWriter struct {
	w   io.Writer
	err error
	buf []byte
}

func newPcapWriter(w io.Writer) *pcapWriter {
	p := &pcapWriter{w: w}
	var h [24]byte
	binary.LittleEndian.PutUint32(h[0:], 0xa1b23c4d) // magic: nanoseconds
	binary.LittleEndian.PutUint16(h[4:], 2)          // version 2.4
	binary.LittleEndian.PutUint16(h[6:], 4)
	binary.LittleEndian.PutUint32(h[16:], snapLen)
	binary.LittleEndian.PutUint32(h[20:], 1) // Ethernet
	p.put(h[:])
	return p
}

// write adds a frame of which size bytes were on the wire.
func (p *pcapWriter) write(frame []byte, size int, at time.Time) {
	b := binary.LittleEndian.AppendUint32(p.buf[:0], uint32(at.Unix()))
	b = binary.LittleEndian.AppendUint32(b, uint32(at.Nanosecond()))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(frame)))
	b = binary.LittleEndian.AppendUint32(b, uint32(size))
	p.buf = append(b, frame...)
	p.put(p.buf)
}

func (p *pcapWriter) put(b []byte) {
	if p.err == nil {
		_, p.err = p.w.Write(b)
	}
}
