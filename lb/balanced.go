package lb

import (
	"cmp"
	"maps"
	"slices"
)

// Balanced assigns a whole fleet at once: loads that differ by at most one agent,
// by as few moves as that takes. The orders decide for one agent without knowing
// the others; this needs to know them all.
type Balanced struct{}

// Name returns "balanced".
func (Balanced) Name() string { return "balanced" }

// Assign returns a host for each agent in held, which maps agents to the hosts
// that they are assigned to at present; "" and hosts that are not in hosts mean
// none. With n agents and m hosts each host gets n/m agents, rounded down or up;
// the places by rounding up go to the hosts that hold most now.
//
// As many agents stay as these places allow, and that is as many as any division
// into loads that differ by at most one allows. An agent stays or moves by its
// order of [Rendezvous]: of too many agents those stay that rank their host
// highest, and a moving one takes the first host in its order that has room. So
// the result depends on the set of hosts and on held, not on any sequence, and a
// second Assign of the result moves nobody.
//
// Duplicate hosts count once. The result is a fresh map; without hosts it is
// empty. The cost is O(n log n), and O(m log m) for each agent that moves.
func (Balanced) Assign(hosts []string, held map[string]string) map[string]string {
	hosts = distinct(hosts)
	if len(hosts) == 0 {
		return map[string]string{}
	}
	holders := make(map[string][]string, len(hosts))
	for _, h := range hosts {
		holders[h] = nil
	}
	var moving []string
	for agent, host := range held {
		if _, known := holders[host]; known {
			holders[host] = append(holders[host], agent)
		} else {
			moving = append(moving, agent)
		}
	}

	// Most agents first; the text decides between equals, not the position in the
	// configuration.
	slices.SortFunc(hosts, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(holders[b]), len(holders[a])), cmp.Compare(a, b))
	})
	room := make(map[string]int, len(hosts))
	out := make(map[string]string, len(held))
	for i, host := range hosts {
		quota := len(held) / len(hosts)
		if i < len(held)%len(hosts) {
			quota++
		}
		agents := holders[host]
		if len(agents) > quota {
			moving = append(moving, leastAttached(agents, host, len(agents)-quota)...)
			agents = agents[:quota]
		}
		for _, agent := range agents {
			out[agent] = host
		}
		room[host] = quota - len(agents)
	}
	maps.DeleteFunc(room, func(_ string, n int) bool { return n == 0 })

	slices.Sort(moving)
	for _, agent := range moving {
		// Only hosts with room need to be ranked, and there are as many places as
		// there are agents that move.
		host := Rendezvous{}.Arrange(slices.Collect(maps.Keys(room)), 0, agent)[0]
		out[agent] = host
		if room[host]--; room[host] == 0 {
			delete(room, host)
		}
	}
	return out
}

// leastAttached sorts agents, which all hold host, by falling score and returns
// the last n of them.
func leastAttached(agents []string, host string, n int) []string {
	score := make(map[string]uint64, len(agents))
	for _, a := range agents {
		score[a] = mix64(fnv64(rendezvousPrefix(a), host))
	}
	slices.SortFunc(agents, func(a, b string) int {
		return cmp.Or(cmp.Compare(score[b], score[a]), cmp.Compare(a, b))
	})
	return agents[len(agents)-n:]
}
