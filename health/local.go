package health

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Doubt is a reason for an observer to doubt itself.
type Doubt uint8

// The doubts.
const (
	// LateTick: the observer's own loop ran late, so it was starved or stopped.
	// [Local.Tick] finds these; they need not be told.
	LateTick Doubt = iota
	// OwnError: a probe could not be made (see [LocalError]).
	OwnError
	// MissedSelfProbe: a probe of something that can't fail unless the observer
	// does, such as a listener of its own or the gateway, was not answered.
	MissedSelfProbe
	// Refuted: the observer accused somebody who was well.
	Refuted
)

// String returns the doubt in words.
func (d Doubt) String() string {
	names := [...]string{"late tick", "own error", "missed self-probe", "refuted"}
	if int(d) < len(names) {
		return names[d]
	}
	return fmt.Sprintf("doubt(%d)", uint8(d))
}

// LocalConfig configures a [Local]. The zero value is complete.
type LocalConfig struct {
	// Max is the highest score. Default 7, range 1 to 100.
	Max int
	// Block is the score from which on the observer may not accuse. Default 2,
	// range 1 to Max.
	Block int
	// Recovery is how long the observer must be well for each step down, so that
	// many good probes in one moment do not make up for what was wrong before.
	// Default 1 s, range 1 ms to 24 h.
	Recovery time.Duration
	// Lease is how long the score holds after the last input. An observer that
	// heard nothing of itself for that long, or ever, has the score Max. Default
	// 15 s, at least Recovery, at most 24 h.
	Lease time.Duration
}

// Local is how much an observer doubts itself: a score from 0, no doubt, to Max. It
// is pure like a [Machine], so it must not be used by two goroutines at once. Make
// one with [NewLocal].
//
// An observer that is starved of CPU time, descriptors or its network finds
// everybody else dead. So its troubles raise the score, good probes lower it step
// by step, and what it does with the others depends on it: it probes less often and
// waits longer by the factor score + 1, and accuses nobody from Block on.
type Local struct {
	config  LocalConfig
	score   int
	eased   time.Time // the last change of score
	renewed time.Time // the last input, zero before the first
	doubt   Doubt     // the last one
	doubted bool      // there was one
}

// LocalStatus is how much an observer doubts itself, and until when that is known.
type LocalStatus struct {
	Score int // 0 to Max
	// MayAccuse: Score is below Block.
	MayAccuse bool
	// ValidUntil is when Score becomes Max unless there is news. It is zero if
	// that is so already.
	ValidUntil time.Time
	Detail     string // the last doubt, for people
}

// NewLocal returns a Local that heard nothing yet. Its error joins a *[ConfigError]
// for each bad field.
func NewLocal(config LocalConfig) (*Local, error) {
	c := config
	var faults []error
	fault := func(field string, value any, want string) {
		faults = append(faults, &ConfigError{"", field, value, want})
	}
	if c.Max == 0 {
		c.Max = 7
	}
	if c.Max < 1 || c.Max > 100 {
		fault("Max", c.Max, "1 to 100")
	} else {
		if c.Block == 0 {
			c.Block = min(2, c.Max)
		}
		if c.Block < 1 || c.Block > c.Max {
			fault("Block", c.Block, fmt.Sprintf("1 to %d, which is Max", c.Max))
		}
	}
	if c.Recovery == 0 {
		c.Recovery = time.Second
	}
	if c.Recovery < time.Millisecond || c.Recovery > maxInterval {
		fault("Recovery", c.Recovery, fmt.Sprintf("1ms to %v", maxInterval))
	} else {
		if c.Lease == 0 {
			c.Lease = max(15*time.Second, c.Recovery)
		}
		if c.Lease < c.Recovery || c.Lease > maxInterval {
			fault("Lease", c.Lease, fmt.Sprintf("%v, which is Recovery, to %v", c.Recovery, maxInterval))
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return &Local{config: c}, nil
}

// Raise tells of a doubt at now. It raises the score by one.
func (l *Local) Raise(now time.Time, d Doubt) { l.raise(now, d, 1) }

// Good tells at now of something that only an observer that is well can do, such as
// a probe that was answered. It lowers the score by one if the last change was at
// least Recovery ago.
func (l *Local) Good(now time.Time) {
	l.renew(now)
	if l.score > 0 && now.Sub(l.eased) >= l.config.Recovery {
		l.score--
		l.eased = now
	}
}

// Tick tells at now that a loop ran that should run every period and was due at due.
// A loop that is late by a whole period or more did not run when it should have; each
// period raises the score by one. A loop in time lowers nothing: a starved process
// may well tick. A period of 0 or less is taken for 1 ns.
func (l *Local) Tick(now, due time.Time, period time.Duration) {
	late := now.Sub(due) / max(period, 1)
	if late < 1 {
		l.renew(now)
		return
	}
	l.raise(now, LateTick, int(min(late, time.Duration(l.config.Max))))
}

// Suspended tells that this machine slept for gap: the score is Max at now, since
// all that is silent may be so because of us. A gap of 0 or less is ignored.
func (l *Local) Suspended(now time.Time, gap time.Duration) {
	if gap > 0 {
		l.raise(now, LateTick, l.config.Max)
	}
}

func (l *Local) raise(now time.Time, d Doubt, steps int) {
	l.renew(now)
	l.score = min(l.score+steps, l.config.Max)
	l.eased = latest(l.eased, now)
	l.doubt, l.doubted = d, true
}

// renew begins a new lease. If the last one had ended, the score starts from Max.
func (l *Local) renew(now time.Time) {
	if s := l.At(now); s.ValidUntil.IsZero() {
		l.score, l.eased = s.Score, now
	}
	l.renewed = latest(l.renewed, now)
}

// At returns the score now. It changes nothing.
func (l *Local) At(now time.Time) LocalStatus {
	s := LocalStatus{Score: l.config.Max, Detail: "nothing heard of myself"}
	if !l.renewed.IsZero() {
		if until := l.renewed.Add(l.config.Lease); now.Before(until) {
			s = LocalStatus{Score: l.score, ValidUntil: until}
			if l.doubted {
				s.Detail = "last doubt: " + l.doubt.String()
			}
		} else {
			s.Detail = "nothing heard of myself any more"
		}
	}
	s.MayAccuse = s.Score < l.config.Block
	return s
}

// Stretch returns d multiplied by score + 1, for intervals and timeouts, at most the
// longest duration there is.
func (l *Local) Stretch(now time.Time, d time.Duration) time.Duration {
	factor := time.Duration(l.At(now).Score) + 1
	if d > math.MaxInt64/factor {
		return math.MaxInt64
	}
	return d * factor
}
