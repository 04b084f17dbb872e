package health

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at is an instant in seconds after the epoch.
func at(seconds float64) time.Time {
	return epoch.Add(time.Duration(seconds * float64(time.Second)))
}

func machine(t testing.TB, c Config) *Machine {
	m, err := NewMachine(c)
	require.NoError(t, err)
	return m
}

func TestDefaults(t *testing.T) {
	want := Config{
		Interval: 5 * time.Second, FastInterval: 5 * time.Second, DownInterval: 5 * time.Second,
		Timeout: time.Second, Rise: 1, Fall: 3, Lease: 18500 * time.Millisecond,
	}
	require.Equal(t, want, machine(t, Config{}).Config())
	require.Equal(t, want, machine(t, want).Config(), "filling in twice is filling in once")

	c := machine(t, Config{Interval: 2 * time.Second, DownInterval: 10 * time.Second, Fall: 2}).Config()
	require.Equal(t, 2*time.Second, c.FastInterval)
	require.Equal(t, 24*time.Second, c.Lease, "a lease must also span the long pauses while offline")

	_, err := NewMachine(Config{Interval: maxInterval, Timeout: maxTimeout, Rise: maxCount, Fall: maxCount})
	require.NoError(t, err, "the largest legal values have a legal default lease")
}

func TestConfigFaults(t *testing.T) {
	for _, tc := range []struct {
		name   string
		config Config
		want   []string
	}{
		{"each field", Config{Interval: -1, FastInterval: 1, DownInterval: 25 * time.Hour, Timeout: 2 * time.Hour, Rise: -1, Fall: 1001, Initial: 2, Counting: 2},
			[]string{
				"health: Interval is -1ns: want 1ms to 24h0m0s",
				"health: FastInterval is 1ns: want 1ms to 24h0m0s",
				"health: DownInterval is 25h0m0s: want 1ms to 24h0m0s",
				"health: Timeout is 2h0m0s: want 1ms to 1h0m0s",
				"health: Rise is -1: want 1 to 1000",
				"health: Fall is 1001: want 1 to 1000",
				"health: Initial is 2: want InitialCount or InitialFirst",
				"health: Counting is 2: want Consecutive or Accumulating",
			}},
		{"a bad interval is reported once", Config{Interval: -1}, []string{"health: Interval is -1ns: want 1ms to 24h0m0s"}},
		{"a lease that ends between two probes", Config{Lease: 6 * time.Second},
			[]string{"health: Lease is 6s: want more than 6s, the longest interval plus Timeout, and at most 30000h0m0s"}},
		{"a lease for ever", Config{Lease: maxLease + 1}, []string{"health: Lease is 30000h0m0.000000001s: want more than 6s, the longest interval plus Timeout, and at most 30000h0m0s"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := NewMachine(tc.config)
			require.ErrorIs(t, err, ErrConfig)
			faults := []error{err}
			if joined, ok := err.(interface{ Unwrap() []error }); ok {
				faults = joined.Unwrap()
			}
			var texts []string
			for _, f := range faults {
				var ce *ConfigError
				require.ErrorAs(t, f, &ce)
				texts = append(texts, f.Error())
			}
			require.Equal(t, tc.want, texts)

			m := machine(t, Config{})
			require.Error(t, m.Reconfigure(tc.config))
			require.Equal(t, machine(t, Config{}).Config(), m.Config(), "a refused config changes nothing")
		})
	}
}

// script plays results, one letter each, one second apart from second 1 on, and
// returns the state after each: U, N (online), F (offline), E.
func script(m *Machine, results string) string {
	var out strings.Builder
	for i, r := range results {
		now := at(float64(1 + i))
		if r != '.' { // a second without a result
			m.Observe(now, Result{Outcome: outcomes[r]})
		}
		out.WriteString(letters[m.At(now).State])
	}
	return out.String()
}

