package health

import (
	"errors"
	"fmt"
	"time"
)

// Initial says how the first verdict about a target is reached.
type Initial uint8

// The ways to the first verdict.
const (
	// InitialCount demands Rise good or Fall bad probes in a row, as later on. A
	// target that is down when the observer starts is Unknown until Fall probes
	// have failed.
	InitialCount Initial = iota
	// InitialFirst takes the first good or bad probe as the verdict, and counts
	// from then on; so do keepalived's scripts. An observer whose knowledge
	// expired counts: it must not accuse anybody with its first look after a nap.
	InitialFirst
)

// Counting says which probes add up to a verdict.
type Counting uint8

// The ways to count.
const (
	// Consecutive counts probes in a row: each good one forgets the bad ones
	// before it, and the other way round.
	Consecutive Counting = iota
	// Accumulating counts good and bad probes side by side, and forgets both only
	// when one of them reaches its number, as OVN's service monitor does. A target
	// that alternates is decided at last, by what it does more of. While it is
	// online, Rise good probes are needed to forgive the bad ones before them.
	Accumulating
)

// Config says when a target is probed and how its probes are judged. The zero value
// is complete: every 5 s, 1 s timeout, 1 good probe in, 3 bad ones out.
type Config struct {
	// Interval is the pause from the end of one probe to the start of the next.
	// Default 5 s, range 1 ms to 24 h.
	Interval time.Duration
	// FastInterval replaces Interval while there are counted probes that
	// contradict the state, or too few for one. Default Interval, range 1 ms to 24 h.
	FastInterval time.Duration
	// DownInterval replaces Interval while the target is Offline and its last
	// probe was bad. Default Interval, range 1 ms to 24 h.
	DownInterval time.Duration
	// Timeout is the time that one probe gets from its start to the end of the
	// answer. Default 1 s, range 1 ms to 1 h.
	Timeout time.Duration
	// Rise is the number of good probes, counted by Counting, that bring a target
	// Online.
	// Default 1, range 1 to 1000.
	Rise int
	// Fall is the number of bad probes, counted by Counting, that take a target
	// Offline.
	// Default 3, range 1 to 1000.
	Fall int
	// Lease is how long a verdict holds after the probe that renewed it. The
	// default is Fall times the longest of the intervals, a tenth more for late
	// starts, plus Timeout and one second: 18.5 s with the other defaults. It must
	// be longer than the longest interval plus Timeout, as otherwise a verdict
	// would end between two probes that are in time. At most 30,000 h.
	Lease time.Duration
	// Initial says how the first verdict is reached. Default InitialCount.
	Initial Initial
	// Counting says which probes add up. Default Consecutive.
	Counting Counting
}

// ErrConfig is matched by every [ConfigError].
var ErrConfig = errors.New("health: bad config")

// ConfigError is a setting that can't be used.
type ConfigError struct {
	Key   string // the target that it belongs to, may be empty
	Field string // name of the field
	Value any    // its value
	Want  string // what it may be
}

// Error names the field, its value and what it may be.
func (e *ConfigError) Error() string {
	text := fmt.Sprintf("%s is %v: want %s", e.Field, e.Value, e.Want)
	if e.Key != "" {
		return fmt.Sprintf("health: target %q: %s", e.Key, text)
	}
	return "health: " + text
}

// Is tells that the error is an ErrConfig.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }

const (
	maxInterval = 24 * time.Hour
	maxTimeout  = time.Hour
	maxCount    = 1000
	maxLease    = 30_000 * time.Hour // above the default for all maxima
)

// complete returns the config of target key, which may be empty, with its defaults
// filled in, or all its faults.
func (c Config) complete(key string) (Config, error) {
	var faults []error
	duration := func(field string, d *time.Duration, def, most time.Duration) {
		if *d == 0 {
			*d = def
		}
		if *d < time.Millisecond || *d > most {
			faults = append(faults, &ConfigError{key, field, *d, fmt.Sprintf("1ms to %v", most)})
		}
	}
	count := func(field string, n *int, def int) {
		if *n == 0 {
			*n = def
		}
		if *n < 1 || *n > maxCount {
			faults = append(faults, &ConfigError{key, field, *n, fmt.Sprintf("1 to %d", maxCount)})
		}
	}
	duration("Interval", &c.Interval, 5*time.Second, maxInterval)
	inherited := c.Interval
	if len(faults) > 0 {
		inherited = time.Second // report a bad Interval once, not three times
	}
	duration("FastInterval", &c.FastInterval, inherited, maxInterval)
	duration("DownInterval", &c.DownInterval, inherited, maxInterval)
	duration("Timeout", &c.Timeout, time.Second, maxTimeout)
	count("Rise", &c.Rise, 1)
	count("Fall", &c.Fall, 3)
	if c.Initial > InitialFirst {
		faults = append(faults, &ConfigError{key, "Initial", c.Initial, "InitialCount or InitialFirst"})
	}
	if c.Counting > Accumulating {
		faults = append(faults, &ConfigError{key, "Counting", c.Counting, "Consecutive or Accumulating"})
	}
	if len(faults) > 0 {
		return c, errors.Join(faults...)
	}

	longest := max(c.Interval, c.FastInterval, c.DownInterval)
	if c.Lease == 0 {
		window := time.Duration(c.Fall) * longest
		c.Lease = window + window/10 + c.Timeout + time.Second
	}
	if least := longest + c.Timeout; c.Lease <= least || c.Lease > maxLease {
		return c, &ConfigError{key, "Lease", c.Lease, fmt.Sprintf("more than %v, the longest interval plus Timeout, and at most %v", least, maxLease)}
	}
	return c, nil
}
