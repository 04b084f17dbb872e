package balancer

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/lastbeat/lastbeat/examples/internal/tcpproxy"
)

// autoMaxConn is what Auto takes where the descriptor limit allows it.
const autoMaxConn = 40_000

// reserve is how many descriptors are kept from connections: for listeners, probes,
// requests to the HTTP ports, and what else lives in the process. A process that is
// allowed more is a bigger one, so a twenty-fifth of the limit, at least 64.
func reserve(limit uint64) uint64 { return max(64, limit/25) }

// room returns how many connections fit below a descriptor limit.
func room(limit uint64) int {
	if limit <= reserve(limit) {
		return 0
	}
	return int(min((limit-reserve(limit))/tcpproxy.Descriptors, math.MaxInt32))
}

// maxConn returns how many connections to serve at once under a descriptor limit,
// and a note for people when that is less than Auto would have liked.
func maxConn(want MaxConn, limit uint64) (n int, note string, err error) {
	fit := room(limit)
	value := thousands(uint64(max(0, want)))
	switch {
	case want < 0:
		return 0, "", &Error{"maxconn", int(want), errors.New("no number of connections"), "give 1 or more, or auto"}
	case fit == 0:
		if want == Auto {
			value = "auto"
		}
		return 0, "", &Error{"maxconn", value, fmt.Errorf("descriptor limit %s has no room for a connection", thousands(limit)),
			"raise the limit, as by ulimit -n 1024"}
	case want == Auto && fit >= autoMaxConn:
		return autoMaxConn, "", nil
	case want == Auto:
		return fit, fmt.Sprintf("maxconn %s of %s: descriptor limit %s", thousands(uint64(fit)), thousands(autoMaxConn), thousands(limit)), nil
	case int(want) > fit:
		return 0, "", &Error{"maxconn", value,
			fmt.Errorf("descriptor limit %s has room for %s", thousands(limit), thousands(uint64(fit))),
			fmt.Sprintf("lower it to %d or auto, or raise the limit by ulimit -n %d", fit, need(int(want)))}
	}
	return int(want), "", nil
}

// need returns the least descriptor limit that has room for n connections.
func need(n int) uint64 {
	spliced := uint64(n) * tcpproxy.Descriptors
	limit := max(spliced+64, spliced*25/24-1) // but for rounding
	for room(limit) < n {
		limit++
	}
	return limit
}

// thousands writes n with a comma every three digits.
func thousands(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
