package vrrp

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// DefaultRefresh is how often an address is announced again once the opening
// round is over.
const DefaultRefresh = 60 * time.Second

// maxAnnounceOffset bounds the offsets of an opening round and the refresh, so
// that no sum of an instant and an offset can overflow.
const maxAnnounceOffset = 24 * time.Hour

// DefaultSchedule returns the offsets of the opening round, counted from the
// moment the address was taken: 0, 50, 200, 500 ms, 1 s and 5 s.
//
// Neighbours that missed one frame, or heard a rival's frame after ours, are
// put right by the next one. keepalived sends five frames back to back and
// five more 5 s later; when two equal nodes had duelled and the loser's last
// frame came after the winner's first five, clients stayed dark until the
// second burst. Frames spread over the first second close that gap.
func DefaultSchedule() []time.Duration {
	return []time.Duration{
		0,
		50 * time.Millisecond,
		200 * time.Millisecond,
		500 * time.Millisecond,
		1 * time.Second,
		5 * time.Second,
	}
}

// AnnounceConfig says when an address that is held gets announced. The zero
// value is the default schedule.
type AnnounceConfig struct {
	// Schedule holds the offsets of the opening round from its start, in
	// strictly rising order, each from 0 to 24 h. Nil or empty means
	// [DefaultSchedule].
	Schedule []time.Duration

	// Refresh is the distance between two announcements after the opening
	// round, the first of them one Refresh after the round's last. 0 means
	// [DefaultRefresh], a negative value means no refresh at all; otherwise
	// from 100 ms to 24 h.
	Refresh time.Duration
}

// validate returns the configuration with its defaults filled in, and a copy
// of the schedule, or every fault that it found.
func (c AnnounceConfig) validate() (AnnounceConfig, error) {
	var faults []error
	if len(c.Schedule) == 0 {
		c.Schedule = DefaultSchedule()
	} else {
		c.Schedule = slices.Clone(c.Schedule)
	}
	for i, d := range c.Schedule {
		switch {
		case d < 0 || d > maxAnnounceOffset:
			faults = append(faults, &ConfigError{"Schedule", fmt.Errorf("announce schedule: offset %d is %v: use 0 to %v", i, d, maxAnnounceOffset)})
		case i > 0 && d <= c.Schedule[i-1]:
			faults = append(faults, &ConfigError{"Schedule", fmt.Errorf("announce schedule: offset %d (%v) does not follow %v: use rising offsets", i, d, c.Schedule[i-1])})
		}
	}
	if c.Refresh == 0 {
		c.Refresh = DefaultRefresh
	}
	if c.Refresh > 0 && (c.Refresh < 100*time.Millisecond || c.Refresh > maxAnnounceOffset) {
		faults = append(faults, &ConfigError{"Refresh", fmt.Errorf("announce refresh is %v: use 100ms to %v, or a negative value for none", c.Refresh, maxAnnounceOffset)})
	}
	return c, errors.Join(faults...)
}

// AnnounceSchedule tells when to announce an address. It is pure: it reads no
// clock and sends nothing. It is not safe for concurrent use.
//
//	s.Again(now)                 // the address is ours now, or: a rival was seen
//	if s.Advance(now) { send() } // at s.Deadline()
//	s.Stop()                     // the role is lost
//
// A new schedule is stopped.
type AnnounceSchedule struct {
	offsets []time.Duration
	refresh time.Duration // negative: none

	running bool
	start   time.Time // start of the opening round
	next    int       // next offset of the opening round; len(offsets) when it is over
	due     time.Time // meaningful unless idle()
}

// NewAnnounceSchedule returns a stopped schedule, or all faults of the
// configuration joined.
func NewAnnounceSchedule(c AnnounceConfig) (*AnnounceSchedule, error) {
	c, err := c.validate()
	if err != nil {
		return nil, err
	}
	return &AnnounceSchedule{offsets: c.Schedule, refresh: c.Refresh}, nil
}

// Again starts the opening round at now, whatever was planned before. Call it
// when the address was taken, and once more after anything that may have
// moved the neighbours' entries away: a resolved conflict, a healed partition,
// a freeze, a link that came back, an address that somebody else deleted.
//
// An instant in the future delays the round until then.
func (s *AnnounceSchedule) Again(now time.Time) {
	s.running, s.start, s.next = true, now, 0
	s.due = now.Add(s.offsets[0])
}

// Stop cancels everything that is planned. Nothing is due until Again.
func (s *AnnounceSchedule) Stop() { s.running = false }

// Running tells whether the schedule was started and not stopped since. A
// running schedule without refresh has no deadline once its round is over.
func (s *AnnounceSchedule) Running() bool { return s.running }

// Deadline returns when Advance wants to be called next; ok is false while
// nothing is planned.
func (s *AnnounceSchedule) Deadline() (due time.Time, ok bool) {
	if s.idle() {
		return time.Time{}, false
	}
	return s.due, true
}

// Advance tells whether to announce now, and plans the next announcement.
// Called early it returns false and changes nothing. Called late it returns
// true once for everything missed: neighbours gain nothing from two equal
// frames at one instant, and a freeze must not end in a flood.
func (s *AnnounceSchedule) Advance(now time.Time) bool {
	if s.idle() || now.Before(s.due) {
		return false
	}
	for s.next < len(s.offsets) && !now.Before(s.start.Add(s.offsets[s.next])) {
		s.next++
	}
	switch {
	case s.next < len(s.offsets):
		s.due = s.start.Add(s.offsets[s.next])
	case s.refresh > 0:
		// Counted from now, not from the plan: after a late call the next
		// refresh is a whole interval away.
		s.due = now.Add(s.refresh)
	}
	return true
}

// idle tells that nothing is planned.
func (s *AnnounceSchedule) idle() bool {
	return !s.running || s.next == len(s.offsets) && s.refresh < 0
}
