package health

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// SuspicionConfig configures a [Suspicion]. The zero value is complete, for up to
// ten observers that look every second.
type SuspicionConfig struct {
	// Min is how long a suspicion lasts that all Confirmations support. Default
	// 4 s, see [SuspicionMin]; range 1 ms to 24 h.
	Min time.Duration
	// Max is how long one lasts that nobody confirms. Default six times Min, range
	// Min to 144 h.
	Max time.Duration
	// Confirmations is how many observers besides the first bring it down to Min.
	// With 0, and so by default, nobody is expected to confirm, and a suspicion
	// lasts Min. Range 0 to 1000.
	Confirmations int
}

// Suspicion is the time that a suspect gets to prove that it is alive. One observer
// that can't reach it may have lost its own network, so it gets long; each other
// observer that can't either makes it shorter. It is pure like a [Machine], so it
// must not be used by two goroutines at once. Make one with [NewSuspicion].
//
// After c of k confirmations it lasts Max - (Max-Min) * log(c+1)/log(k+1), from its
// beginning, and never less than Min: the formula of memberlist, where it comes from
// Lifeguard (https://arxiv.org/abs/1707.00788).
type Suspicion struct {
	config    SuspicionConfig
	since     time.Time // zero when there is none
	accusers  map[string]bool
	shortened time.Time // the last confirmation that counted
}

// NewSuspicion returns a Suspicion that nobody has. Its error joins a *[ConfigError]
// for each bad field.
func NewSuspicion(config SuspicionConfig) (*Suspicion, error) {
	c := config
	var faults []error
	fault := func(field string, value any, want string) {
		faults = append(faults, &ConfigError{"", field, value, want})
	}
	if c.Min == 0 {
		c.Min = 4 * time.Second
	}
	if c.Min < time.Millisecond || c.Min > maxInterval {
		fault("Min", c.Min, fmt.Sprintf("1ms to %v", maxInterval))
	} else {
		if c.Max == 0 {
			c.Max = 6 * c.Min
		}
		if c.Max < c.Min || c.Max > 6*maxInterval {
			fault("Max", c.Max, fmt.Sprintf("%v, which is Min, to %v", c.Min, 6*maxInterval))
		}
	}
	if c.Confirmations < 0 || c.Confirmations > maxCount {
		fault("Confirmations", c.Confirmations, fmt.Sprintf("0 to %d", maxCount))
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return &Suspicion{config: c, accusers: map[string]bool{}}, nil
}

// SuspicionMin returns the Min that memberlist uses in a group of the given size in
// which each looks once per interval: 4 * log10(observers) * interval, at least
// 4 * interval, as it takes longer for a rumour to reach a large group. It is at
// most 24 h, what SuspicionConfig accepts, and 0 for an interval of 0 or less.
func SuspicionMin(observers int, interval time.Duration) time.Duration {
	scale := math.Max(1, math.Log10(math.Max(1, float64(observers))))
	least := 4 * scale * float64(max(interval, 0))
	return time.Duration(math.Min(least, float64(maxInterval)))
}

// Suspect tells at now that an observer suspects. The first begins the suspicion; of
// the others each counts once. It tells whether this one made a difference: false
// for one who said so before, for more than Confirmations, and once the time is up.
func (s *Suspicion) Suspect(now time.Time, accuser string) bool {
	switch {
	case s.since.IsZero():
		s.since, s.shortened = now, now
	case s.accusers[accuser], len(s.accusers) > s.config.Confirmations, s.Confirmed(now):
		return false
	default:
		s.shortened = latest(s.shortened, now)
	}
	s.accusers[accuser] = true
	return true
}

// Refute ends the suspicion: the suspect is alive. It tells whether there was one.
func (s *Suspicion) Refute() bool {
	was := !s.since.IsZero()
	*s = Suspicion{config: s.config, accusers: map[string]bool{}}
	return was
}

// Deadline returns when the time is up, zero if nobody suspects. A confirmation can
// bring it forward, but never to before itself.
func (s *Suspicion) Deadline() time.Time {
	if s.since.IsZero() {
		return time.Time{}
	}
	length := s.config.Max
	if k := s.config.Confirmations; k == 0 {
		length = s.config.Min
	} else {
		confirmed := math.Log(float64(len(s.accusers))) / math.Log(float64(k+1))
		length -= time.Duration(confirmed * float64(s.config.Max-s.config.Min))
	}
	return latest(s.since.Add(max(length, s.config.Min)), s.shortened)
}

// Confirmed tells whether the time is up at now. The caller acts on it once; a
// verdict that lasts is a lease, as in an [Accusation].
func (s *Suspicion) Confirmed(now time.Time) bool {
	return !s.since.IsZero() && !now.Before(s.Deadline())
}

// Suspended tells that this machine slept for gap: the time that the suspect had to
// prove itself begins anew at now, since it could not be heard. A gap of 0 or less is
// ignored.
func (s *Suspicion) Suspended(now time.Time, gap time.Duration) {
	if gap > 0 && !s.since.IsZero() {
		s.since, s.shortened = now, now
	}
}
