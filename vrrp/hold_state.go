package vrrp

import (
	"fmt"
	"net/netip"
	"time"
)

// HolderState says what a [Holder] knows about its addresses.
//
//	           Hold                  added
//	Released ───────▶ Taking ─────────────────▶ Held
//	   ▲               │  ▲   removed by others  │
//	   │               │  └──────────────────────┤
//	   │  removed      │ Release, token ends     │
//	   └── Releasing ◀─┴─────────────────────────┘
//
// Any of them reads as Unknown once it was not renewed in time.
type HolderState uint8

// The states of a [Holder].
const (
	HolderUnknown   HolderState = iota // not running, or silent for too long
	HolderReleased                     // none of the addresses is here
	HolderTaking                       // the token is valid; not every address is here yet
	HolderHeld                         // the token is valid and every address is here
	HolderReleasing                    // the token is gone; addresses may still be here
)

// String returns the state's name in lower case.
func (s HolderState) String() string {
	switch s {
	case HolderUnknown:
		return "unknown"
	case HolderReleased:
		return "released"
	case HolderTaking:
		return "taking"
	case HolderHeld:
		return "held"
	case HolderReleasing:
		return "releasing"
	}
	return fmt.Sprintf("HolderState(%d)", uint8(s))
}

// HolderStatus is a snapshot, true until ValidUntil.
type HolderStatus struct {
	State HolderState
	// Since is when the state was entered; for a state that expired, when it
	// did.
	Since time.Time
	// ValidUntil is when the state reads as Unknown unless it is renewed
	// before: for Held, when the token ends or the kernel removes the
	// addresses, whichever is first. Zero for Unknown.
	ValidUntil time.Time
	// Reason tells in words why the state is what it is.
	Reason string
	// Err is the fault that the last attempt to change something ended with,
	// nil after a success.
	Err error
	// Announcements counts the announcements sent since Run started.
	Announcements uint64
}

// HolderEventKind tells what happened.
type HolderEventKind uint8

// The kinds of a [HolderEvent].
const (
	HolderAdded     HolderEventKind = iota + 1 // all addresses are here, for the first time in this tenure
	HolderAnnounced                            // the first announcement of a round left
	HolderLost                                 // somebody else removed addresses
	HolderRestored                             // addresses were added again, after a loss or a freeze
	HolderRemoved                              // the addresses were removed
	HolderFault                                // an attempt failed and will be repeated
)

// String returns the kind's name in lower case.
func (k HolderEventKind) String() string {
	switch k {
	case HolderAdded:
		return "added"
	case HolderAnnounced:
		return "announced"
	case HolderLost:
		return "lost"
	case HolderRestored:
		return "restored"
	case HolderRemoved:
		return "removed"
	case HolderFault:
		return "fault"
	}
	return fmt.Sprintf("HolderEventKind(%d)", uint8(k))
}

// HolderEvent is something that happened to the addresses of a [Holder].
type HolderEvent struct {
	Kind     HolderEventKind
	At       time.Time      // when it happened
	State    HolderState    // after the event
	Prefixes []netip.Prefix // the addresses concerned
	Reason   string         // for people, may be empty
	Err      error          // of HolderFault
	// Missed counts earlier events of the same kind that this one replaced
	// because the consumer was still busy.
	Missed int
}
