// Package load is the client of the labs: it asks for things at fixed instants,
// whatever became of what it asked for before.
//
// Such an open loop shows an outage at its full length. A client that waits for
// each answer before it asks again would send one request into the outage
// instead of all those that people would have sent, and call it one failure.
package load

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"
)

// Defaults of [Config].
const (
	DefaultEvery     = 50 * time.Millisecond
	DefaultTimeout   = 3 * time.Second
	DefaultPingEvery = 10 * time.Millisecond
	DefaultPingID    = 0x4c42
)

// Target is something that is asked over HTTP or HTTPS.
type Target struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// Config configures [Run]. It can be sent to another process as JSON.
type Config struct {
	Targets []Target      `json:"targets"`
	Every   time.Duration `json:"every"`   // between two requests to a target; 0 means [DefaultEvery]
	Timeout time.Duration `json:"timeout"` // of a request in all; 0 means [DefaultTimeout]

	// Pings are IPv4 addresses that get a ping each PingEvery; 0 means
	// [DefaultPingEvery]. The address at index i gets the ICMP identifier
	// PingID+i, where 0 means [DefaultPingID], and sequence numbers from 0 that
	// start again after 65,535. Pinging needs CAP_NET_RAW.
	//
	// Pings are only sent: when they left, and when and from whom answers came,
	// is for a capture of the network to say.
	Pings     []netip.Addr  `json:"pings"`
	PingEvery time.Duration `json:"pingEvery"`
	PingID    uint16        `json:"pingID"`
}

// Record is what became of one request. The instants are the client's; on the
// machine that also captures, they compare with the capture's by wall clock.
type Record struct {
	Target    string    `json:"target"`
	Seq       int       `json:"seq"`       // of the target, from 0
	Scheduled time.Time `json:"scheduled"` // when it was to be sent
	Start     time.Time `json:"start"`     // when it was; later than Scheduled on a busy machine
	End       time.Time `json:"end"`
	Status    int       `json:"status,omitempty"` // of the HTTP answer
	Server    string    `json:"server,omitempty"` // its X-Server header
	Error     string    `json:"error,omitempty"`  // empty after a complete answer of status 2xx
	TimedOut  bool      `json:"timedOut,omitempty"`
}

// InFlight tells whether the request was under way at an instant: it started
// before and had not ended. A server that dies then takes the request with it,
// which no balancer can prevent.
func (r Record) InFlight(at time.Time) bool { return r.Start.Before(at) && r.End.After(at) }

// Run asks until ctx ends, waits for the answers that are still out, a Timeout
// at most, and returns nil. emit gets each record when its request has ended,
// one at a time; a slow emit delays other records, but no request.
func Run(ctx context.Context, c Config, emit func(Record)) error {
	if err := c.complete(); err != nil {
		return err
	}
	var pings net.PacketConn
	if len(c.Pings) > 0 {
		var err error
		if pings, err = net.ListenPacket("ip4:icmp", "0.0.0.0"); err != nil {
			return fmt.Errorf("load: open a socket for pings: %w (needs CAP_NET_RAW)", err)
		}
		defer pings.Close()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	var records sync.Mutex
	serial := func(r Record) {
		records.Lock()
		defer records.Unlock()
		emit(r)
	}
	var loops, requests sync.WaitGroup
	failures := make(chan error, len(c.Pings))
	start := time.Now()
	for _, target := range c.Targets {
		a := asker{config: c, target: target, emit: serial, requests: &requests}
		loops.Go(func() { a.run(ctx, start) })
	}
	for i, addr := range c.Pings {
		p := pinger{conn: pings, addr: &net.IPAddr{IP: addr.AsSlice()}, id: c.PingID + uint16(i)}
		loops.Go(func() {
			if err := p.run(ctx, c.PingEvery); err != nil {
				failures <- fmt.Errorf("load: ping %s: %w", addr, err)
				cancel()
			}
		})
	}
	var drained sync.WaitGroup
	if pings != nil {
		drained.Go(func() { drain(pings) })
	}
	<-ctx.Done()
	loops.Wait()
	requests.Wait()
	if pings != nil {
		pings.Close()
		drained.Wait()
	}
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}

// Lines is Run with the records as lines of JSON on w, as a process of its own
// hands them to the one that started it. It ends with the first failed write.
func Lines(ctx context.Context, c Config, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var failed error
	enc := json.NewEncoder(w)
	err := Run(ctx, c, func(r Record) {
		if failed == nil {
			if failed = enc.Encode(r); failed != nil {
				cancel()
			}
		}
	})
	if failed != nil {
		failed = fmt.Errorf("load: write records: %w", failed)
	}
	return errors.Join(failed, err)
}

// complete fills in the defaults and returns all faults.
func (c *Config) complete() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("load: "+format, args...)) }
	duration := func(name string, d *time.Duration, byDefault time.Duration) {
		if *d == 0 {
			*d = byDefault
		}
		if *d < 0 {
			fault("%s %v: use a positive duration, or 0 for %v", name, *d, byDefault)
		}
	}
	duration("Every", &c.Every, DefaultEvery)
	duration("Timeout", &c.Timeout, DefaultTimeout)
	duration("PingEvery", &c.PingEvery, DefaultPingEvery)
	if c.PingID == 0 {
		c.PingID = DefaultPingID
	}
	if len(c.Targets)+len(c.Pings) == 0 {
		fault("nothing to ask: name Targets or Pings")
	}
	for _, t := range c.Targets {
		u, err := url.Parse(t.URL)
		switch {
		case err != nil:
			fault("target %q: %w", t.Name, err)
		case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
			fault("target %q: URL %q: use http://host/ or https://host/", t.Name, t.URL)
		}
	}
	for _, a := range c.Pings {
		if !a.Is4() {
			fault("ping %v: use an IPv4 address", a)
		}
	}
	return errors.Join(faults...)
}

// asker asks one target.
type asker struct {
	config   Config
	target   Target
	emit     func(Record)
	requests *sync.WaitGroup
}

// run starts request n at start + n*Every. Those that are overdue, because the
// machine was busy, start at once: their Scheduled tells that they are late.
func (a *asker) run(ctx context.Context, start time.Time) {
	client := &http.Client{
		Timeout: a.config.Timeout,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // the lab's servers sign for themselves
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := 0; ; n++ {
		due := start.Add(time.Duration(n) * a.config.Every)
		timer.Reset(time.Until(due))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if ctx.Err() != nil { // both were ready
			return
		}
		a.requests.Go(func() {
			r := Record{Target: a.target.Name, Seq: n, Scheduled: due, Start: time.Now()}
			ask(client, a.target.URL, &r)
			r.End = time.Now()
			a.emit(r)
		})
	}
}

// ask makes one request. It outlives the context of Run on purpose: a request
// that is cut off by the end of the measurement would count as failed.
func ask(client *http.Client, url string, r *Record) {
	resp, err := client.Get(url)
	if err == nil {
		r.Status, r.Server = resp.StatusCode, resp.Header.Get("X-Server")
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err == nil && resp.StatusCode/100 != 2 {
			err = errors.New(resp.Status)
		}
	}
	if err != nil {
		r.Error = err.Error()
		var timeout interface{ Timeout() bool }
		r.TimedOut = errors.As(err, &timeout) && timeout.Timeout()
	}
}
