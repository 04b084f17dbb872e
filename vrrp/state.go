package vrrp

import (
	"fmt"
	"net/netip"
	"time"
)

// State is the state of a virtual router.
//
//	            Start                    down timer, or owner
//	Initialize ───────► Backup ─────────────────────────────► Active
//	    ▲                 ▲  ▲       better advert, starved      │ │
//	    │ Shutdown        │  └───────────────────────────────────┘ │
//	    │ (from any)      │ tracks up                              │
//	    │                 └──────────────── Fault ◄────────────────┘
//	    └─────────────────────────────────────  a track of weight 0 fails
//	                                            (from Backup too)
//
// From Fault an owner goes to Active at once.
type State uint8

const (
	// Unknown is what a reader sees of a router that has stopped renewing its
	// own status. No machine is ever in it.
	Unknown    State = iota
	Initialize       // not started, or shut down
	Backup           // listening to the active router
	Active           // holding the addresses
	Fault            // unfit: neither listening nor holding
)

// String returns the state's name.
func (s State) String() string {
	switch s {
	case Unknown:
		return "Unknown"
	case Initialize:
		return "Initialize"
	case Backup:
		return "Backup"
	case Active:
		return "Active"
	case Fault:
		return "Fault"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Cause is the kind of event that led to a state.
type Cause uint8

// The causes.
const (
	NoCause         Cause = iota
	Started               // the router was started
	OwnsAddresses         // priority 255 starts active
	HeardNobody           // no advert for a whole down interval
	HolderLeft            // the active router sent priority 0
	BetterPeer            // a router of higher priority, or equal and higher address
	RivalHeard            // a router with the weaker claim advertised too
	TrackDown             // a track of weight 0 is down
	TrackNotRenewed       // a track of weight 0 was not reported in time
	TrackPending          // a track of weight 0 has not reported yet
	TracksUp              // all tracks of weight 0 are up again
	Starved               // we did not run long enough for others to take over
	Stopped               // shut down
	NotRenewed            // nobody has renewed this status
)

// Reason says why a router is in its state.
type Reason struct {
	Cause Cause
	Peer  netip.Addr // the other router: HolderLeft, BetterPeer, RivalHeard, HeardNobody where known
	Track string     // the track, for TrackDown, TrackNotRenewed and TrackPending
}

// String tells the reason in words.
func (r Reason) String() string {
	switch r.Cause {
	case NoCause:
		return "none"
	case Started:
		return "started"
	case OwnsAddresses:
		return "owns the addresses"
	case HeardNobody:
		if r.Peer.IsValid() {
			return fmt.Sprintf("nothing heard of %v for the down interval", r.Peer)
		}
		return "no advert heard for the down interval"
	case HolderLeft:
		return fmt.Sprintf("%v left with priority 0", r.Peer)
	case BetterPeer:
		return fmt.Sprintf("%v has the better claim", r.Peer)
	case RivalHeard:
		return fmt.Sprintf("%v claimed the addresses too", r.Peer)
	case TrackDown:
		return fmt.Sprintf("%s is down", r.Track)
	case TrackNotRenewed:
		return fmt.Sprintf("%s was not renewed", r.Track)
	case TrackPending:
		return fmt.Sprintf("waiting for the first result of %s", r.Track)
	case TracksUp:
		return "all required tracks are up"
	case Starved:
		return "did not run for longer than the others wait"
	case Stopped:
		return "shut down"
	case NotRenewed:
		return "status not renewed"
	}
	return fmt.Sprintf("Cause(%d)", uint8(r.Cause))
}

// Status is what is known of a virtual router, and until when.
type Status struct {
	State      State
	Since      time.Time // when it came into State
	ValidUntil time.Time // when this stops being true unless the router runs on
	Reason     Reason
	Priority   uint8      // effective: with tracks added
	Holder     netip.Addr // the active router, ourselves included; invalid when not known
}

// At returns the status as it must be read at now: Unknown from ValidUntil on.
func (s Status) At(now time.Time) Status {
	if s.State == Unknown || now.Before(s.ValidUntil) {
		return s
	}
	return Status{State: Unknown, Since: s.ValidUntil, ValidUntil: s.ValidUntil, Reason: Reason{Cause: NotRenewed}}
}

// ActionKind is what an [Action] asks for.
type ActionKind uint8

// The actions. A caller carries them out in the order given.
const (
	// SendAdvert asks for an advert of the given Priority to every peer.
	SendAdvert ActionKind = iota + 1
	// Hold says that the addresses are ours until Until: install them, or renew.
	Hold
	// LetGo says that the addresses are not ours: cancel announcements at once,
	// then remove them.
	LetGo
	// Announce asks for a fresh round of announcements, because of Reason.
	Announce
	// Changed reports a transition From To because of Reason.
	Changed
)

// Action is what a machine wants done.
type Action struct {
	Kind     ActionKind
	Priority uint8     // SendAdvert
	Until    time.Time // Hold
	From, To State     // Changed
	Reason   Reason    // Changed, Announce
}

// Stats counts what a machine has seen and done.
type Stats struct {
	Received         uint64 // adverts accepted
	Sent             uint64 // rounds of adverts asked for
	SendErrors       uint64 // adverts that an Instance could not send
	BecameActive     uint64 // times that we took the addresses
	Yielded          uint64 // times that a better peer took over from us
	Reasserted       uint64 // reactions to a rival with the weaker claim
	Starved          uint64 // times that we found we had not been running
	AddrMismatches   uint64 // accepted adverts whose addresses are not ours (log only)
	IntervalMismatch uint64 // accepted version 3 adverts with another interval than ours

	discarded [numDiscards]uint64
}

// Discarded returns how many packets were discarded for a reason.
func (s Stats) Discarded(d Discard) uint64 {
	if d == Accepted || d >= numDiscards {
		return 0
	}
	return s.discarded[d]
}

// DiscardedTotal returns how many packets were discarded for any reason.
func (s Stats) DiscardedTotal() uint64 {
	var n uint64
	for _, c := range s.discarded[Accepted+1:] {
		n += c
	}
	return n
}
