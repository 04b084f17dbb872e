package lb

// Algorithm decides in which sequence a [Balancer] uses its backends. The values
// are of the types that the package documentation lists; the interface can't be
// implemented elsewhere.
type Algorithm interface {
	// Name returns the algorithm's name in lower case.
	Name() string

	// traits tells what the balancer must keep for it.
	traits() traits
	// fault returns what is wrong with the settings, "" if nothing.
	fault() string
	// prepare makes the picker for a group that has members. old is the picker
	// that it replaces, nil if there was none; draw gives a uniform number below
	// its argument.
	prepare(g *group, old picker, draw func(n uint64) uint64) picker
}

// traits are an algorithm's needs.
type traits struct {
	unweighted bool     // all weights above 0 are alike
	load       bool     // open leases of each member
	total      bool     // open leases of all members
	latency    PeakEWMA // latencies of each member, if Decay is set
	most       int      // largest number of backends, 0 for no bound
}

// picker is the part of a snapshot that chooses. It is safe for concurrent use,
// takes no lock and does not allocate.
type picker interface {
	// pick takes a member, by its index, that is neither full nor tried. It
	// returns none if it finds no such member.
	pick(g *group, key uint64, tried set) int
}
