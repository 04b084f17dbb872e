package lb

// WeightedRoundRobin is the [Algorithm] that gives each backend turns in
// proportion to its weight, spread as evenly over the lap as is possible.
type WeightedRoundRobin struct{}

// Name returns "weightedroundrobin".
func (WeightedRoundRobin) Name() string { return "weightedroundrobin" }

func (WeightedRoundRobin) traits() traits { return traits{} }
func (WeightedRoundRobin) fault() string  { return "" }

func (WeightedRoundRobin) prepare(g *group, old picker, draw func(n uint64) uint64) picker {
	return newLap(g.schedule(), g, old, draw)
}

// schedule returns the lap of a group.
func (g *group) schedule() []uint32 {
	if !g.even() {
		return schedule(g.weights())
	}
	// Each in turn is what the algorithm gives, only sooner.
	turns := make([]uint32, len(g.members))
	for i := range turns {
		turns[i] = uint32(i)
	}
	return turns
}

// schedule returns one lap: whose turn it is, as indexes into weights, which
// are all above 0. It returns an empty lap only for no weights.
//
// It solves the chairman assignment problem by Tijdeman's algorithm (The
// chairman assignment problem, Discrete Mathematics 32, 1980). With n backends,
// W the sum of the weights and e = 1/(2n-2), turn k (from 0) of a backend of
// weight w
//
//	may be given at turn t of the lap (from 1) once t*w/W >= k + e, and
//	must be given before t*w/W > k + 1 - e.
//
// Of the turns that may be given, the one whose time ends first is. Tijdeman
// proves that there is always one and that no time is ever missed, so the turns
// given after t differ from the ideal t*w/W by at most 1 - e. A heap ordered by
// k/w alone, as often seen, does not have this bound: it gives equal backends
// their turns in clumps.
func schedule(weights []int) []uint32 {
	if len(weights) < 2 {
		return make([]uint32, len(weights)) // index 0, or an empty lap
	}
	return newChairman(weights).lap()
}

// chairman is the state of one run of Tijdeman's algorithm. All arithmetic is
// on integers: with m = 2n-2, the bounds above multiplied by m*W/w. The largest
// product is w*m*W. In a slow start w is up to 2,560, and then it stays below 2^63
// for half a million backends.
type chairman struct {
	weights []int64
	total   int64
	m       int64
	taken   []int64 // turns given so far

	// opens[t] heads the list of backends whose next turn may be given from t on;
	// then links the lists, which are disjoint: each backend waits in one place.
	// Entries are index+1, 0 ends a list. A lap knows all its instants, so this
	// replaces a second heap.
	opens []uint32
	then  []uint32

	ready []uint32 // heap of backends whose turn may be given, by its end
}

func newChairman(weights []int) *chairman {
	n := len(weights)
	s := &chairman{
		weights: make([]int64, n),
		m:       int64(2*n - 2),
		taken:   make([]int64, n),
		then:    make([]uint32, n),
		ready:   make([]uint32, 0, n),
	}
	divisor := 0
	for _, w := range weights {
		divisor = gcd(divisor, w)
	}
	for i, w := range weights {
		s.weights[i] = int64(w / divisor)
		s.total += s.weights[i]
	}
	s.opens = make([]uint32, s.total+1)
	// Backwards, since await puts in front: ties are then read in list order.
	for i := n - 1; i >= 0; i-- {
		s.await(uint32(i), 1)
	}
	return s
}

// lap runs the algorithm.
func (s *chairman) lap() []uint32 {
	lap := make([]uint32, 0, s.total)
	for t := int64(1); t <= s.total; t++ {
		s.admit(t)
		i := s.next()
		lap = append(lap, i)
		s.taken[i]++
		s.await(i, t+1)
	}
	return lap
}

// await files backend i under the first t with t*w/W >= k + 1/m that is not before
// earliest. A turn that opens after the lap belongs to the next lap, which begins
// all over.
func (s *chairman) await(i uint32, earliest int64) {
	num := (s.taken[i]*s.m + 1) * s.total
	den := s.weights[i] * s.m
	t := max(earliest, (num+den-1)/den)
	if t <= s.total {
		s.then[i], s.opens[t] = s.opens[t], i+1
	}
}

// admit moves the backends whose next turn opens at t to the heap.
func (s *chairman) admit(t int64) {
	for e := s.opens[t]; e != 0; e = s.then[e-1] {
		s.ready = append(s.ready, e-1)
		for c := len(s.ready) - 1; c > 0; {
			p := (c - 1) / 2
			if !s.before(s.ready[c], s.ready[p]) {
				break
			}
			s.ready[c], s.ready[p] = s.ready[p], s.ready[c]
			c = p
		}
	}
}

// next removes the backend whose time ends first from the heap.
func (s *chairman) next() uint32 {
	first := s.ready[0]
	last := len(s.ready) - 1
	s.ready[0] = s.ready[last]
	s.ready = s.ready[:last]
	for p := 0; ; {
		c := 2*p + 1
		if c >= last {
			return first
		}
		if c+1 < last && s.before(s.ready[c+1], s.ready[c]) {
			c++
		}
		if !s.before(s.ready[c], s.ready[p]) {
			return first
		}
		s.ready[c], s.ready[p] = s.ready[p], s.ready[c]
		p = c
	}
}

// before tells whether the turn of a must be given before that of b: it compares
// (k + 1 - 1/m) / w of both, as fractions; the first in the list wins a tie.
func (s *chairman) before(a, b uint32) bool {
	x := (s.taken[a]*s.m + s.m - 1) * s.weights[b]
	y := (s.taken[b]*s.m + s.m - 1) * s.weights[a]
	if x != y {
		return x < y
	}
	return a < b
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
