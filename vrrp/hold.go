package vrrp

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// holdSlack is subtracted from the rest of a token before it is rounded down
// to the kernel's whole seconds: the time between our reading of the clock and
// the kernel's.
const holdSlack = 50 * time.Millisecond

// holdGain is the least prolongation for which a new token is followed by a
// renewal before a third of the lifetime has passed.
const holdGain = 500 * time.Millisecond

// holdAction is what the machine wants done next. The driver does it and
// reports the outcome, quoting the epoch.
type holdAction struct {
	kind     holdActionKind
	epoch    uint64
	lifetime time.Duration // holdAdd, holdRenew
}

type holdActionKind uint8

const (
	holdNothing     holdActionKind = iota
	holdAdd                        // add the addresses, refusing foreign ones
	holdRenew                      // renew the addresses, or add them again
	holdRemove                     // remove the addresses
	holdFindMissing                // held: which addresses are missing?
	holdFindLeft                   // not held: which addresses of ours are here?
	holdAnnounce                   // announce the addresses, if the epoch still holds at each frame
)

// holdMachine decides what a Holder does. It is pure: no clock, no goroutine,
// no system call. Its inputs are the token (hold, release), what the kernel
// and the watcher tell, and the time.
//
// An epoch is one uninterrupted span with or without a token. Whatever was
// begun in another epoch counts for nothing.
type holdMachine struct {
	prefixes  []netip.Prefix
	announces bool // there is something to announce
	lifetime  time.Duration
	margin    time.Duration
	ann       *AnnounceSchedule

	running bool
	epoch   uint64
	wants   bool // a token is held
	until   time.Time

	present    bool      // addresses of ours may be here
	addedEpoch uint64    // epoch in which the addresses were added; 0: never
	repair     string    // why they must be added again; "" when they need not
	kernelEnd  time.Time // until then the kernel keeps them at least
	kernelLast time.Time // and until then at most
	renewDue   time.Time // a third of the lifetime after the last renewal
	renewAt    time.Time // renewDue, or later where renewing would gain nothing
	checkAt    time.Time
	tryAt      time.Time // no earlier attempt to add or remove
	tooShort   bool      // tryAt waits for a longer token
	repairedAt time.Time // last repair, to pace a fight over an address

	round string // why the announcement round was started; "" once it was reported

	state  HolderState
	since  time.Time
	fresh  time.Time // last proof of the state
	reason string
	err    error
	sent   uint64
	events []HolderEvent
}

// beat is the distance of renewals and checks at full lifetime.
func (m *holdMachine) beat() time.Duration { return m.lifetime / 3 }

// pace is the least distance of two attempts after a fault, and of two repairs
// in a fight over an address.
func (m *holdMachine) pace() time.Duration { return min(m.beat(), time.Second) }

// lateness is how late a wake-up may be before we call it a freeze.
func (m *holdMachine) lateness() time.Duration { return min(m.beat(), 2*time.Second) }

// letGo is when the addresses must begin to go: margin before the token ends.
func (m *holdMachine) letGo() time.Time { return m.until.Add(-m.margin) }

// start begins to work. A token that was handed over before counts.
func (m *holdMachine) start(now time.Time) {
	m.running = true
	m.checkAt, m.tryAt = now, now
	switch {
	case m.wants:
		m.enter(now, HolderTaking, "the token is valid")
	default:
		// Not yet known; the first check confirms it.
		m.enter(now, HolderReleasing, "starting")
	}
}

// stop ends the work for good.
func (m *holdMachine) stop(now time.Time) {
	m.running, m.wants = false, false
	m.epoch++
	m.ann.Stop()
	m.enter(now, HolderUnknown, "not running")
}

// hold takes a token that is valid until the given instant, or a new end for
// the one that is held.
func (m *holdMachine) hold(now, until time.Time) {
	if rest := until.Sub(now); rest <= m.margin {
		m.release(now, fmt.Sprintf("the token ends in %v, within the margin of %v", max(rest, 0).Round(time.Millisecond), m.margin))
		return
	}
	switch {
	case m.wants && now.Before(m.letGo()):
		m.until = until
		m.renewAt = m.renewDue
		// A token that comes with each sign of life, as VRRP's does with each
		// advert, carries the kernel's lifetime along: then an address that a
		// killed holder leaves ends a whole lifetime after the last sign.
		gain := now.Add(m.kernelLifetime(now)).Sub(m.kernelEnd)
		if m.renewDue.Before(now) || m.kernelLast.After(until) || gain >= holdGain {
			m.renewAt = now
		}
		if m.tooShort {
			m.tryAt, m.tooShort = now, false
		}
		return
	case m.wants:
		// The old token ended and nobody had noticed: we were frozen. What we
		// did under it proves nothing any more.
		m.begin(now, until, "a new token, after the last had ended unnoticed")
	default:
		m.begin(now, until, "the token is valid")
	}
}

