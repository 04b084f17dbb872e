package health

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// AgentReport is what one line of an HAProxy agent says. What the line leaves out
// stays as it was before.
type AgentReport struct {
	// State is the operational state: "up", "down", "fail" or "stopped", or empty.
	// The latter three all mean down; they differ in what a person thinks of it.
	State string
	// Admin is the administrative state: "ready", "drain" (no new clients), "maint"
	// (none at all), or empty.
	Admin string
	// Weight is in percent of the configured weight, 0 to 25,600, or -1.
	Weight int
	// MaxConn is the number of connections the server wants at most, or -1.
	MaxConn int
	// Detail is for people, may be empty.
	Detail string
}

// ErrAgent is matched by the error of [ParseAgent].
var ErrAgent = errors.New("health: bad agent line")

const (
	maxAgentWeight = 25_600 // takes weight 1 to 256, the largest
	maxAgentConns  = 1<<31 - 1
)

// ParseAgent parses the line that an agent of HAProxy's agent-check answers: words
// separated by spaces, tabs or commas, in any order and case, then, if it likes, a
// "#" and a text for people. Of several words about the same thing the last one
// counts. The line may end with "\r" and "\n"; what follows those is not part of
// it. A word that is none of the protocol's is an error, and so is a line that says
// nothing: an answer that is only half understood is no answer.
func ParseAgent(line string) (AgentReport, error) {
	r := AgentReport{Weight: -1, MaxConn: -1}
	if end := strings.IndexAny(line, "\r\n"); end >= 0 {
		line = line[:end]
	}
	words, detail, _ := strings.Cut(line, "#")
	r.Detail = strings.TrimSpace(detail)
	said := false
	for _, word := range strings.FieldsFunc(words, func(c rune) bool { return c == ' ' || c == '\t' || c == ',' }) {
		said = true
		lower := strings.ToLower(word)
		percent, isWeight := strings.CutSuffix(lower, "%")
		conns, isConns := strings.CutPrefix(lower, "maxconn:")
		ok := true
		switch {
		case lower == "up" || lower == "down" || lower == "fail" || lower == "stopped":
			r.State = lower
		case lower == "ready" || lower == "drain" || lower == "maint":
			r.Admin = lower
		case isWeight:
			r.Weight, ok = number(percent, maxAgentWeight)
		case isConns:
			r.MaxConn, ok = number(conns, maxAgentConns)
		default:
			ok = false
		}
		if !ok {
			return AgentReport{}, fmt.Errorf("%w: %.40q is no word of it: want up, down, fail, stopped, ready, drain, maint, "+
				"0%% to %d%%, or maxconn:0 to maxconn:%d", ErrAgent, word, maxAgentWeight, maxAgentConns)
		}
	}
	if !said {
		return AgentReport{}, fmt.Errorf("%w: it says nothing", ErrAgent)
	}
	return r, nil
}

// number parses digits only, up to most.
func number(s string, most uint64) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n > most {
		return 0, false
	}
	return int(n), true
}

// String returns the line that says this, without line end.
func (r AgentReport) String() string {
	var words []string
	if r.State != "" {
		words = append(words, r.State)
	}
	if r.Admin != "" {
		words = append(words, r.Admin)
	}
	if r.Weight >= 0 {
		words = append(words, fmt.Sprintf("%d%%", r.Weight))
	}
	if r.MaxConn >= 0 {
		words = append(words, fmt.Sprintf("maxconn:%d", r.MaxConn))
	}
	if r.Detail != "" {
		words = append(words, "#"+r.Detail)
	}
	return strings.Join(words, " ")
}
