// Package lb decides which backend gets the next connection, and in which order
// an agent walks a list of hosts.
//
// The two jobs share algorithms, not an interface. A third type, [Pool], dials for
// clients that keep one connection to one of a few servers.
//
// # Balancing connections
//
// A [Balancer] hands out one [Backend] per connection:
//
//	b, err := lb.New(lb.Config{},
//		lb.Backend[string]{Key: "a", Value: "192.0.2.1:6443", Weight: 1},
//		lb.Backend[string]{Key: "b", Value: "192.0.2.2:6443", Weight: 1})
//	...
//	lease, err := b.Pick(0)
//	if err != nil {
//		return err // lb.ErrEmpty: nobody may take the connection
//	}
//	defer func() { lease.Done(time.Now(), lb.Result{Failed: failed}) }()
//	serve(lease.Value())
//
// The backends stand in an immutable snapshot behind one atomic pointer.
// [Balancer.Set] and [Balancer.Update] build a new snapshot beside the old one
// and swap it in; they validate everything first, so that a bad list changes
// nothing. [Balancer.Pick] takes no lock, never blocks, never loops and does
// not allocate. All methods of a Balancer may be called from any goroutine.
// The package starts no goroutine and reads no clock; only the attempts of a Pool
// to dial are bounded in time.
//
// Only backends in state [Up] with a weight above 0 get new connections. Those
// that may not are left out when the snapshot is built, not stepped over at
// each pick: stepping over gives the neighbour of a dead backend a double
// share. Backends of a higher tier are backups for those of lower ones. What
// happens when nobody is left is the [Policy], and each lease tells the [Mode] in
// which it was given, because traffic to backends that are known to be bad must
// never be a surprise. A backend may have a limit on its open leases.
//
// A caller whose connect fails wants another backend, not the same one again.
// [Balancer.Walk] yields every eligible backend once, taking each step from the
// same sequence as Pick, so that the share of a dead backend is spread over
// all others and not moved to its neighbour.
//
// A backend that returns, or is new, may start slowly: see Config.SlowStart and
// [Balancer.Advance], which tells the balancer the time. [Sticky] keeps clients
// with their backends by a table, whatever the algorithm.
//
// # Algorithms
//
// In turn:
//
//   - [RoundRobin] gives each backend one turn per lap, whatever its weight.
//   - [WeightedRoundRobin] gives a backend of weight w exactly w turns per lap of
//     W, the sum of all weights (both divided by their greatest common divisor).
//     After any number t of turns of a lap the turns of each backend differ from
//     its ideal t*w/W by less than 1, the best that is possible in general. Seen
//     from any other point of the lap the difference stays below 2.
//   - [Shuffle] gives each backend one turn per lap, every lap in another order.
//   - [Static] uses the first backend of the list that has room.
//
// At random: [Random] and [WeightedRandom].
//
// By load: [P2C] takes the less loaded of two random backends, [PeakEWMA] looks at
// their latencies as well, [LeastConn] takes the least loaded of all.
//
// By key, so that a client stays with its backend:
//
//   - [Maglev] uses a lookup table; few keys move when a backend comes or goes.
//   - [Ring] moves only the keys of that backend, and can bound the load of each.
//   - [Rendezvous] does too, and more evenly, but looks at all backends each time.
//   - [SourceHash] is the plain mapping that moves most keys.
//
// All of them spread over the others what a backend leaves that is gone, full or
// was tried in vain. What differs between balancers and what they share are two
// settings: Config.Rand seeds the algorithms in turn, at random and by load, and
// each balancer has its own, so a fleet of fresh ones does not start on the same
// backend. Config.HashSeed seeds the algorithms by key, and a fleet shares it.
//
// The laps begin at a random point, and the first pick already follows the weights.
// A rebuild keeps the position as a fraction of the lap, rounded at random: a
// frequent rebuild neither restarts the lap (the backends late in it would never
// be reached) nor skips or repeats the same ones again and again. Loads and
// latencies outlive rebuilds too.
//
// A pick costs the same for any number of backends, except by LeastConn (in
// proportion to its logarithm), Rendezvous and a Static whose first ones are full.
// When most backends are full, a pick may look at all of them, once. Building a
// snapshot costs O(n), with these exceptions: WeightedRoundRobin O(W log n) time
// and 4 bytes for each turn of the lap, at most 256 per backend; Maglev by the
// size of its table; Ring by the number of its points.
//
// # Ordering hosts for agents
//
// [Static], [RoundRobin], [Shuffle], [Rendezvous] and [WeightedRendezvous] arrange
// the list of hosts that one agent of a fleet gets. They are pure functions of their arguments:
//
//   - Static leaves the order as it is: everybody prefers the first host.
//   - RoundRobin rotates the list left by the agent's position in the fleet. It
//     gives the lists that Apache CloudStack's indirect agent load balancer
//     gives, except that duplicate hosts are dropped first.
//   - Shuffle gives each agent a permutation of its own, drawn from the seed and
//     the agent's key. Everybody who knows the two gets the same list again, in
//     any process and with any version of Go, whatever the order in which the
//     hosts were configured; another key or seed gives an independent one.
//   - Rendezvous ranks the hosts by a hash of agent and host: a host that comes
//     or goes moves only the agents that gain or lose it, and a dead host's
//     agents spread over all others. WeightedRendezvous does so for hosts of
//     unequal size.
//
// [Balanced] assigns a whole fleet at once: even to one agent, by the fewest moves.
//
// Hosts are compared as text. Trimming, lower-casing and other normalising is the
// caller's.
//
// # Not implemented
//
//   - a subset of the backends for each balancer of a large fleet; a counter of
//     picks for each processor (all picks in turn or at random share one)
//   - a queue for connections that find every backend full
//   - a bound on the time for which PolicyFailStatic keeps the last good set
//   - a Pool that leaves a working server for a preferred one that has come up
package lb