var (
	outcomes = map[rune]Outcome{'g': Good, 'b': Bad, 'e': LocalError}
	letters  = map[State]string{Unknown: "U", Online: "N", Offline: "F", Error: "E"}
)

func TestCounting(t *testing.T) {
	short := func(rise, fall int, initial Initial) Config {
		return Config{Interval: time.Second, Timeout: time.Millisecond, Rise: rise, Fall: fall, Lease: 3 * time.Second, Initial: initial}
	}
	for _, tc := range []struct {
		name          string
		config        Config
		results, want string
	}{
		{"rise 1: the first success counts", short(1, 3, InitialCount), "g", "N"},
		{"the first failures are counted too", short(1, 3, InitialCount), "bbb", "UUF"},
		{"first result decides", short(3, 3, InitialFirst), "g", "N"},
		{"first failure decides", short(3, 3, InitialFirst), "b", "F"},
		{"only the first", short(3, 2, InitialFirst), "bggbgggbb", "FFFFFFNNF"},
		{"a local failure does not use up the first", short(3, 3, InitialFirst), "eg", "EN"},
		{"after expiry it is counted, for good", short(2, 2, InitialFirst), "g...gg", "NNNUUN"},
		{"after expiry it is counted, for bad", short(2, 2, InitialFirst), "g...bb", "NNNUUF"},
		{"one success forgives all failures", short(2, 3, InitialFirst), "gbbgbbgbbb", "NNNNNNNNNF"},
		{"one failure forgets all successes", short(3, 1, InitialCount), "bggbggbggg", "FFFFFFFFFN"},
		{"alternating results never decide", short(2, 2, InitialCount), "gbgbgbgb", "UUUUUUUU"},
		{"a bad probe below fall renews online", short(1, 3, InitialCount), "gb..", "NNNN"},
		{"local failures do not renew", short(1, 3, InitialCount), "geeeeee", "NNNEEEE"},
		{"nor do they count", short(1, 2, InitialCount), "gbebgeb", "NNNFNNN"},
		{"an error without attempts ends", short(1, 2, InitialCount), "e...", "EEEU"},
		{"an error follows an expired verdict at once", short(1, 2, InitialCount), "g.e..", "NNNEE"},
		{"counts expire", short(2, 2, InitialCount), "g...gg", "UUUUUN"},
		{"a probe ends the error", short(2, 2, InitialCount), "egeg", "EUEN"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, script(machine(t, tc.config), tc.results), "results %s", tc.results)
		})
	}
}

// Side by side, as in OVN: success_count 3 is reached by S F S F S.
func TestAccumulating(t *testing.T) {
	both := func(rise, fall int, initial Initial) Config {
		return Config{Interval: time.Second, Timeout: time.Millisecond, Rise: rise, Fall: fall, Lease: 3 * time.Second, Initial: initial, Counting: Accumulating}
	}
	for _, tc := range []struct {
		name          string
		config        Config
		results, want string
	}{
		{"the other kind forgets nothing", both(3, 3, InitialCount), "gbgbg", "UUUUN"},
		{"a verdict forgets both", both(3, 3, InitialCount), "gbgbgbb", "UUUUNNN"},
		{"and so the next needs all", both(3, 3, InitialCount), "gbgbgbbb", "UUUUNNNF"},
		{"with OVN's defaults each decides", both(1, 1, InitialCount), "gbgb", "NFNF"},
		{"one good probe does not forgive", both(2, 3, InitialCount), "ggbgbb", "UNNNNF"},
		{"but Rise of them do", both(2, 3, InitialCount), "ggbbggbb", "UNNNNNNN"},
		{"the first decides and forgets", both(3, 2, InitialFirst), "gbgb", "NNNF"},
		{"counts expire", both(2, 2, InitialCount), "gb...gbg", "UUUUUUUN"},
		{"local failures count for nothing", both(1, 2, InitialCount), "gbeb", "NNNF"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, script(machine(t, tc.config), tc.results), "results %s", tc.results)
		})
	}

	m := machine(t, Config{Interval: 5 * time.Second, FastInterval: time.Second, DownInterval: 20 * time.Second, Rise: 2, Fall: 2, Counting: Accumulating})
	for i, wait := range []float64{1, 5, 1, 1, 5} { // good but for the third
		o := Good
		if i == 2 {
			o = Bad
		}
		m.Observe(at(float64(i)), Result{Outcome: o})
		require.Equal(t, at(float64(i)+wait), m.Deadline(), "step %d", i)
	}
}

