package vrrp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// InstanceConfig configures [NewInstance].
type InstanceConfig struct {
	// Config is the protocol's. Addrs may be left empty: they are those of
	// Prefixes. The track "interface NAME" is added by the instance.
	Config

	// Interface carries adverts and addresses.
	Interface string

	// Prefixes are the virtual addresses with the length of their network, such
	// as 192.0.2.1/24.
	Prefixes []netip.Prefix

	// Label, Protocol and Adopt are those of [AddressesConfig].
	Label    string
	Protocol uint8
	Adopt    bool

	// Announce and Reply are those of [HolderConfig].
	Announce AnnounceConfig
	Reply    bool

	// OnEvent, if set, is told of each transition and each reaction to a rival;
	// OnAddress of what happens to the addresses. Each is called by one goroutine
	// of Run, so that calls of one never overlap. They may be slow: events that
	// pile up are merged, and the protocol never waits. They must not call Run.
	OnEvent   func(Event)
	OnAddress func(HolderEvent)
}

// Event is a transition of an [Instance], or, with From and To both Active, a
// round of announcements because of Reason.
type Event struct {
	At       time.Time // when it happened
	From, To State
	Reason   Reason
	Priority uint8 // effective, after the event
	Missed   int   // earlier events that were merged into this one because the consumer was busy
}

const (
	// linkPoll is how often the interface is looked at, apart from news of it.
	linkPoll = time.Second
	// linkValid is how long what was seen may be believed, or five intervals if
	// that is longer. It outlives the down interval: a router that was starved is
	// judged by the protocol first, and does not say goodbye to those who have
	// replaced it.
	linkValid = 10 * time.Second
	minSlack  = 100 * time.Millisecond
)

// errInstanceRunTwice is returned by the second call of Run.
var errInstanceRunTwice = errors.New("vrrp: Instance.Run was called before: make a new Instance")

// Instance is a virtual router on a real interface: a [Machine] with its socket,
// its clock and a [Holder]. All methods may be called from any goroutine.
type Instance struct {
	cfg    InstanceConfig
	holder *Holder

	// What the kernel provides; replaced in virtual time.
	dial func() (transport, error)
	link func() (index int, err error) // the interface's index, and why it is unfit
	news func(ctx context.Context, changed func())

	ran    atomic.Bool
	wake   chan struct{}
	events *eventBox

	mu        sync.Mutex
	m         *Machine
	actions   []Action
	linkIndex int
	linkErr   error
	linkSeen  bool   // the interface was looked at since the socket failed
	connErr   error  // why there is no socket
	sendErr   error  // of the last round
	sendErrs  uint64 // in all
}

// NewInstance returns all faults of the configuration joined. It opens nothing.
func NewInstance(c InstanceConfig) (*Instance, error) {
	c.Prefixes = slices.Clone(c.Prefixes)
	var addrsErr error
	if len(c.Addrs) == 0 {
		for _, p := range c.Prefixes {
			c.Addrs = append(c.Addrs, p.Addr())
		}
	} else if !slices.EqualFunc(c.Addrs, c.Prefixes, func(a netip.Addr, p netip.Prefix) bool { return a == p.Addr() }) {
		addrsErr = &ConfigError{"Addrs", fmt.Errorf("addresses %v are not those of the prefixes %v: leave Addrs empty", c.Addrs, c.Prefixes)}
	}
	c.Tracks = append(slices.Clone(c.Tracks), Track{Name: linkTrack(c.Interface)})
	c.Config = c.Config.withDefaults()
	m, err := NewMachine(c.Config)
	holder, holderErr := NewHolder(HolderConfig{
		Interface: c.Interface, Prefixes: c.Prefixes, Label: c.Label, Protocol: c.Protocol, Adopt: c.Adopt,
		Lifetime: c.Lifetime, Announce: c.Announce, Reply: c.Reply, OnEvent: c.OnAddress,
	})
	if err := errors.Join(addrsErr, err, holderErr); err != nil {
		return nil, err
	}
	i := &Instance{cfg: c, m: m, holder: holder, wake: make(chan struct{}, 1), events: newEventBox()}
	i.dial = func() (transport, error) { return dialRaw(c.Interface, c.Source, c.Multicast) }
	i.link = func() (int, error) { return linkState(c.Interface, c.Source) }
	i.news = func(ctx context.Context, changed func()) {
		_ = holder.addrs.watch(ctx, nil, func(addrChange) { changed() }) // the poll finds the same, later
	}
	return i, nil
}

func linkTrack(ifname string) string { return "interface " + ifname }

