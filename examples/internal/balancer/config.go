package balancer

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/lastbeat/lastbeat/health"
)

// Config configures a balancer. It can be read from YAML as it is; unknown keys are
// refused by the decoder's KnownFields.
type Config struct {
	// Listen is the address that clients connect to, such as ":9445". Required.
	Listen string `yaml:"listen"`
	// Ready is the address of an HTTP port that answers any path with 200 while
	// this process takes connections, and 503 while it does not. Default: none.
	Ready string `yaml:"ready"`
	// Monitor is the address of an HTTP port that answers any path with 200 while
	// a backend is alive, otherwise 503. The body is the [Status] as JSON.
	// Default: none.
	Monitor string `yaml:"monitor"`
	// Stats is the address of an HTTP port for those who look: a page for people
	// at /, the [Status] as JSON at /status, and /metrics for Prometheus.
	// Default: none.
	Stats string `yaml:"stats"`
	// Control is the address of an HTTP port by which people drain servers and set
	// weights, without a password. It must be a loopback address unless
	// ControlAnywhere says otherwise. Default: none.
	Control         string `yaml:"control"`
	ControlAnywhere bool   `yaml:"control_anywhere"`
	// MaxConn is how many connections are served at once. More wait in the
	// kernel's queue. Default Auto.
	MaxConn MaxConn `yaml:"maxconn"`
	// Backends are the servers, each once. There may be none: then every
	// connection is reset.
	Backends []Server `yaml:"backends"`
	// Algorithm chooses the server of a connection: roundrobin,
	// weightedroundrobin, leastconn, random, p2c, source or maglev (both by the
	// client's address), first. Default weightedroundrobin.
	Algorithm string `yaml:"algorithm"`
	// SlowStart is how long a server that comes back, or is new, takes to rise to
	// its whole weight and limit. Default 0, at once; else 1 s to 24 h.
	SlowStart time.Duration `yaml:"slow_start"`
	// Check says how backends are probed.
	Check Check `yaml:"check"`
	// ConnectTimeout is how long one backend may take to accept a connection
	// before the next is tried. Default 1 s.
	ConnectTimeout time.Duration `yaml:"connect_timeout"`
	// Queue is how many connections may wait while every server has as many as its
	// MaxConn allows; more are reset. Default 1024, range 0 to 1,000,000.
	Queue *int `yaml:"queue,omitempty"`
	// QueueTimeout is how long one may wait before it is reset. Default 5 s.
	QueueTimeout time.Duration `yaml:"queue_timeout"`
	// Grace is how long connections may go on after the end of Run's context.
	// Default 0: they are broken off.
	Grace time.Duration `yaml:"grace"`

	// OnEvent is called when a backend comes up or goes down, by one goroutine,
	// one call after the other. That goroutine also takes dead backends out, so
	// OnEvent must return soon. Default nil.
	OnEvent func(Event) `yaml:"-"`
	// Log gets a line for each failure; those of single connections have level
	// Debug. Default: nobody.
	Log *slog.Logger `yaml:"-"`
}

// Check says how a backend is probed and how its probes are judged. The zero value
// asks for https://BACKEND/readyz every 5 s. A backend that turns silent then leaves
// 13 to 18 s after it died, one that refuses 10 to 15 s.
type Check struct {
	// Kind is "https" (any certificate will do: the probe asks whether the server
	// is ready, clients ask whether it is the right one), "http", or "tcp" to
	// connect only. Default "https".
	Kind string `yaml:"kind"`
	// Path is what http and https probes ask for. Default "/readyz".
	Path string `yaml:"path"`
	// Interval is the pause between two probes. Default 5 s, range 1 ms to 24 h.
	Interval time.Duration `yaml:"interval"`
	// Timeout is how long one probe may take. Default 1 s, range 1 ms to 1 h.
	Timeout time.Duration `yaml:"timeout"`
	// Rise is how many good probes in a row bring a backend up. Default 1, range
	// 1 to 1000.
	Rise int `yaml:"rise"`
	// Fall is how many bad probes in a row take it down. Default 3, range 1 to 1000.
	Fall int `yaml:"fall"`
}

// Event is a change of a backend.
type Event struct {
	Backend string // its name
	Up      bool   // it is known to be alive
	// State is why it is not: offline, or not known.
	State  health.State
	At     time.Time // when the state began
	Reason string
}

// Error is a setting that can't be used: a fault of the configuration, or an address
// that can't be listened on.
type Error struct {
	Key    string // as in the YAML file, such as "check.interval"
	Value  any
	Err    error  // what is wrong
	Remedy string // what to do
}

// Error names the key, its value, what is wrong and what to do, in one line.
func (e *Error) Error() string {
	return fmt.Sprintf("balancer: %s %v: %v: %s", e.Key, e.Value, e.Err, e.Remedy)
}