func TestStatusTellsWhyAndHowLong(t *testing.T) {
	m := machine(t, Config{Rise: 2, Fall: 2, Lease: 10 * time.Second})
	check := func(now float64, want Status) {
		t.Helper()
		require.Equal(t, want, m.At(at(now)))
	}
	observe := func(now float64, o Outcome, detail string) (Transition, bool) {
		return m.Observe(at(now), Result{o, detail})
	}
	check(0, Status{Reason: Reason{Code: NeverProbed}})

	_, changed := observe(1, Good, "one")
	require.False(t, changed)
	check(1, Status{Reason: Reason{Undecided, "one"}})

	tr, changed := observe(2, Good, "two")
	require.True(t, changed)
	online := Status{Online, at(2), at(12), Reason{Passing, "two"}}
	require.Equal(t, Transition{Unknown, online}, tr)
	check(2, online)
	check(11.999, online)
	check(12, Status{Unknown, at(12), time.Time{}, Reason{Expired, "two"}})

	observe(5, Bad, "refused")
	check(5, Status{Online, at(2), at(15), Reason{Failing, "refused"}})
	tr, changed = observe(6, Bad, "refused again")
	require.True(t, changed)
	require.Equal(t, Transition{Online, Status{Offline, at(6), at(16), Reason{Failed, "refused again"}}}, tr)
	observe(7, Good, "ok")
	check(7, Status{Offline, at(6), at(17), Reason{Recovering, "ok"}})

	_, changed = observe(8, LocalError, "no descriptors")
	require.False(t, changed, "the verdict is in force")
	check(8, Status{Offline, at(6), at(17), Reason{Recovering, "ok"}})
	check(17, Status{Error, at(17), at(18), Reason{LocalFailure, "no descriptors"}})
	check(18, Status{Unknown, at(18), time.Time{}, Reason{Expired, "ok"}})

	tr, changed = observe(17.5, Good, "back")
	require.True(t, changed)
	require.Equal(t, Transition{Error, Status{Unknown, at(17.5), time.Time{}, Reason{Undecided, "back"}}}, tr)

	require.Equal(t, "failed: refused", Reason{Failed, "refused"}.String())
	require.Equal(t, "expired", Reason{Code: Expired}.String())
}

func TestOldResultsAreIgnored(t *testing.T) {
	m := machine(t, Config{})
	m.Observe(at(10), Result{Outcome: Good})
	before := m.At(at(10))
	for range 5 {
		_, changed := m.Observe(at(9), Result{Outcome: Bad})
		require.False(t, changed)
	}
	require.Equal(t, before, m.At(at(10)))
	require.Equal(t, Online, m.At(at(1)).State, "an early question is harmless")
}

func TestDeadline(t *testing.T) {
	m := machine(t, Config{Interval: 5 * time.Second, FastInterval: time.Second, DownInterval: 20 * time.Second, Rise: 2, Fall: 2})
	require.True(t, m.Deadline().IsZero(), "at once")
	now := 0.0
	for i, step := range []struct {
		outcome Outcome
		wait    float64
	}{
		{LocalError, 5},
		{Good, 1}, // unknown, one good
		{Good, 5}, // online
		{Bad, 1},  // online, one bad
		{Good, 5},
		{Bad, 1},
		{Bad, 20}, // offline
		{Good, 1}, // offline, one good
		{LocalError, 1},
		{Bad, 20},
	} {
		m.Observe(at(now), Result{Outcome: step.outcome})
		now += step.wait
		require.Equal(t, at(now), m.Deadline(), "step %d", i)
	}
}

