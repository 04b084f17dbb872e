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

// Defaults of [HolderConfig].
const (
	DefaultLifetime = 5 * time.Second
	DefaultMargin   = 250 * time.Millisecond
)

// errHolderRunTwice is returned by the second call of Run.
var errHolderRunTwice = errors.New("vrrp: Holder.Run was called before: make a new Holder")

// HolderConfig configures [NewHolder].
type HolderConfig struct {
	// Interface carries the addresses, 1 to 15 bytes.
	Interface string

	// Prefixes are the addresses to hold, with the length of their network,
	// such as 192.0.2.1/24; at least one, each once. IPv6 addresses are added
	// and removed like the others, but not announced.
	Prefixes []netip.Prefix

	// Label, Protocol and Adopt are those of [AddressesConfig].
	Label    string
	Protocol uint8
	Adopt    bool

	// Lifetime is how long the kernel keeps an address that is not renewed:
	// whole seconds from 2 s to 24 h, 0 means [DefaultLifetime]. It is renewed
	// at a third. It never reaches beyond the token; see [Holder].
	Lifetime time.Duration

	// Margin is how long before the token's end the Holder lets go by itself,
	// up to Lifetime; 0 means [DefaultMargin]. It pays for the removal, and
	// for the difference between our clock and that of whoever gave the token.
	Margin time.Duration

	// Announce says when the addresses are announced.
	Announce AnnounceConfig

	// Reply adds the reply form to each announcement; see [AnnouncerConfig].
	Reply bool

	// OnEvent, if set, is told what happens. Calls come from one goroutine of
	// Run and never overlap. It may be slow: events of a kind that pile up
	// are replaced by the latest, and the Holder never waits, except that Run
	// returns only after the last call has. It must not call Run.
	OnEvent func(HolderEvent)
}

// validate returns the configuration with its defaults, or all its faults.
func (c HolderConfig) validate() (HolderConfig, error) {
	var faults []error
	c.Prefixes = slices.Clone(c.Prefixes)
	faults = append(faults, validatePrefixes(c.Prefixes))
	if c.Lifetime == 0 {
		c.Lifetime = DefaultLifetime
	}
	if c.Lifetime < 2*time.Second || c.Lifetime > maxAddrLifetime || c.Lifetime%time.Second != 0 {
		faults = append(faults, &ConfigError{"Lifetime", fmt.Errorf("holder lifetime %v: use whole seconds from 2s to %v", c.Lifetime, maxAddrLifetime)})
	}
	if c.Margin == 0 {
		c.Margin = DefaultMargin
	}
	if c.Margin < 0 || c.Margin > c.Lifetime {
		faults = append(faults, &ConfigError{"Margin", fmt.Errorf("holder margin %v: use more than 0 and at most the lifetime of %v", c.Margin, c.Lifetime)})
	}
	return c, errors.Join(faults...)
}

// holderInstaller is what a Holder needs from the kernel. [Addresses] is it.
type holderInstaller interface {
	check(prefixes []netip.Prefix) error
	Add(lifetime time.Duration, prefixes ...netip.Prefix) error
	Renew(lifetime time.Duration, prefixes ...netip.Prefix) error
	Remove(prefixes ...netip.Prefix) error
	Owned(prefixes ...netip.Prefix) ([]netip.Prefix, error)
	missing(prefixes []netip.Prefix) ([]netip.Prefix, error)
	watch(ctx context.Context, prefixes []netip.Prefix, report func(addrChange)) error
}

// holderAnnouncer is what a Holder needs from the network. [Announcer] is it.
type holderAnnouncer interface {
	Open() error
	Announce(addr netip.Addr) error
	Close() error
}

// Holder holds addresses on an interface and announces them while an outside
// token is valid: a lease, an election, or a VRRP instance says until when.
// It needs no VRRP.
//
//	h, err := vrrp.NewHolder(vrrp.HolderConfig{...})
//	go h.Run(ctx)
//	h.Hold(lease.ValidUntil)  // at each renewal
//	h.Release("lost the election")
//
// # What is promised
//
// Without a valid token nothing is announced: the token is checked for each
// announcement under the lock under which it is sent, so that none leaves
// after Release returned. Margin before the token ends the Holder lets go by
// itself. Addresses are removed as soon as the worker gets to it, normally
// within milliseconds.
//
// A Holder that is killed, stopped or stuck cannot remove anything; the kernel
// does. The lifetime that it is given is the smaller of Lifetime and the rest
// of the token, less 50 ms, rounded down to whole seconds, so that it ends
// before the token does. Linux acts on ended lifetimes up to about a second
// late, and a process that is stopped between reading the clock and telling
// the kernel (the 50 ms) shifts the end by as much; nothing else lets an
// address outlive its token. The price: a token needs 1.05 s left to be turned
// into an address.
//
// A worker that wakes late (by a third of Lifetime, 2 s at most) believes
// nothing: if the token ended meanwhile it lets go first; if there is a new
// one, or the old is still good, it adds the addresses again and announces
// them from the start. Addresses that somebody else removes are added again
// and announced, the first time at once, then once a second at most.
//
// # Use
//
// Hold, Release, Announce and Status may be called from any goroutine, before,
// during and after Run. Run needs CAP_NET_ADMIN and CAP_NET_RAW. Only Linux is
// supported; elsewhere Run fails with an error that matches
// [errors.ErrUnsupported].
type Holder struct {
	cfg   HolderConfig
	addrs holderInstaller
	ann   holderAnnouncer
	v4    []netip.Addr // what is announced

	ran  atomic.Bool
	wake chan struct{} // holds a token while the worker has to look

	prepared chan struct{} // closed when Run has found that it can do its work

	// sending is held from the check of the token to the end of the send.
	// Release passes through it to wait for a frame in flight. Never taken
	// while mu is held.
	sending sync.Mutex

	mu    sync.Mutex
	m     holdMachine
	ended bool // Run has ended: tokens are of no use any more
}