// Run takes part until ctx ends; then it says goodbye with priority 0, removes
// the addresses and returns nil once all its goroutines have ended. It fails if
// the interface or a privilege is missing at the start, or the addresses could
// not be removed at the end. It needs CAP_NET_RAW and CAP_NET_ADMIN. Run can be
// called once.
func (i *Instance) Run(ctx context.Context) error {
	if i.ran.Swap(true) {
		return errInstanceRunTwice
	}
	if err := i.lookAtLink(); errors.Is(err, ErrNoInterface) {
		return connError(i.cfg.Interface, err)
	}
	conn, err := i.dial()
	if err != nil {
		return err
	}
	// The helpers outlive ctx by the goodbye.
	helpers, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	held := make(chan error, 1)
	wg.Go(func() { held <- i.holder.Run(helpers) })
	wg.Go(func() { i.watchLink(helpers) })
	wg.Go(func() { i.events.dispatch(i.cfg.OnEvent) })

	conn, err = i.loop(ctx, conn, held)
	i.goodbye(conn)
	stop()
	i.events.close()
	wg.Wait()
	if conn != nil {
		err = errors.Join(err, conn.close())
	}
	select {
	case holderErr := <-held:
		err = errors.Join(err, holderErr)
	default: // the loop has it
	}
	return err
}

// loop is the protocol. It returns when ctx ends or the holder has failed. Who
// could not hold the addresses does not begin to take part.
func (i *Instance) loop(ctx context.Context, conn transport, held <-chan error) (transport, error) {
	select {
	case <-i.holder.prepared:
	case <-ctx.Done():
		return conn, nil
	case err := <-held:
		return conn, err
	}
	i.mu.Lock()
	i.m.Start(time.Now())
	index := i.linkIndex
	i.mu.Unlock()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		conn, index = i.redial(conn, index)
		due, broken := i.step(conn)
		if broken {
			_ = conn.close() // it has told its fault already
			conn = nil
		}
		timer.Reset(time.Until(due))
		var ready <-chan struct{}
		if conn != nil {
			ready = conn.ready()
		}
		select {
		case <-ctx.Done():
			return conn, nil
		case err := <-held:
			return conn, err
		case <-timer.C:
		case <-ready:
		case <-i.wake:
		}
	}
}

// step is one turn: first everything that has arrived, then what is due, then
// what follows from both.
func (i *Instance) step(conn transport) (due time.Time, broken bool) {
	i.mu.Lock()
	if conn != nil {
		err := conn.drain(func(at time.Time, pkt []byte) { i.m.Receive(at, pkt) })
		if broken = err != nil; broken {
			i.lost(err)
		}
	}
	now := time.Now()
	i.m.Advance(now)
	due = i.m.Deadline()
	i.actions = i.m.AppendActions(i.actions[:0])
	priority := i.m.Status(now).Priority
	i.mu.Unlock()
	i.act(conn, now, priority)
	return due, broken
}

// act carries out the actions, in their order.
func (i *Instance) act(conn transport, now time.Time, priority uint8) {
	for _, a := range i.actions {
		switch a.Kind {
		case SendAdvert:
			i.send(conn, now, a.Priority)
		case Hold:
			// The token ends later than the lifetime, so that the kernel is given the
			// whole of it.
			i.holder.Hold(a.Until.Add(max(i.cfg.Interval, minSlack)))
		case LetGo:
			i.holder.Release("not active")
		case Announce:
			i.holder.Announce(a.Reason.String())
			if a.Reason.Cause == RivalHeard {
				i.events.put(Event{At: now, From: Active, To: Active, Reason: a.Reason, Priority: priority})
			}
		case Changed:
			i.events.put(Event{At: now, From: a.From, To: a.To, Reason: a.Reason, Priority: priority})
		}
	}
}

// send sends one advert, decided on at now, to every peer, or to the group. An
// advert is a claim about the present: one that was held up for longer than an
// interval is not sent, as others may hold the address by then and would yield
// to it, while the next Advance lets go.
func (i *Instance) send(conn transport, now time.Time, priority uint8) {
	to := i.cfg.Peers
	if i.cfg.Multicast {
		to = []netip.Addr{multicastIPv4}
	}
	advert := i.m.Advert(priority)
	var first error
	var failed uint64
	var buf [headerLen + 4*255 + authLen]byte
	for _, dst := range to {
		msg, err := advert.AppendBinary(buf[:0], i.cfg.Source, dst)
		switch {
		case err != nil:
		case conn == nil:
			err = errNoSocket
		case time.Since(now) > i.cfg.Interval:
			err = errHeldUp
		default:
			err = conn.send(dst, msg)
		}
		if err != nil {
			failed++
			first = errors.Join(first, fmt.Errorf("vrrp: send advert to %v: %w", dst, err))
		}
	}
	i.mu.Lock()
	i.sendErrs += failed
	i.sendErr = first
	i.mu.Unlock()
}

