package lb

import "math/bits"

func (Shuffle) traits() traits { return traits{unweighted: true} }
func (Shuffle) fault() string  { return "" }

func (Shuffle) prepare(g *group, old picker, draw func(n uint64) uint64) picker {
	if !g.even() {
		// Some backends start slowly, so laps can't be one turn each.
		return newUrn(g)
	}
	s := &shuffled{n: uint64(len(g.members))}
	for s.half = 1; s.n > 1<<(2*s.half); {
		s.half++
	}
	// Laps go on where they were, as those of a round robin do.
	turn := g.turn.Load()
	var pos uint64
	if o, ok := old.(*shuffled); ok {
		pos = rescale((turn+o.offset)%o.n, o.n, s.n, draw)
	} else {
		pos = draw(s.n)
	}
	s.offset = (pos + s.n - turn%s.n) % s.n
	return s
}

// shuffled picks in laps, each a permutation of its own. A permutation that was
// stored would have to be replaced by one goroutine while others use it. So the
// place of each turn is computed: a cipher of the position within the lap whose
// key is the number of the lap.
type shuffled struct {
	n      uint64
	offset uint64 // added to the turn; its remainder by n is the position
	half   int    // bits of half a block of the cipher
}

func (s *shuffled) pick(g *group, _ uint64, tried set) int {
	i := 0
	for range tries {
		at := g.turn.Add(1) - 1 + s.offset
		i = int(s.permute(at%s.n, mix64(g.private+at/s.n)))
		if g.take(i, tried) {
			return i
		}
	}
	return g.scan(i, tried)
}

// permute maps x to its place in the permutation that key selects, by a Feistel
// network of four rounds (Luby and Rackoff, 1988). The network permutes a power of
// four, the least that is not below n. A result outside [0, n) is encrypted
// again: following the cycle of a permutation from inside must lead back inside,
// after less than four steps on average.
func (s *shuffled) permute(x, key uint64) uint64 {
	mask := uint64(1)<<s.half - 1
	for {
		left, right := x>>s.half, x&mask
		for round := range 4 {
			left, right = right, left^mix64(right+bits.RotateLeft64(key, 16*round))&mask
		}
		if x = left<<s.half | right; x < s.n {
			return x
		}
	}
}
