package vrrp

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// This file holds the inputs of holdMachine by which the driver reports what
// became of an action.

// installed reports the outcome of holdAdd and holdRenew: when it was begun
// and ended.
func (m *holdMachine) installed(begun, ended time.Time, a holdAction, err error) {
	m.present = true // also after a fault: some may have been added
	if err != nil {
		m.fault(ended, a.epoch, err)
		if a.epoch == m.epoch {
			m.renewAt = m.tryAt
		}
		return
	}
	m.kernelEnd, m.kernelLast = begun.Add(a.lifetime), ended.Add(a.lifetime)
	m.renewDue = begun.Add(a.lifetime / 3)
	m.renewAt = m.renewDue
	if m.kernelLast.After(m.until) {
		m.renewAt = ended // it took so long that the lifetime reaches too far
	}
	if a.epoch != m.epoch {
		return // released meanwhile: advance removes them
	}
	m.err = nil
	m.fresh = ended
	switch {
	case m.addedEpoch != m.epoch:
		m.addedEpoch = m.epoch
		m.checkAt = ended.Add(m.beat())
		m.enter(ended, HolderHeld, "the token is valid")
		m.emit(ended, HolderAdded, m.prefixes, m.reason, nil)
		m.again(ended, "taken")
	case m.repair != "":
		why := m.repair
		m.repair, m.repairedAt = "", ended
		m.checkAt = ended.Add(m.beat())
		m.enter(ended, HolderHeld, "the token is valid")
		m.emit(ended, HolderRestored, m.prefixes, why, nil)
		m.again(ended, why)
	}
}

// removed reports the outcome of holdRemove.
func (m *holdMachine) removed(now time.Time, a holdAction, err error) {
	if err != nil {
		m.fault(now, a.epoch, err)
		return
	}
	m.present = false
	m.addedEpoch = 0
	m.checkAt = now.Add(m.beat())
	if !m.wants {
		m.err = nil
		m.enter(now, HolderReleased, m.reason)
		m.emit(now, HolderRemoved, m.prefixes, m.reason, nil)
	}
}

// checked reports the outcome of holdFindMissing and holdFindLeft. In one
// epoch only one of them is asked for.
func (m *holdMachine) checked(now time.Time, a holdAction, found []netip.Prefix, err error) {
	m.checkAt = now.Add(m.beat())
	if a.epoch != m.epoch {
		m.checkAt = now // it answered another question
		return
	}
	switch {
	case m.wants && (len(found) > 0 || errors.Is(err, ErrNoInterface)):
		why := "the interface is gone"
		if err != nil {
			found = m.prefixes
		} else {
			why = fmt.Sprintf("%v removed by somebody else", found)
		}
		m.mend(now, why)
		// The first time at once. Against somebody who removes them again and
		// again, at a pace.
		if next := m.repairedAt.Add(m.pace()); !m.repairedAt.IsZero() && next.After(now) {
			m.tryAt = next
		}
		m.emit(now, HolderLost, found, why, err)
	case m.wants:
		// A failed check proves nothing either way; the renewals go on.
		if err != nil {
			m.emit(now, HolderFault, m.prefixes, "check", err)
		}
	case len(found) > 0:
		m.present = true
		m.tryAt = now
		m.enter(now, HolderReleasing, "left behind by an earlier owner")
	case err == nil || errors.Is(err, ErrNoInterface):
		reason := m.reason
		if m.state == HolderReleasing {
			reason = "no token"
		}
		m.enter(now, HolderReleased, reason)
	default:
		m.fault(now, a.epoch, err)
	}
}

// announced reports the outcome of holdAnnounce: how many announcements left.
func (m *holdMachine) announced(now time.Time, a holdAction, sent int, err error) {
	m.sent += uint64(sent)
	if a.epoch != m.epoch {
		return
	}
	if err != nil {
		m.err = err
		m.emit(now, HolderFault, m.prefixes, "announce", err)
		m.ann.Again(now.Add(m.pace()))
		return
	}
	m.err = nil
	if m.round != "" {
		m.emit(now, HolderAnnounced, m.prefixes, m.round, nil)
		m.round = ""
	}
}

// fault notes a failed attempt to add, remove or check, and plans the next.
func (m *holdMachine) fault(now time.Time, epoch uint64, err error) {
	m.tryAt = now.Add(m.pace())
	if epoch != m.epoch {
		m.tryAt = now
		return
	}
	m.err = err
	m.emit(now, HolderFault, m.prefixes, m.state.String(), err)
}