// begin starts a tenure.
func (m *holdMachine) begin(now, until time.Time, reason string) {
	m.epoch++
	m.wants, m.until = true, until
	m.repair, m.tooShort = "", false
	m.repairedAt = time.Time{}
	m.ann.Stop()
	m.tryAt = now
	m.err = nil
	if m.running {
		m.enter(now, HolderTaking, reason)
	}
}

// release gives the token back. Nothing is announced from here on.
func (m *holdMachine) release(now time.Time, reason string) {
	m.epoch++
	m.wants = false
	m.repair = ""
	m.ann.Stop()
	m.err = nil
	if !m.running {
		return
	}
	m.tryAt, m.checkAt = now, now
	if m.present || m.state == HolderReleasing {
		m.enter(now, HolderReleasing, reason)
	} else {
		m.enter(now, HolderReleased, reason)
	}
}

// again starts a new round of announcements, if the addresses are held.
func (m *holdMachine) again(now time.Time, reason string) {
	if m.state == HolderHeld && m.announces {
		m.ann.Again(now)
		m.round = reason
	}
}

// linkUp notes that the interface can send again: what was said meanwhile was
// not heard, and an interface made anew carries no address.
func (m *holdMachine) linkUp(now time.Time) {
	m.suspect(now)
	if m.wants && m.mustAdd(now) && m.tryAt.After(now) && !m.tooShort {
		m.tryAt = now
	}
	m.again(now, "the link came up")
}

// suspect asks for a check now.
func (m *holdMachine) suspect(now time.Time) {
	if now.Before(m.checkAt) {
		m.checkAt = now
	}
}

// mayAnnounce is asked immediately before each frame.
func (m *holdMachine) mayAnnounce(now time.Time, epoch uint64) bool {
	return m.running && m.wants && m.epoch == epoch && now.Before(m.letGo()) && now.Before(m.kernelEnd)
}

// deadline tells when advance wants to be called; ok is false when never.
func (m *holdMachine) deadline() (due time.Time, ok bool) {
	switch {
	case !m.running:
		return time.Time{}, false
	case !m.wants && m.present:
		return m.tryAt, true
	case !m.wants:
		return m.checkAt, true
	case m.mustAdd(time.Time{}):
		return earliest(m.letGo(), m.tryAt), true
	}
	due = earliest(m.letGo(), m.kernelEnd, m.renewAt, m.checkAt)
	if a, ok := m.ann.Deadline(); ok {
		due = earliest(due, a)
	}
	return due, true
}

func earliest(t time.Time, more ...time.Time) time.Time {
	for _, o := range more {
		if o.Before(t) {
			t = o
		}
	}
	return t
}

// mustAdd tells that the addresses are not known to be here.
func (m *holdMachine) mustAdd(now time.Time) bool {
	return m.addedEpoch != m.epoch || m.repair != "" || !now.Before(m.kernelEnd)
}

// advance returns the next thing to do; the driver calls it until it returns
// holdNothing. Early and repeated calls are harmless. After a late call the
// order is what matters: a token that ended meanwhile is given back before
// anything else.
func (m *holdMachine) advance(now time.Time) holdAction {
	due, ok := m.deadline()
	if !ok {
		return holdAction{}
	}
	late := now.Sub(due)
	if m.wants && !now.Before(m.letGo()) {
		reason := "the token ended"
		if over := now.Sub(m.until); over > 0 {
			reason = fmt.Sprintf("the token ended %v ago, unnoticed", over.Round(time.Millisecond))
		}
		m.release(now, reason)
	}
	if !m.wants {
		return m.advanceReleased(now)
	}
	if !m.mustAdd(now) && late > m.lateness() {
		// We were frozen or starved. The kernel may have removed the
		// addresses, the neighbours may have heard a rival.
		m.mend(now, fmt.Sprintf("woken %v late", late.Round(time.Millisecond)))
		m.tryAt = now
	}
	if m.mustAdd(now) {
		return m.advanceTaking(now)
	}
	return m.advanceHeld(now)
}

