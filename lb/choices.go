package lb

// P2C is the [Algorithm] of two random choices: it draws two backends in proportion
// to their weights and takes the one with fewer open leases for its weight.
//
// Two choices keep the fullest backend close to the mean, where one choice lets
// it run ahead. Unlike the least of all, they do not send everybody to the same
// backend when what they know is old. A pick costs the same for any number of
// backends.
type P2C struct{}

// Name returns "p2c".
func (P2C) Name() string { return "p2c" }

func (P2C) traits() traits { return traits{load: true} }
func (P2C) fault() string  { return "" }

func (P2C) prepare(g *group, _ picker, _ func(n uint64) uint64) picker {
	return &choices{newUrn(g), func(a, b *member) bool {
		return a.load.open.Load()*uint64(b.weight) <= b.load.open.Load()*uint64(a.weight)
	}}
}

// choices picks the better of two.
type choices struct {
	urn *urn
	// better tells whether a, which was drawn first, is at least as good as b. Idle
	// backends tie, and then the first draw decides, so that their shares follow
	// the weights.
	better func(a, b *member) bool
}

func (c *choices) pick(g *group, key uint64, tried set) int {
	r := g.random()
	i := c.urn.draw(r)
	r = mix64(r)
	j := c.urn.draw(r)
	if i == j {
		if len(g.members) == 1 {
			return g.scan(0, tried)
		}
		// Any other one: a choice between one and the same is none.
		if j += 1 + scale32(uint32(mix64(r)), len(g.members)-1); j >= len(g.members) {
			j -= len(g.members)
		}
	}
	if !c.better(&g.members[i], &g.members[j]) {
		i, j = j, i
	}
	if g.take(i, tried) {
		return i
	}
	if g.take(j, tried) {
		return j
	}
	return c.urn.pick(g, key, tried)
}
