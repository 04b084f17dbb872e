package balancer

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/lastbeat/lastbeat/lb"
)

// algorithms are those that suit connections, by the name in the file. PeakEWMA is
// not among them: a TCP proxy sees connects, whose time says little about a server.
var algorithms = map[string]lb.Algorithm{
	"roundrobin":         lb.RoundRobin{},
	"weightedroundrobin": lb.WeightedRoundRobin{},
	"leastconn":          lb.LeastConn{},
	"random":             lb.WeightedRandom{},
	"p2c":                lb.P2C{},
	"source":             lb.SourceHash{},
	"maglev":             lb.Maglev{},
	"first":              lb.Static{},
}

// algorithm returns what the name stands for.
func algorithm(name string) (lb.Algorithm, error) {
	a, ok := algorithms[name]
	if !ok {
		names := slices.Sorted(maps.Keys(algorithms))
		return nil, &Error{"algorithm", name, errors.New("no such algorithm"), "choose one of " + strings.Join(names, ", ")}
	}
	return a, nil
}
