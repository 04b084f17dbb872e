// Package maglev builds lookup tables by the consistent hashing of the Maglev load
// balancer (Eisenbud et al., NSDI 2016, section 3.4), extended to weights.
//
// A table is a function of the set of members, their weights, its size and the
// seed, and of nothing else: everybody who knows them builds the same one,
// whatever the order in which the members are listed. A member that leaves moves
// its own slots, and a few per cent of the others.
package maglev

import (
	"cmp"
	"fmt"
	"slices"
)

// MaxSize is the largest size of a table.
const MaxSize = 1 << 23

// Check returns an error unless size can be that of a table: a prime, so that each
// member's sequence of slots reaches all of them.
func Check(size int) error {
	if size < 2 || size > MaxSize || !prime(size) {
		return fmt.Errorf("size %d: want a prime from 2 to %d", size, MaxSize)
	}
	return nil
}

func prime(n int) bool {
	for d := 2; d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return n > 1
}

// A Member wants slots. Keys are distinct; the weight is above 0.
type Member struct {
	Key    string
	Weight uint32
}

const free = ^uint32(0)

// Build returns a table with the given number of slots, each of which holds an
// index of members. Check must have accepted the size. Each member gets slots in
// proportion to its weight, give or take two, and at least one as long as there
// are no more members than slots. Without members the table is empty.
func Build(size int, seed uint64, members []Member) []uint32 {
	if len(members) == 0 {
		return nil
	}
	walkers, most := newWalkers(size, seed, members)
	table := make([]uint32, size)
	for i := range table {
		table[i] = free
	}
	m := uint32(size)
	for taken := 0; ; {
		for i := range walkers {
			w := &walkers[i]
			// A member of the largest weight takes a slot in each round, one of half of
			// it in every other. All take one in the first.
			if w.credit += w.weight; w.credit < most {
				continue
			}
			w.credit -= most
			for table[w.next] != free {
				if w.next += w.skip; w.next >= m {
					w.next -= m
				}
			}
			table[w.next] = w.member
			if taken++; taken == size {
				return table
			}
		}
	}
}

// A walker goes through the slots in an order of its own and takes the first one
// that is free.
type walker struct {
	next, skip     uint32
	weight, credit uint32
	member         uint32
	hash           uint64
}

// newWalkers returns the walkers in the order in which they take turns, and their
// largest weight.
func newWalkers(size int, seed uint64, members []Member) ([]walker, uint32) {
	walkers := make([]walker, len(members))
	most := uint32(0)
	for i, m := range members {
		h := hash(seed, m.Key)
		walkers[i] = walker{
			next:   uint32(h % uint64(size)),
			skip:   uint32(mix(h)%uint64(size-1)) + 1,
			weight: m.Weight, member: uint32(i), hash: h,
		}
		most = max(most, m.Weight)
	}
	for i := range walkers {
		walkers[i].credit = most - 1
	}
	// By hash rather than by key, so that no name is first under every seed.
	slices.SortFunc(walkers, func(a, b walker) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(members[a.member].Key, members[b.member].Key))
	})
	return walkers, most
}

// hash is FNV-1a over the seed and the key, then the finaliser of MurmurHash3.
func hash(seed uint64, key string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for range 8 {
		h = (h ^ seed&0xff) * 0x100000001b3
		seed >>= 8
	}
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 0x100000001b3
	}
	return mix(h)
}

func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
