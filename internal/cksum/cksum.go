// Package cksum computes the Internet checksum (RFC 1071).
package cksum

// Sum adds b to a running one's complement sum, as big-endian 16-bit words; an
// odd last byte counts as the high half of a word. Only the last piece of a
// message may have an odd length. Start with 0.
func Sum(sum uint32, b []byte) uint32 {
	for len(b) >= 2 {
		sum += uint32(b[0])<<8 | uint32(b[1])
		// Fold as we go, so that a long message cannot overflow.
		sum = sum&0xffff + sum>>16
		b = b[2:]
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	return sum&0xffff + sum>>16
}

// Finish turns a running sum into the checksum field's value. The sum of a
// message that includes its correct checksum finishes as 0.
func Finish(sum uint32) uint16 {
	sum = sum&0xffff + sum>>16
	return ^uint16(sum + sum>>16)
}
