package lb

// fnvStart is the offset basis of FNV-1a with 64 bits.
const fnvStart = uint64(0xcbf29ce484222325)

// fnv64 continues the hash h, which begins as fnvStart, over text by FNV-1a.
func fnv64(h uint64, text string) uint64 {
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 0x100000001b3
	}
	return h
}

// mix64 is the finaliser of MurmurHash3. FNV alone leaves texts that differ in
// their last byte only (agent-1, agent-2) close to each other, and so do keys
// that a caller counts up; mix64 makes each bit depend on all others. It is a
// bijection.
func mix64(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
