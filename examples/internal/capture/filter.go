package capture

import "golang.org/x/net/bpf"

// snapLen is how much of a frame is read: more than any header, and all of a
// mark. A segment that ends a connection can carry 64 KiB of data.
const snapLen = 2048

// filter is the program by which the kernel queues only frames that Decode can
// be interested in. Without it the data of the clients' connections would fill
// the buffer just when the machine is busiest.
func filter() []bpf.Instruction {
	const (
		accept, reject = 19, 20 // where the program ends
		icmp, tcp      = 8, 14
	)
	// to gives the distance from the instruction at i to the one at target.
	to := func(i, target int) uint8 { return uint8(target - i - 1) }
	is := func(i int, v uint32, yes, no int) bpf.Instruction {
		return bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: to(i, yes), SkipFalse: to(i, no)}
	}
	set := func(i int, mask uint32, yes, no int) bpf.Instruction {
		return bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: mask, SkipTrue: to(i, yes), SkipFalse: to(i, no)}
	}
	const offType, offFragment, offProto = 12, etherLen + 6, etherLen + 9
	return []bpf.Instruction{
		0: bpf.LoadAbsolute{Off: offType, Size: 2},
		1: is(1, etherMark, accept, 2),
		2: is(2, etherARP, accept, 3),
		3: is(3, etherIPv4, 4, reject),
		4: bpf.LoadAbsolute{Off: offProto, Size: 1},
		5: is(5, protoVRRP, accept, 6),
		6: is(6, protoTCP, tcp, 7),
		7: is(7, protoICMP, icmp, reject),

		icmp: bpf.LoadAbsolute{Off: offFragment, Size: 2},
		9:    set(9, 0x1fff, reject, 10),
		10:   bpf.LoadMemShift{Off: etherLen}, // X = length of the IPv4 header
		11:   bpf.LoadIndirect{Off: etherLen, Size: 1},
		12:   is(12, icmpEchoRequest, accept, 13),
		13:   is(13, icmpEchoReply, accept, reject),

		tcp: bpf.LoadAbsolute{Off: offFragment, Size: 2},
		15:  set(15, 0x1fff, reject, 16),
		16:  bpf.LoadMemShift{Off: etherLen},
		17:  bpf.LoadIndirect{Off: etherLen + 13, Size: 1},
		18:  set(18, uint32(SYN|FIN|RST), accept, reject),

		accept: bpf.RetConstant{Val: 1 << 18},
		reject: bpf.RetConstant{Val: 0},
	}
}
