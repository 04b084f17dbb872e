package balancer

import (
	"errors"
	"fmt"
	"time"

	"github.com/lastbeat/lastbeat/examples/internal/tcpproxy"
	"github.com/lastbeat/lastbeat/health"
	"github.com/lastbeat/lastbeat/lb"
)

// Admin is what a person wants of a server. It stands apart from the verdict of the
// health checks: neither changes the other, and a server gets connections only if
// both agree.
type Admin uint8

// What a person may want.
const (
	// Ready: the health checks decide.
	Ready Admin = iota
	// Drain: no new connections; those that there are go on.
	Drain
	// Maint: no new connections, as the server is being worked on. When it is ready
	// again it starts slowly, as after a failure. Open connections go on here too.
	Maint
)

var adminNames = [...]string{"ready", "drain", "maint"}

// String returns "ready", "drain" or "maint".
func (a Admin) String() string {
	if int(a) < len(adminNames) {
		return adminNames[a]
	}
	return fmt.Sprintf("admin(%d)", uint8(a))
}

// UnmarshalText is the inverse of String.
func (a *Admin) UnmarshalText(text []byte) error {
	for i, name := range adminNames {
		if name == string(text) {
			*a = Admin(i)
			return nil
		}
	}
	return &Error{"state", fmt.Sprintf("%q", text), errors.New("no such state"), "give ready, drain or maint"}
}

// wish is all that a person wants of a server. It outlives reloads, until the server
// is no longer listed or the process ends.
type wish struct {
	state  Admin
	since  time.Time // when state was set; zero if never
	weight *int      // instead of the configured one; nil for that
}

// ErrNoServer is wrapped by errors about a server that is not there.
var ErrNoServer = errors.New("no such server")

// SetState says what a person wants of a server. It is in effect on return.
func (b *B) SetState(name string, state Admin) error {
	if int(state) >= len(adminNames) {
		return &Error{"state", state, errors.New("no such state"), "give ready, drain or maint"}
	}
	return b.wish(name, func(w *wish) error {
		if w.state != state {
			w.state, w.since = state, time.Now()
		}
		return nil
	})
}

// SetWeight gives a server another weight than the configured one, or with nil that
// one again. It is in effect on return.
func (b *B) SetWeight(name string, weight *int) error {
	return b.wish(name, func(w *wish) error {
		switch {
		case weight == nil:
		case *weight < 0 || *weight > lb.MaxWeight:
			return &Error{"weight", *weight, errors.New("out of range"), fmt.Sprintf("give 0 to %d", lb.MaxWeight)}
		case *weight > 1 && b.config.unweighted():
			return &Error{"weight", *weight, errors.New(b.config.Algorithm + " knows no weights"), "give 0 or 1"}
		default:
			weight = new(*weight) // ours from here on
		}
		w.weight = weight
		return nil
	})
}

func (b *B) wish(name string, change func(*wish) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, listed := serversByName(b.config.Backends)[name]; !listed {
		return &Error{"server", fmt.Sprintf("%q", name), ErrNoServer, "name one that is listed"}
	}
	w := b.wishes[name]
	if err := change(&w); err != nil {
		return err
	}
	b.wishes[name] = w
	return b.publish()
}

// weightOf returns which weight counts.
func (w wish) weightOf(s Server) int {
	if w.weight != nil {
		return *w.weight
	}
	return *s.Weight
}

// usable tells whether the server is to get new connections.
func (w wish) usable(s Server, v health.State) bool {
	return v == health.Online && w.state == Ready && w.weightOf(s) > 0
}

// present is a server as lb is to see it.
func (w wish) present(s Server, verdict health.State) lb.Backend[tcpproxy.Server] {
	entry := s.backend()
	entry.Weight = w.weightOf(s)
	switch {
	case w.state == Maint, verdict == health.Offline:
		entry.State, entry.Weight = lb.Down, 0 // not even in panic
	case w.state == Drain:
		entry.State = lb.Drain
	case verdict == health.Online:
		entry.State = lb.Up
	default:
		entry.State = lb.Down
	}
	return entry
}
