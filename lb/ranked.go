package lb

import "fmt"

func (r Rendezvous) traits() traits { return traits{load: r.Top > 1} }

func (r Rendezvous) fault() string {
	if r.Top < 0 || r.Top > maxTop {
		return fmt.Sprintf("Top %d: want 0 to %d", r.Top, maxTop)
	}
	return ""
}

// maxTop bounds what a pick keeps on its stack.
const maxTop = 8

func (r Rendezvous) prepare(g *group, _ picker, _ func(n uint64) uint64) picker {
	p := &ranked{top: max(r.Top, 1), hashes: make([]uint64, len(g.members)), even: g.even()}
	for i := range p.hashes {
		p.hashes[i] = fnv64(mix64(g.common), g.key(i))
	}
	return p
}

// ranked picks by the order of the key.
type ranked struct {
	hashes []uint64
	top    int
	even   bool
}

func (p *ranked) pick(g *group, key uint64, tried set) int {
	// One that is full when it is asked for was not when it was ranked, a moment
	// ago. Trying again has a bound all the same.
	for range tries {
		if i := p.best(g, g.spread(key), tried); i == none || g.take(i, tried) {
			return i
		}
	}
	return g.scan(0, tried)
}

// best returns the first in the order of the key that is open, or the least loaded
// of the first few.
func (p *ranked) best(g *group, hash uint64, tried set) int {
	var best [maxTop]struct {
		score float64
		i     int
	}
	n := 0
	for i := range p.hashes {
		score := p.score(g, i, hash)
		if n == p.top && score >= best[n-1].score || !g.open(i, tried) {
			continue
		}
		if n < p.top {
			n++
		}
		at := n - 1
		for ; at > 0 && score < best[at-1].score; at-- {
			best[at] = best[at-1]
		}
		best[at].score, best[at].i = score, i
	}
	if n == 0 {
		return none
	}
	least := best[0].i
	for _, b := range best[1:n] {
		x, y := &g.members[b.i], &g.members[least]
		if (x.load.open.Load()+1)*uint64(y.weight) < (y.load.open.Load()+1)*uint64(x.weight) {
			least = b.i
		}
	}
	return least
}

// score ranks as weightedScore does. With equal weights the logarithm changes
// nothing, so it is spared.
func (p *ranked) score(g *group, i int, hash uint64) float64 {
	h := mix64(p.hashes[i] ^ hash)
	if p.even {
		return -float64(h >> 11)
	}
	return weightedScore(h, int(g.members[i].weight))
}
