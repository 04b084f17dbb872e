package vrrp

import (
	"fmt"
	"time"
)

// Track is something that an instance's fitness depends on: a check, a link, a
// rule in the kernel. Somebody else probes it and hands the outcome to
// [Machine.Report].
//
// The weight says what the outcome does, as in keepalived:
//
//	> 0  added to the priority while the track is up
//	< 0  subtracted from the priority while it is down
//	  0  the instance is in Fault while it is down
//
// Before its first report a track adds and subtracts nothing. A new machine with
// an unreported track of weight 0 waits in Fault.
type Track struct {
	Name   string // unique within the instance
	Weight int    // -253 to 253
}

// tracked is a track with its last report.
type tracked struct {
	Track
	reported   bool
	up         bool
	validUntil time.Time
}

// verdict of a track at an instant. A report that was not renewed counts as down.
func (t *tracked) verdict(now time.Time) (up, expired bool) {
	if !t.reported {
		return false, false
	}
	expired = !now.Before(t.validUntil)
	return t.up && !expired, expired
}

// ErrTrack is matched by the error for a report about a track that the machine
// does not have.
var ErrTrack = fmt.Errorf("vrrp: no such track")

// Report says that a track is up or down, and until when that may be believed.
// After validUntil the track counts as down, as "not renewed", until the next
// report. It returns an error that matches [ErrTrack] for an unknown name.
func (m *Machine) Report(now time.Time, name string, up bool, validUntil time.Time) error {
	for i := range m.tracks {
		t := &m.tracks[i]
		if t.Name == name {
			t.reported, t.up, t.validUntil = true, up, validUntil
			m.touch(now)
			return nil
		}
	}
	return fmt.Errorf("%w: %q: name it in Config.Tracks", ErrTrack, name)
}

// SetTracks replaces the tracks without leaving the state. Tracks that keep
// their name keep their last report; a new one counts from its first report on.
// On error nothing has changed.
func (m *Machine) SetTracks(now time.Time, tracks []Track) error {
	if err := checkTracks(tracks); err != nil {
		return fmt.Errorf("vrrp: %w", err)
	}
	old := m.tracks
	m.tracks = make([]tracked, len(tracks))
	for i, t := range tracks {
		m.tracks[i].Track = t
		for _, o := range old {
			if o.Name == t.Name {
				m.tracks[i] = o
				m.tracks[i].Track = t
			}
		}
	}
	m.touch(now)
	return nil
}

// evaluate brings priority and state in line with the tracks as of now.
func (m *Machine) evaluate(now time.Time) {
	fault := m.assess(now)
	switch {
	case m.state == Initialize:
	case fault != nil && m.state != Fault:
		m.fail(now, *fault)
	case fault != nil:
		m.reason = *fault
	case m.state == Fault:
		m.enter(now, Reason{Cause: TracksUp})
	}
}

// assess recomputes the priority, and returns why the tracks forbid to take
// part, if they do.
func (m *Machine) assess(now time.Time) (fault *Reason) {
	sum := int(m.cfg.Priority)
	m.trackExpiry = time.Time{}
	for i := range m.tracks {
		t := &m.tracks[i]
		up, expired := t.verdict(now)
		if t.reported && !expired && (m.trackExpiry.IsZero() || t.validUntil.Before(m.trackExpiry)) {
			m.trackExpiry = t.validUntil
		}
		switch {
		case t.Weight > 0 && up, t.Weight < 0 && t.reported && !up:
			sum += t.Weight
		case t.Weight == 0 && !up && fault == nil:
			fault = m.unfit(t, expired)
		}
	}
	if m.cfg.Priority == PriorityOwner {
		m.setPriority(PriorityOwner) // never altered by tracking
	} else {
		m.setPriority(uint8(min(max(sum, 1), 254)))
	}
	return fault
}

// unfit tells why a required track that is not up puts us in Fault, if it does.
func (m *Machine) unfit(t *tracked, expired bool) *Reason {
	switch {
	case expired:
		return &Reason{Cause: TrackNotRenewed, Track: t.Name}
	case t.reported:
		return &Reason{Cause: TrackDown, Track: t.Name}
	case m.state == Active || m.state == Backup:
		return nil // a check that was just added does not stop a running router
	}
	return &Reason{Cause: TrackPending, Track: t.Name}
}

// setPriority shifts a running down timer by the difference, so that a change
// counts for the election that is under way.
func (m *Machine) setPriority(priority uint8) {
	if priority == m.priority {
		return
	}
	before := skew(m.cfg.Version, m.priority, m.interval)
	m.priority = priority
	if m.state == Backup {
		m.downAt = m.downAt.Add(skew(m.cfg.Version, priority, m.interval) - before)
	}
}

func checkTracks(tracks []Track) error {
	seen := make(map[string]bool, len(tracks))
	for _, t := range tracks {
		switch {
		case t.Name == "":
			return fmt.Errorf("track: a track needs a name")
		case seen[t.Name]:
			return fmt.Errorf("track %q: named twice; names must be unique", t.Name)
		case t.Weight < -253 || t.Weight > 253:
			return fmt.Errorf("track %q: weight %d: must be -253 to 253", t.Name, t.Weight)
		}
		seen[t.Name] = true
	}
	return nil
}