var (
	errNoSocket = errors.New("no socket: the interface is gone")
	errHeldUp   = errors.New("held up for longer than the interval: this process got no CPU time, or a send hung")
)

// goodbye leaves the virtual router.
func (i *Instance) goodbye(conn transport) {
	i.mu.Lock()
	now := time.Now()
	i.m.Shutdown(now)
	i.actions = i.m.AppendActions(i.actions[:0])
	i.mu.Unlock()
	i.act(conn, now, 0)
}

// redial opens a new socket when the old one has failed, or when the interface was
// made anew: the old one belongs to an interface that no longer exists, and so
// does its multicast membership. After a fault it tries again once the interface
// was looked at anew.
func (i *Instance) redial(conn transport, index int) (transport, int) {
	i.mu.Lock()
	wanted := i.linkIndex
	due := i.linkErr == nil && (wanted != index || conn == nil) && (i.connErr == nil || i.linkSeen)
	i.mu.Unlock()
	if !due {
		return conn, index
	}
	fresh, err := i.dial()
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil {
		i.lost(err)
		return conn, index
	}
	i.connErr = nil
	i.report(time.Now())
	if conn != nil {
		_ = conn.close() // it belongs to an interface that is gone
	}
	return fresh, wanted
}

// lost notes that there is no socket: not to be able to receive is Fault, not
// silence, however well the interface looks. The caller holds mu.
func (i *Instance) lost(err error) {
	i.connErr, i.linkSeen = err, false
	i.report(time.Now())
}

// watchLink looks at the interface now and then, and at every news of it.
func (i *Instance) watchLink(ctx context.Context) {
	changed := make(chan struct{}, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for ctx.Err() == nil {
			i.news(ctx, func() {
				select {
				case changed <- struct{}{}:
				default:
				}
			})
			select {
			case <-ctx.Done():
			case <-time.After(linkPoll):
			}
		}
	})
	tick := time.NewTicker(linkPoll)
	defer tick.Stop()
	for {
		_ = i.lookAtLink() // it has told the machine
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-changed:
		}
	}
}

func (i *Instance) lookAtLink() error {
	index, err := i.link()
	i.mu.Lock()
	i.linkIndex, i.linkErr, i.linkSeen = index, err, true
	i.report(time.Now())
	i.mu.Unlock()
	i.poke()
	return err
}

// report hands the interface's fitness to the machine. The caller holds mu.
func (i *Instance) report(now time.Time) {
	up := i.linkErr == nil && i.connErr == nil
	until := now.Add(max(linkValid, 5*i.cfg.Interval))
	_ = i.m.Report(now, linkTrack(i.cfg.Interface), up, until) // the track is our own
}

func (i *Instance) poke() {
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// Report says that a track is up or down, and until when that may be believed;
// see [Machine.Report]. Of the interface's own track only the instance may.
func (i *Instance) Report(name string, up bool, validUntil time.Time) error {
	if name == linkTrack(i.cfg.Interface) {
		return fmt.Errorf("%w: %q is the instance's own: report under another name", ErrTrack, name)
	}
	i.mu.Lock()
	err := i.m.Report(time.Now(), name, up, validUntil)
	i.mu.Unlock()
	i.poke()
	return err
}

// SetTracks replaces the tracks without leaving the state; see
// [Machine.SetTracks]. The interface's own track stays.
func (i *Instance) SetTracks(tracks []Track) error {
	tracks = append(slices.Clone(tracks), Track{Name: linkTrack(i.cfg.Interface)})
	i.mu.Lock()
	err := i.m.SetTracks(time.Now(), tracks)
	i.mu.Unlock()
	i.poke()
	return err
}

// Status returns the state as of now: Unknown when the instance has not run for
// longer than its status is valid.
func (i *Instance) Status() Status {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.m.Status(time.Now())
}

// Addresses returns what is known of the addresses as of now.
func (i *Instance) Addresses() HolderStatus { return i.holder.Status() }

// Stats returns the counters.
func (i *Instance) Stats() Stats {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.m.Stats()
	s.SendErrors = i.sendErrs
	return s
}

// Err returns why the interface is unfit, the socket is lost or the last round of
// adverts could not be sent, nil when all is well. Adverts that cannot be sent, by
// reason of a firewall perhaps, do not end the claim of an active router: another
// one takes the addresses as well while that lasts.
func (i *Instance) Err() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return errors.Join(i.linkErr, i.connErr, i.sendErr)
}