func TestReconfigureKeepsWhatIsKnown(t *testing.T) {
	m := machine(t, Config{Lease: 10 * time.Second})
	m.Observe(at(0), Result{Outcome: Good})
	require.NoError(t, m.Reconfigure(Config{Lease: 20 * time.Second, Fall: 1}))
	require.Equal(t, at(10), m.At(at(1)).ValidUntil, "the lease already given")
	m.Observe(at(2), Result{Outcome: Bad})
	require.Equal(t, Offline, m.At(at(2)).State)
	require.Equal(t, at(22), m.At(at(2)).ValidUntil)
}

// observation is one input of the model below.
type observation struct {
	when    time.Time
	outcome Outcome
}

// model computes the status from the whole history, without counters: it looks
// for runs in the unbroken chain of conclusive results that leads to each result.
func model(c Config, history []observation, now time.Time) Status {
	var status Status // of the verdict, Unknown if there is none
	var chain []Outcome
	var fresh, errFrom, errTo time.Time
	everDecided := false
	for _, o := range history {
		if o.outcome == LocalError {
			if !o.when.Before(errTo) {
				errFrom = o.when
			}
			errTo = o.when.Add(c.Lease)
			continue
		}
		if !o.when.Before(fresh) { // the chain is broken
			chain, status = nil, Status{}
		}
		chain = append(chain, o.outcome)
		fresh = o.when.Add(c.Lease)
		errFrom, errTo = time.Time{}, time.Time{}

		run := 0
		if c.Counting == Consecutive {
			for run < len(chain) && chain[len(chain)-1-run] == o.outcome {
				run++
			}
		} else {
			for _, each := range chain {
				if each == o.outcome {
					run++
				}
			}
		}
		state, need := Online, c.Rise
		if o.outcome == Bad {
			state, need = Offline, c.Fall
		}
		if c.Initial == InitialFirst && !everDecided {
			need = 1
		}
		if run >= need && status.State != state {
			status = Status{State: state, Since: o.when}
			everDecided = true
		}
		if run >= need && c.Counting == Accumulating {
			chain = nil // whatever it was, it is settled
		}
		status.ValidUntil = fresh
	}
	switch {
	case now.Before(fresh) && status.State != Unknown:
		return status
	case now.Before(errTo):
		since := errFrom
		if status.State != Unknown && fresh.After(since) {
			since = fresh
		}
		return Status{State: Error, Since: since, ValidUntil: errTo}
	}
	return Status{}
}

// All sequences of up to eight inputs (good, bad, local error, each a second after
// the one before, or a pause that outlives the lease) for a range of settings.
func TestModelCheck(t *testing.T) {
	const lease = 3 * time.Second
	depth := 8
	if testing.Short() {
		depth = 5
	}
	for _, counting := range []Counting{Consecutive, Accumulating} {
		for _, initial := range []Initial{InitialCount, InitialFirst} {
			for rise := 1; rise <= 3; rise++ {
				for fall := 1; fall <= 3; fall++ {
					c := Config{Interval: time.Second, Timeout: time.Millisecond, Rise: rise, Fall: fall, Lease: lease, Initial: initial, Counting: counting}
					explore(t, c, *machine(t, c), make([]observation, 0, depth), epoch, depth)
				}
			}
		}
	}
}

func explore(t *testing.T, c Config, m Machine, history []observation, now time.Time, depth int) {
	compareWithModel(t, c, &m, history, now)
	if depth == 0 {
		return
	}
	for o := LocalError; o <= Bad; o++ {
		next, then := m, now.Add(time.Second)
		before := next.At(then).State
		tr, changed := next.Observe(then, Result{Outcome: o})
		if after := next.At(then); tr.From != before || tr.To != after || changed != (before != after.State) {
			t.Fatalf("%v: transition %+v, %t does not tell %v -> %+v", history, tr, changed, before, after)
		}
		explore(t, c, next, append(history, observation{then, o}), then, depth-1)
	}
	if len(history) > 0 && now.Sub(history[len(history)-1].when) < c.Lease { // one pause is enough
		explore(t, c, m, history, now.Add(c.Lease), depth-1)
	}
}

