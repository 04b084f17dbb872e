package lb

import "math/bits"

// lap is the picker of the round robins: a sequence of turns that is repeated for
// ever.
type lap struct {
	turns  []uint32 // indexes of members
	offset uint64   // added to the turn to give the position
}

func (l *lap) pick(g *group, _ uint64, tried set) int {
	n := uint64(len(l.turns))
	var pos uint64
	for range g.members {
		// Each try takes a turn of its own. Trying the neighbour of a full or failed
		// one instead would give the neighbour a double share.
		pos = (g.turn.Add(1) - 1 + l.offset) % n
		if i := int(l.turns[pos]); g.take(i, tried) {
			return i
		}
	}
	for range n { // a lap holds all, so it holds one that can be taken, if any can
		if pos++; pos == n {
			pos = 0
		}
		if i := int(l.turns[pos]); g.take(i, tried) {
			return i
		}
	}
	return none
}

// newLap places turns so that the lap goes on where the one that it replaces is.
func newLap(turns []uint32, g *group, old picker, draw func(n uint64) uint64) *lap {
	turn, n := g.turn.Load(), uint64(len(turns))
	var pos uint64
	if o, ok := old.(*lap); ok {
		from := uint64(len(o.turns))
		pos = rescale((turn+o.offset)%from, from, n, draw)
	} else {
		// The first lap, or the first after nobody was up. A random start keeps a
		// fleet that comes back together from meeting at one backend.
		pos = draw(n)
	}
	return &lap{turns, (pos + n - turn%n) % n}
}

func (RoundRobin) traits() traits { return traits{unweighted: true} }
func (RoundRobin) fault() string  { return "" }

func (RoundRobin) prepare(g *group, old picker, draw func(n uint64) uint64) picker {
	return newLap(g.schedule(), g, old, draw)
}

// rescale carries a position of a lap of from turns over to a lap of to turns:
// the same fraction, rounded up with a probability that makes the result right on
// average. draw gives a uniform number below its argument.
func rescale(pos, from, to uint64, draw func(n uint64) uint64) uint64 {
	hi, lo := bits.Mul64(pos, to)
	q, rest := bits.Div64(hi, lo, from)
	if rest > 0 && draw(from) < rest {
		q++
	}
	return q % to
}