// Unwrap returns what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// complete fills in the defaults. It returns all faults joined, each an *Error,
// but those of MaxConn, which depend on the process.
func (c Config) complete() (Config, error) {
	var faults []error
	refuse := func(key string, value any, what, remedy string) {
		faults = append(faults, &Error{key, value, errors.New(what), remedy})
	}

	taken := map[string]string{} // key by address
	for _, l := range c.addresses() {
		if l.address == "" {
			if l.key == "listen" {
				refuse(l.key, `""`, "no address", "give one, such as :9445")
			}
			continue
		}
		_, port, err := net.SplitHostPort(l.address)
		if err == nil {
			_, err = net.LookupPort("tcp", port)
		}
		switch {
		case err != nil:
			refuse(l.key, l.address, "no address to listen on", "write :port or host:port, such as :9445 or [::1]:9445")
		case taken[l.address] != "" && port != "0":
			refuse(l.key, l.address, "address is that of "+taken[l.address], "choose another port")
		case l.key == "control" && !c.ControlAnywhere && !loopback(l.address):
			refuse(l.key, l.address, "open to others, without a password", "write 127.0.0.1:port, or set control_anywhere")
		}
		taken[l.address] = l.key
	}

	servers, err := completeServers(c.Backends)
	if err != nil {
		faults = append(faults, err)
	}
	c.Backends = servers
	if c.Algorithm == "" {
		c.Algorithm = "weightedroundrobin"
	}
	if _, err := algorithm(c.Algorithm); err != nil {
		faults = append(faults, err)
	} else if c.unweighted() {
		for i, s := range servers {
			if *s.Weight > 1 {
				refuse(fmt.Sprintf("backends[%d].weight", i), *s.Weight, c.Algorithm+" knows no weights", "choose another algorithm or remove it")
			}
		}
	}
	if c.SlowStart != 0 && (c.SlowStart < time.Second || c.SlowStart > 24*time.Hour) {
		refuse("slow_start", c.SlowStart, "out of range", "give 1s to 24h, or 0s for none")
	}

	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = time.Second
	}
	if c.ConnectTimeout < 0 {
		refuse("connect_timeout", c.ConnectTimeout, "it is negative", "give a time such as 1s")
	}
	queue := 1024
	if c.Queue != nil {
		queue = *c.Queue
	}
	c.Queue = &queue // ours from here on
	if queue < 0 || queue > 1_000_000 {
		refuse("queue", queue, "out of range", "give 0 to 1000000")
	}
	if c.QueueTimeout == 0 {
		c.QueueTimeout = 5 * time.Second
	}
	if c.QueueTimeout < 0 {
		refuse("queue_timeout", c.QueueTimeout, "it is negative", "give a time such as 5s")
	}
	if c.Grace < 0 {
		refuse("grace", c.Grace, "it is negative", "give 0s or more")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	check, err := c.Check.complete()
	c.Check = check
	return c, errors.Join(errors.Join(faults...), err)
}

// unweighted tells that the algorithm takes all weights above 0 for alike.
func (c Config) unweighted() bool { return c.Algorithm == "roundrobin" || c.Algorithm == "first" }

// addresses lists where c listens.
func (c Config) addresses() [5]struct{ key, address string } {
	return [5]struct{ key, address string }{{"listen", c.Listen}, {"ready", c.Ready}, {"monitor", c.Monitor}, {"stats", c.Stats}, {"control", c.Control}}
}

func dialable(address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return false
	}
	n, err := net.LookupPort("tcp", port)
	return err == nil && n > 0
}

func (c Check) complete() (Check, error) {
	var faults []error
	if c.Kind == "" {
		c.Kind = "https"
	}
	if c.Path == "" {
		c.Path = "/readyz"
	}
	switch c.Kind {
	case "https", "http", "tcp":
	default:
		faults = append(faults, &Error{"check.kind", c.Kind, errors.New("no such kind"), "choose https, http or tcp"})
	}
	if _, err := url.ParseRequestURI(c.Path); err != nil || c.Path[0] != '/' {
		faults = append(faults, &Error{"check.path", fmt.Sprintf("%q", c.Path), errors.New("no path"), "write one that begins with a slash, such as /readyz"})
	}
	if _, err := health.NewMachine(c.health()); err != nil {
		faults = append(faults, checkFaults(err)...)
	}
	return c, errors.Join(faults...)
}

// checkFaults translates the faults that health found into ours, as its field names
// are not the keys that the user wrote.
func checkFaults(err error) []error {
	keys := map[string]string{"Interval": "interval", "Timeout": "timeout", "Rise": "rise", "Fall": "fall"}
	var faults []error
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			faults = append(faults, checkFaults(err)...)
		}
		return faults
	}
	if e, ok := errors.AsType[*health.ConfigError](err); ok && keys[e.Field] != "" {
		return []error{&Error{"check." + keys[e.Field], e.Value, errors.New("out of range"), "give " + e.Want}}
	}
	return []error{err}
}

func (c Check) health() health.Config {
	return health.Config{Interval: c.Interval, Timeout: c.Timeout, Rise: c.Rise, Fall: c.Fall}
}

// MaxConn is a number of connections, or [Auto].
type MaxConn int

// Auto is as many connections as the descriptor limit has room for, up to 40,000.
const Auto MaxConn = 0

// UnmarshalText reads a number, or "auto".
func (m *MaxConn) UnmarshalText(text []byte) error {
	if string(text) == "auto" {
		*m = Auto
		return nil
	}
	n, err := strconv.ParseInt(string(text), 0, 32) // base 0: 40_000 is allowed
	if err != nil || n < 1 {
		return &Error{"maxconn", string(text), errors.New("no number of connections"), "give 1 or more, or auto"}
	}
	*m = MaxConn(n)
	return nil
}

// MarshalText is the inverse of UnmarshalText.
func (m MaxConn) MarshalText() ([]byte, error) {
	if m == Auto {
		return []byte("auto"), nil
	}
	return strconv.AppendInt(nil, int64(m), 10), nil
}