func compareWithModel(t *testing.T, c Config, m *Machine, history []observation, now time.Time) {
	for _, when := range []time.Time{now, now.Add(c.Lease - 1), now.Add(c.Lease)} {
		got, want := m.At(when), model(c, history, when)
		if got.State != want.State || got.ValidUntil != want.ValidUntil || want.State != Unknown && got.Since != want.Since {
			t.Fatalf("counting %d rise %d fall %d initial %d, after %v at %v:\n got %+v\nwant %+v", c.Counting, c.Rise, c.Fall, c.Initial, history, when.Sub(epoch), got, want)
		}
	}
}

// Bytes are inputs: two bits of outcome (3: none), six of time passed.
func FuzzMachine(f *testing.F) {
	f.Add(uint8(1), uint8(3), false, false, []byte{0x05, 0x06, 0x06, 0x06})
	f.Add(uint8(2), uint8(1), true, false, []byte{0x04, 0xfd, 0x05, 0xff, 0x06, 0x00})
	f.Add(uint8(3), uint8(3), false, true, []byte{0x05, 0x06, 0x05, 0x06, 0x05})
	f.Add(uint8(255), uint8(0), true, true, []byte{})
	f.Fuzz(func(t *testing.T, rise, fall uint8, first, accumulating bool, inputs []byte) {
		c := Config{Interval: time.Second, Timeout: time.Second, Rise: int(rise), Fall: int(fall), Lease: 40 * time.Second}
		if first {
			c.Initial = InitialFirst
		}
		if accumulating {
			c.Counting = Accumulating
		}
		m, err := NewMachine(c)
		if err != nil {
			t.Fatal(err)
		}
		c = m.Config()
		now, last, since := epoch, time.Time{}, time.Time{}
		var history []observation
		for _, b := range inputs {
			now = now.Add(time.Duration(b>>2) * time.Second)
			if o := Outcome(b & 3); o <= Bad {
				m.Observe(now, Result{Outcome: o})
				history = append(history, observation{now, o})
				last = now
				if d := m.Deadline(); d.Before(now.Add(c.Interval)) {
					t.Fatalf("deadline %v is too early at %v", d, now)
				}
			}
			s := m.At(now)
			switch {
			case s.Since.Before(since):
				t.Fatalf("since went back from %v to %v", since, s.Since)
			case s.Since.After(now):
				t.Fatalf("%+v begins after %v", s, now)
			case s.State == Unknown && !s.ValidUntil.IsZero(), s.State != Unknown && !s.ValidUntil.After(now):
				t.Fatalf("%+v has no lease at %v", s, now)
			case s.ValidUntil.After(last.Add(c.Lease)):
				t.Fatalf("%+v outlives the last result at %v", s, last)
			}
			since = s.Since
			if m.At(now.Add(c.Lease)).State != Unknown {
				t.Fatalf("%+v outlives a lease", s)
			}
		}
		compareWithModel(t, c, m, history, now)
	})
}

func TestNames(t *testing.T) {
	require.Equal(t, "unknown online offline error state(4)", fmt.Sprint(Unknown, " ", Online, " ", Offline, " ", Error, " ", State(4)))
	require.Equal(t, "local error good bad outcome(3)", fmt.Sprint(LocalError, " ", Good, " ", Bad, " ", Outcome(3)))
	require.Equal(t, "local failure", LocalFailure.String())
	require.Len(t, codeNames, int(Frozen)+1, "each code has a name")
	require.Equal(t, "frozen", Frozen.String())
	require.Equal(t, "code(200)", Code(200).String())
	require.True(t, errors.Is(&ConfigError{}, ErrConfig))
}