func (m *holdMachine) advanceReleased(now time.Time) holdAction {
	switch {
	case m.present && !now.Before(m.tryAt):
		return holdAction{kind: holdRemove, epoch: m.epoch}
	case !m.present && !now.Before(m.checkAt):
		return holdAction{kind: holdFindLeft, epoch: m.epoch}
	}
	return holdAction{}
}

func (m *holdMachine) advanceTaking(now time.Time) holdAction {
	if m.addedEpoch == m.epoch && m.repair == "" {
		m.mend(now, "the kernel's lifetime ended before it was renewed")
	}
	if now.Before(m.tryAt) {
		return holdAction{}
	}
	lifetime := m.kernelLifetime(now)
	if lifetime == 0 {
		m.tryAt, m.tooShort = m.until, true
		m.enter(now, HolderTaking, fmt.Sprintf("the token ends in %v, which is less than a kernel lifetime of whole seconds", m.until.Sub(now).Round(time.Millisecond)))
		return holdAction{}
	}
	kind := holdAdd
	if m.addedEpoch == m.epoch {
		kind = holdRenew
	}
	return holdAction{kind, m.epoch, lifetime}
}

func (m *holdMachine) advanceHeld(now time.Time) holdAction {
	tooLong := m.kernelLast.After(m.until)
	if tooLong || !now.Before(m.renewAt) {
		lifetime := m.kernelLifetime(now)
		switch {
		case lifetime == 0 && tooLong:
			// The kernel cannot be told to let go in time, so we do it.
			m.release(now, "the token was shortened to less than a kernel lifetime of whole seconds")
			return m.advanceReleased(now)
		case lifetime == 0:
			m.renewAt = m.until // unless the token is extended
		case !tooLong && !now.Add(lifetime).After(m.kernelEnd):
			m.renewAt = now.Add(m.beat()) // rounding would only shorten it
		default:
			return holdAction{holdRenew, m.epoch, lifetime}
		}
	}
	if !now.Before(m.checkAt) {
		return holdAction{kind: holdFindMissing, epoch: m.epoch}
	}
	if m.ann.Advance(now) {
		return holdAction{kind: holdAnnounce, epoch: m.epoch}
	}
	return holdAction{}
}

// kernelLifetime is the lifetime to ask for: whole seconds that end before the
// token does. 0: the token is too short.
func (m *holdMachine) kernelLifetime(now time.Time) time.Duration {
	rest := m.until.Sub(now) - holdSlack
	return max(0, min(m.lifetime, rest)).Truncate(time.Second)
}

// mend makes the addresses be added again.
func (m *holdMachine) mend(now time.Time, why string) {
	m.repair = why
	m.ann.Stop()
	m.tryAt = now
	m.enter(now, HolderTaking, why)
}

// enter notes a state, or that it was proved once more.
func (m *holdMachine) enter(now time.Time, s HolderState, reason string) {
	if s != m.state {
		m.state, m.since = s, now
	}
	m.fresh, m.reason = now, reason
}

func (m *holdMachine) emit(now time.Time, k HolderEventKind, prefixes []netip.Prefix, reason string, err error) {
	m.events = append(m.events, HolderEvent{Kind: k, At: now, State: m.state, Prefixes: slices.Clone(prefixes), Reason: reason, Err: err})
}

// validUntil is when the state stops being true unless it is proved again.
func (m *holdMachine) validUntil() time.Time {
	switch {
	case m.state == HolderHeld:
		return earliest(m.until, m.kernelEnd)
	case m.state == HolderTaking:
		return earliest(m.fresh.Add(m.lifetime), m.until)
	}
	return m.fresh.Add(m.lifetime)
}

// status is the state as it may be told at now.
func (m *holdMachine) status(now time.Time) HolderStatus {
	st := HolderStatus{State: m.state, Since: m.since, Reason: m.reason, Err: m.err, Announcements: m.sent}
	if !m.running {
		st.State, st.Reason = HolderUnknown, "not running"
		return st
	}
	end := m.validUntil()
	if now.Before(end) {
		st.ValidUntil = end
		return st
	}
	st.Reason = fmt.Sprintf("%v, but not renewed in time", m.state)
	st.State, st.Since = HolderUnknown, end
	return st
}
