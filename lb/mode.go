package lb

import (
	"fmt"
	"math"
)

// Policy says what a balancer does while no backend of any tier is Up with a
// weight above 0. Backups need no policy: giving a backend a Tier above 0 asks
// for them.
type Policy uint8

// The policies.
const (
	// PolicyEmpty gives no connection to anybody: Pick returns ErrEmpty.
	PolicyEmpty Policy = iota
	// PolicyPanic uses the backends in state Down whose weight is above 0, in the
	// belief that the judgement is wrong rather than that all of them are dead.
	// Of several tiers it uses the lowest that has such a backend. Drained
	// backends stay out of it.
	PolicyPanic
	// PolicyFailStatic keeps the last good set: the backends that were in use
	// when the last of them ceased to be Up, and those that went Down within
	// Config.FailStaticWindow before, as long as they stand in the list, are Down
	// and have a weight above 0. Where there was no good set, as after
	// New, it is PolicyEmpty. The balancer keeps the set until one is Up; how long
	// old knowledge may be used is for the caller to say, by changing the policy.
	PolicyFailStatic
)

// Mode tells on which ground backends are used at present.
type Mode uint8

// The modes.
const (
	// ModeNormal: backends of tier 0 are up.
	ModeNormal Mode = iota
	// ModeBackup: none of tier 0 is up, but some of a higher tier.
	ModeBackup
	// ModeFailStatic: none is up and PolicyFailStatic uses those that were.
	ModeFailStatic
	// ModePanic: none is up and PolicyPanic uses those that are down.
	ModePanic
	// ModeEmpty: no backend may be used. No lease has this mode.
	ModeEmpty
)

// String returns "normal", "backup", "failstatic", "panic" or "empty".
func (m Mode) String() string {
	switch m {
	case ModeNormal:
		return "normal"
	case ModeBackup:
		return "backup"
	case ModeFailStatic:
		return "failstatic"
	case ModePanic:
		return "panic"
	case ModeEmpty:
		return "empty"
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// choose returns which of the entries are used, as ascending indexes, and on which
// ground.
func choose[T any](entries []entry[T], policy Policy) ([]uint32, Mode) {
	if members, tier := lowest(entries, func(e *entry[T]) bool { return e.State == Up }); len(members) > 0 {
		if tier > 0 {
			return members, ModeBackup
		}
		return members, ModeNormal
	}
	var members []uint32
	switch policy {
	case PolicyPanic:
		members, _ = lowest(entries, func(e *entry[T]) bool { return e.State == Down })
		if len(members) > 0 {
			return members, ModePanic
		}
	case PolicyFailStatic:
		// The good ones were in use together, so they are of one tier, unless the
		// caller changed it meanwhile.
		members, _ = lowest(entries, func(e *entry[T]) bool { return e.State == Down && e.good })
		if len(members) > 0 {
			return members, ModeFailStatic
		}
	}
	return nil, ModeEmpty
}

// lowest returns the entries with a weight that usable accepts, of the lowest tier
// that has any.
func lowest[T any](entries []entry[T], usable func(*entry[T]) bool) (members []uint32, tier uint8) {
	tier = math.MaxUint8
	for i := range entries {
		e := &entries[i]
		if e.Weight == 0 || e.Tier > tier || !usable(e) {
			continue
		}
		if e.Tier < tier || members == nil {
			tier, members = e.Tier, make([]uint32, 0, len(entries)-i)
		}
		members = append(members, uint32(i))
	}
	return members, tier
}