// NewHolder returns all faults of the configuration joined. It opens nothing.
func NewHolder(c HolderConfig) (*Holder, error) {
	c, err := c.validate()
	addrs, addrErr := NewAddresses(AddressesConfig{Interface: c.Interface, Label: c.Label, Protocol: c.Protocol, Adopt: c.Adopt})
	schedule, annErr := NewAnnounceSchedule(c.Announce)
	if err := errors.Join(err, addrErr, annErr); err != nil {
		return nil, err
	}
	ann, err := NewAnnouncer(AnnouncerConfig{Interface: c.Interface, Reply: c.Reply})
	if err != nil {
		return nil, err
	}
	return newHolder(c, schedule, addrs, ann), nil
}

// newHolder takes a validated configuration.
func newHolder(c HolderConfig, schedule *AnnounceSchedule, addrs holderInstaller, ann holderAnnouncer) *Holder {
	h := &Holder{cfg: c, addrs: addrs, ann: ann, wake: make(chan struct{}, 1), prepared: make(chan struct{})}
	for _, p := range c.Prefixes {
		if p.Addr().Is4() {
			h.v4 = append(h.v4, p.Addr())
		}
	}
	h.m = holdMachine{
		prefixes:  c.Prefixes,
		announces: len(h.v4) > 0,
		lifetime:  c.Lifetime,
		margin:    c.Margin,
		ann:       schedule,
	}
	return h
}

// Hold says that the token is valid until the given instant (compared on the
// monotonic clock where it carries one). The latest call wins, whether it
// extends or shortens. An instant that is past, or less than Margin away, is a
// Release. It never blocks on the network or the kernel.
func (h *Holder) Hold(validUntil time.Time) {
	h.input(func(now time.Time) { h.m.hold(now, validUntil) })
}

// Release says that the token is gone, and why. When it returns, no further
// announcement leaves; it waits at most for the one that is being handed to
// the interface, 50 ms. The addresses are removed by Run's worker.
func (h *Holder) Release(reason string) {
	h.input(func(now time.Time) { h.m.release(now, reason) })
	h.sending.Lock() // a frame in flight passed its check before
	//lint:ignore SA2001 only waits for the one who holds it
	h.sending.Unlock()
}

// Announce starts the announcements anew, if the addresses are held: call it
// when the neighbours may have heard somebody else, and say why.
func (h *Holder) Announce(reason string) {
	h.input(func(now time.Time) { h.m.again(now, reason) })
}

// Status tells what is known right now. It is never older than its ValidUntil:
// a Holder whose worker is stuck, or whose Run has ended, is Unknown.
func (h *Holder) Status() HolderStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.m.status(time.Now())
}

// input applies one input to the machine and wakes the worker.
func (h *Holder) input(f func(now time.Time)) {
	h.mu.Lock()
	if !h.ended {
		f(time.Now())
	}
	h.mu.Unlock()
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Run does the work until ctx ends, then removes the addresses and returns nil
// once all its goroutines have ended. At start it checks the interface and the
// privileges, and fails if they are missing; and it removes its own addresses
// that an earlier owner left. Later faults are retried, and told by OnEvent
// and Status. It fails at the end if the addresses could not be removed; they
// then vanish within their lifetime. Run can be called once.
func (h *Holder) Run(ctx context.Context) error {
	if h.ran.Swap(true) {
		return errHolderRunTwice
	}
	defer h.finish()
	if err := h.prepare(); err != nil {
		return err
	}
	close(h.prepared)

	box := newHolderMailbox()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer box.close()
	wg.Go(func() {
		box.dispatch(func(e HolderEvent) {
			if h.cfg.OnEvent != nil {
				h.cfg.OnEvent(e)
			}
		})
	})
	watchCtx, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	wg.Go(func() { h.watch(watchCtx) })

	h.step(func(now time.Time) { h.m.start(now) }, box)
	h.work(ctx, box)
	err := h.leave(box)
	return errors.Join(err, h.ann.Close())
}

// prepare finds out early what would make every later step fail.
func (h *Holder) prepare() error {
	if err := h.addrs.check(h.cfg.Prefixes); err != nil {
		return err
	}
	if len(h.v4) > 0 {
		if err := h.ann.Open(); err != nil {
			return errors.Join(err, h.ann.Close())
		}
	}
	owned, err := h.addrs.Owned(h.cfg.Prefixes...)
	if err == nil && len(owned) > 0 {
		err = h.addrs.Remove(owned...)
	}
	if err != nil {
		return errors.Join(err, h.ann.Close())
	}
	return nil
}

// finish makes every later Status read Unknown.
func (h *Holder) finish() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.m.stop(time.Now())
	h.ended = true
}

