package nft

import "fmt"

// Conflict is a chain of another table that can keep the redirect from working.
// It is a warning: whether it does depends on its rules, which are not read.
// Rules of iptables-legacy are not seen.
type Conflict struct {
	Family   string // "ip", "ip6" or "inet"
	Table    string // its table
	Chain    string // its name
	Hook     string // "prerouting", "input" or "output"
	Priority int    // lower ones see a packet first
	Kind     ConflictKind
}

// ConflictKind says how a chain gets in the way.
type ConflictKind uint8

// The kinds.
const (
	// RewritesFirst: a nat chain that runs before ours. What it rewrites we never see.
	RewritesFirst ConflictKind = iota + 1
	// SamePriority: a nat chain of our priority. The one registered last runs first.
	SamePriority
	// Drops: a chain whose policy drops what it does not accept. That we accept a
	// packet does not save it there.
	Drops
)

// String describes the conflict and its remedy.
func (c Conflict) String() string {
	chain := fmt.Sprintf("chain %s of table %s %s (hook %s, priority %d)", c.Chain, c.Family, c.Table, c.Hook, c.Priority)
	switch c.Kind {
	case RewritesFirst:
		return chain + " rewrites before ours; choose a lower Options.Priority"
	case SamePriority:
		return chain + " has our priority, and the chain registered last runs first; choose a lower Options.Priority"
	case Drops:
		return chain + " has policy drop; let it accept \"ct status dnat\" or the redirects' To ports"
	}
	return chain + fmt.Sprintf(": ConflictKind(%d)", uint8(c.Kind))
}

// baseChain is a chain of another table.
type baseChain struct {
	family, table, name, kind, hook string
	priority                        int
	drops                           bool
}

func findConflicts(priority int, chains []baseChain) []Conflict {
	var found []Conflict
	for _, c := range chains {
		var kind ConflictKind
		onPath := c.hook == string(prerouting) || c.hook == string(output)
		switch {
		case onPath && c.kind == "nat" && c.priority < priority:
			kind = RewritesFirst
		case onPath && c.kind == "nat" && c.priority == priority:
			kind = SamePriority
		case c.drops && (onPath || c.hook == "input"):
			kind = Drops
		default:
			continue
		}
		found = append(found, Conflict{c.family, c.table, c.name, c.hook, c.priority, kind})
	}
	return found
}
