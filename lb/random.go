package lb

// Random is the [Algorithm] that draws each backend independently, whatever its
// weight. Shares are even in the long run only: of k picks per backend, one gets
// k give or take sqrt(k). Round robin does better at the same price; random picks
// suit callers who must not be predictable.
type Random struct{}

// Name returns "random".
func (Random) Name() string { return "random" }

func (Random) traits() traits { return traits{unweighted: true} }
func (Random) fault() string  { return "" }

func (Random) prepare(g *group, _ picker, _ func(n uint64) uint64) picker { return newUrn(g) }

// WeightedRandom is the [Algorithm] that draws each backend independently, in
// proportion to its weight.
type WeightedRandom struct{}

// Name returns "weightedrandom".
func (WeightedRandom) Name() string { return "weightedrandom" }

func (WeightedRandom) traits() traits { return traits{} }
func (WeightedRandom) fault() string  { return "" }

func (WeightedRandom) prepare(g *group, _ picker, _ func(n uint64) uint64) picker { return newUrn(g) }

// An urn draws a member in proportion to its weight, in constant time, by the
// alias method of Walker (1977) in the form of Vose (1991): each member has a slot
// of equal size, in which it keeps a part for itself, and leaves the rest to one
// other member. Without slots the members are drawn alike.
type urn struct {
	n     int
	slots []slot
}

type slot struct {
	keep  uint32 // part of 2^32 that is the member's own
	alias uint32 // member that has the rest
}

func newUrn(g *group) *urn {
	u := &urn{n: len(g.members)}
	if g.even() {
		return u
	}
	// In units in which a slot holds total, member i has weight*n. The sums are
	// exact.
	u.slots = make([]slot, u.n)
	left := make([]uint64, u.n)
	var light, heavy []uint32
	for i := range g.members {
		left[i] = uint64(g.members[i].weight) * uint64(u.n)
		if left[i] < g.total {
			light = append(light, uint32(i))
		} else {
			heavy = append(heavy, uint32(i))
		}
	}
	for len(light) > 0 && len(heavy) > 0 {
		l, h := light[len(light)-1], heavy[len(heavy)-1]
		light = light[:len(light)-1]
		u.slots[l] = slot{uint32(left[l] << 32 / g.total), h}
		if left[h] -= g.total - left[l]; left[h] < g.total {
			heavy = heavy[:len(heavy)-1]
			light = append(light, h)
		}
	}
	for _, i := range heavy { // exactly full; the arithmetic leaves no light ones
		u.slots[i] = slot{^uint32(0), i}
	}
	return u
}

// draw turns a uniform number into a member: the upper half selects the slot, the
// lower half the part.
func (u *urn) draw(random uint64) int {
	i := scale32(uint32(random>>32), u.n)
	if u.slots == nil {
		return i
	}
	if s := u.slots[i]; uint32(random) >= s.keep {
		return int(s.alias)
	}
	return i
}

// tries is how often a random pick draws again when it met a full member, before
// it looks at all of them. If half are full, one pick in 256 comes that far.
const tries = 8

func (u *urn) pick(g *group, _ uint64, tried set) int {
	i := 0
	for range tries {
		i = u.draw(g.random())
		if g.take(i, tried) {
			return i
		}
	}
	return g.scan(i, tried)
}