// work is the worker's loop.
func (h *Holder) work(ctx context.Context, box *holderMailbox) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		due, ok := h.act(ctx, box)
		if ok {
			timer.Reset(time.Until(due))
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-h.wake:
		}
	}
}

// act does all that is due, and tells when to come back.
func (h *Holder) act(ctx context.Context, box *holderMailbox) (due time.Time, ok bool) {
	for {
		var a holdAction
		h.step(func(now time.Time) {
			a = h.m.advance(now)
			due, ok = h.m.deadline()
		}, box)
		if a.kind == holdNothing || ctx.Err() != nil {
			return due, ok
		}
		h.do(a, box)
	}
}

// do performs one action and reports its outcome.
func (h *Holder) do(a holdAction, box *holderMailbox) {
	begun := time.Now()
	switch a.kind {
	case holdAdd, holdRenew:
		add := h.addrs.Add
		if a.kind == holdRenew {
			add = h.addrs.Renew
		}
		err := add(a.lifetime, h.cfg.Prefixes...)
		h.step(func(now time.Time) { h.m.installed(begun, now, a, err) }, box)
	case holdRemove:
		err := h.addrs.Remove(h.cfg.Prefixes...)
		h.step(func(now time.Time) { h.m.removed(now, a, err) }, box)
	case holdFindMissing:
		found, err := h.addrs.missing(h.cfg.Prefixes)
		h.step(func(now time.Time) { h.m.checked(now, a, found, err) }, box)
	case holdFindLeft:
		found, err := h.addrs.Owned(h.cfg.Prefixes...)
		h.step(func(now time.Time) { h.m.checked(now, a, found, err) }, box)
	case holdAnnounce:
		sent, err := h.announce(a.epoch)
		h.step(func(now time.Time) { h.m.announced(now, a, sent, err) }, box)
	}
}

// announce sends one announcement of each address while the epoch lasts.
func (h *Holder) announce(epoch uint64) (sent int, err error) {
	// The slow part stays outside the lock.
	if err := h.ann.Open(); err != nil {
		return 0, err
	}
	for _, addr := range h.v4 {
		ok, err := h.announceOne(epoch, addr)
		if !ok || err != nil {
			return sent, err
		}
		sent++
	}
	return sent, nil
}

// announceOne checks the token and sends under one lock.
func (h *Holder) announceOne(epoch uint64, addr netip.Addr) (ok bool, err error) {
	h.sending.Lock()
	defer h.sending.Unlock()
	h.mu.Lock()
	ok = h.m.mayAnnounce(time.Now(), epoch)
	h.mu.Unlock()
	if !ok {
		return false, nil
	}
	return true, h.ann.Announce(addr)
}

// step gives the machine one input and passes on the events.
func (h *Holder) step(f func(now time.Time), box *holderMailbox) {
	h.mu.Lock()
	f(time.Now())
	events := h.m.events
	h.m.events = nil
	h.mu.Unlock()
	for _, e := range events {
		box.put(e)
	}
}

// watch reports to the machine what others do to the interface. A watcher that
// fails is started again; meanwhile the checks find the same, only later.
func (h *Holder) watch(ctx context.Context) {
	for ctx.Err() == nil {
		err := h.addrs.watch(ctx, h.cfg.Prefixes, func(c addrChange) {
			h.input(func(now time.Time) {
				if c == addrLinkUp {
					h.m.linkUp(now)
				} else {
					h.m.suspect(now)
				}
			})
		})
		if err != nil {
			h.input(h.m.suspect)
		}
		select {
		case <-ctx.Done():
		case <-time.After(h.m.pace()):
		}
	}
}

// leaveAttempts bounds how often the removal is tried at the end.
const leaveAttempts = 3

// leave removes the addresses when Run ends.
func (h *Holder) leave(box *holderMailbox) error {
	h.Release("stopping")
	h.mu.Lock()
	present, epoch := h.m.present, h.m.epoch
	h.mu.Unlock()
	if !present {
		return nil
	}
	var err error
	for range leaveAttempts {
		if err = h.addrs.Remove(h.cfg.Prefixes...); err == nil {
			break
		}
	}
	h.step(func(now time.Time) { h.m.removed(now, holdAction{kind: holdRemove, epoch: epoch}, err) }, box)
	return err
}
