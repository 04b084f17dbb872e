package vrrp

import (
	"crypto/subtle"
	"net/netip"
	"slices"
	"time"
)

// Machine is the state machine of one virtual router (RFC 9568, Section 6.4,
// with the additions of keepalived: Fault, tracks, unicast). It has no clock,
// socket or goroutine: every input takes the current time, outputs are drained
// with [Machine.AppendActions], and [Machine.Deadline] tells when to call
// [Machine.Advance] next. Early, late and repeated calls are harmless.
//
// Before Advance, hand in every packet that has arrived, with its arrival time:
// a down timer is to be believed only once the queue was empty.
//
// A Machine is not safe for concurrent use.
type Machine struct {
	cfg     Config
	actions []Action
	scratch []netip.Addr
	stats   Stats

	state    State
	since    time.Time
	reason   Reason
	priority uint8         // effective
	interval time.Duration // of the active router: adopted from its adverts in version 3

	seen     time.Time // the last input
	downAt   time.Time // Backup: when we take over
	downWhy  Reason    // Backup: why we will then take over
	slept    bool      // Backup: the wait was slept through in part
	doubted  bool      // Backup: the silence was already questioned once
	advertAt time.Time // Active: when the next advert is due
	sentAt   time.Time // Active: when the last advert was sent
	reactAt  time.Time // Active: no reaction to a rival before this

	holder      netip.Addr // the active router as last heard
	preemptFrom time.Time  // Backup: since when a router of lower priority is heard
	peers       map[netip.Addr]peer

	tracks      []tracked
	trackExpiry time.Time // when the next track report ends
}

// NewMachine returns a machine in Initialize, or every fault of the
// configuration joined into one error.
func NewMachine(cfg Config) (*Machine, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	m := &Machine{
		cfg:      cfg,
		state:    Initialize,
		priority: cfg.Priority,
		interval: cfg.Interval,
		peers:    make(map[netip.Addr]peer),
		tracks:   make([]tracked, len(cfg.Tracks)),
		scratch:  make([]netip.Addr, 0, len(cfg.Addrs)),
	}
	for i, t := range cfg.Tracks {
		m.tracks[i].Track = t
	}
	return m, nil
}

// Start leaves Initialize (RFC 9568, Section 6.4.1): for Fault while a required
// track has not reported up, for Active as the owner, else for Backup.
func (m *Machine) Start(now time.Time) {
	if m.state != Initialize {
		return
	}
	m.seen = now
	if fault := m.assess(now); fault != nil {
		m.move(now, Fault, *fault)
		return
	}
	m.enter(now, Reason{Cause: Started})
}

// Shutdown goes back to Initialize. An active router says goodbye with
// priority 0, so that the next one waits only for its skew; one that others must
// have replaced by now leaves in silence.
func (m *Machine) Shutdown(now time.Time) {
	if m.state == Initialize {
		return
	}
	m.touch(now)
	m.leave(now)
	m.move(now, Initialize, Reason{Cause: Stopped})
}

// Receive takes an IPv4 packet that arrived at now. Any bytes are counted, never
// a fault; the result says why a packet was discarded.
func (m *Machine) Receive(now time.Time, packet []byte) Discard {
	p, err := ParsePacket(packet, m.scratch)
	d := m.accept(p, err)
	if d != Accepted {
		m.stats.discarded[d]++
		return d
	}
	m.scratch = p.Advert.Addrs // keep the room that it may have grown to
	m.stats.Received++
	if !sameAddrs(p.Advert.Addrs, m.cfg.Addrs) {
		m.stats.AddrMismatches++
	}
	if m.state == Initialize {
		return Accepted
	}
	m.touch(now)
	m.heard(now, p.Src, p.Advert)
	return Accepted
}

// sameAddrs compares as sets: nothing in the protocol orders the addresses.
func sameAddrs(a, b []netip.Addr) bool {
	return slices.Equal(a, b) || len(a) == len(b) &&
		!slices.ContainsFunc(a, func(addr netip.Addr) bool { return !slices.Contains(b, addr) })
}

// accept is the list of receive checks (RFC 9568, Section 7.1), in its order.
func (m *Machine) accept(p Packet, err error) Discard {
	if p.Src.IsValid() && p.TTL < m.cfg.MinTTL {
		return DiscardTTL
	}
	if err != nil {
		return err.(Discard)
	}
	a := p.Advert
	switch {
	case p.Src == m.cfg.Source:
		return DiscardOwn
	case a.Version != m.cfg.Version:
		return DiscardVersion
	case a.VRID != m.cfg.VRID:
		return DiscardVRID
	case p.Dst.IsMulticast() != m.cfg.Multicast:
		return DiscardDestination
	case !m.cfg.Multicast && !slices.Contains(m.cfg.Peers, p.Src):
		return DiscardPeer
	}
	if a.Version == 2 {
		kind, data := m.cfg.auth()
		switch {
		case a.AuthType != kind:
			return DiscardAuthType
		case kind == AuthPass && subtle.ConstantTimeCompare(data[:], a.Auth[:]) == 0:
			return DiscardPassword
		case a.Interval != m.cfg.Interval: // RFC 3768, Section 7.1
			return DiscardInterval
		}
	} else if a.Interval != m.cfg.Interval {
		m.stats.IntervalMismatch++
	}
	return Accepted
}

// heard acts on an accepted advert (RFC 9568, Sections 6.4.2 and 6.4.3).
func (m *Machine) heard(now time.Time, src netip.Addr, a Advert) {
	m.remember(now, src, a.Priority)
	switch m.state {
	case Backup:
		m.heardAsBackup(now, src, a)
	case Active:
		m.heardAsActive(now, src, a)
	}
}

func (m *Machine) heardAsBackup(now time.Time, src netip.Addr, a Advert) {
	switch {
	case a.Priority == 0 && m.downWhy.Peer.IsValid() && src != m.downWhy.Peer:
		// A goodbye of somebody whom we do not wait for: the holder is still there.
	case a.Priority == 0:
		m.holder = netip.Addr{}
		m.wait(now, 0, Reason{Cause: HolderLeft, Peer: src})
	case a.Priority >= m.priority:
		// An equal one stays whatever its address: nobody preempts an equal.
		m.preemptFrom = time.Time{}
		m.follow(now, src, a)
	case m.cfg.NoPreempt && m.priority != PriorityOwner: // an owner always preempts (RFC 9568, Section 6.1)
		m.follow(now, src, a)
	default:
		if m.preemptFrom.IsZero() {
			m.preemptFrom = now
		}
		if now.Before(m.preemptFrom.Add(m.cfg.PreemptDelay)) {
			m.follow(now, src, a)
		} else {
			m.holder = src // ignored otherwise: the down timer runs on
		}
	}
}

// follow accepts src as the active router and starts to wait anew.
func (m *Machine) follow(now time.Time, src netip.Addr, a Advert) {
	m.holder = src
	m.interval = a.Interval // RFC 9568, Section 6.4.2: adopt what the active one sends
	m.wait(now, 3, Reason{Cause: HeardNobody, Peer: src})
}

// wait sets the down timer: a number of intervals, and our skew and rank.
func (m *Machine) wait(now time.Time, intervals int, why Reason) {
	m.downWhy = why
	m.slept, m.doubted = false, false
	m.downAt = now.Add(time.Duration(intervals)*m.interval +
		skew(m.cfg.Version, m.priority, m.interval) + m.rankDelay())
}

func (m *Machine) heardAsActive(now time.Time, src netip.Addr, a Advert) {
	switch {
	case a.Priority == 0:
		m.claim(now)
	case a.Priority > m.priority || a.Priority == m.priority && src.Compare(m.cfg.Source) > 0:
		m.stats.Yielded++
		// Nothing of ours may be announced from here on. The last advert makes the
		// winner announce again, in case ours came after its own.
		m.emit(Action{Kind: LetGo})
		m.send(now, m.priority)
		m.move(now, Backup, Reason{Cause: BetterPeer, Peer: src})
		m.follow(now, src, a)
	case !now.Before(m.reactAt):
		// Tell the rival at once (RFC 9568, Section 6.4.3), and the neighbours,
		// which may have heard the rival's announcement after ours. At most once in
		// an interval, or a rival that is deaf would make us flood the network.
		m.stats.Reasserted++
		m.reactAt = now.Add(m.cfg.Interval)
		m.claim(now)
		m.emit(Action{Kind: Announce, Reason: Reason{Cause: RivalHeard, Peer: src}})
	}
}

// Advance acts on everything that is due at now.
func (m *Machine) Advance(now time.Time) {
	if m.state == Initialize {
		return
	}
	m.touch(now)
	switch {
	case m.state == Active && !now.Before(m.advertAt):
		m.claim(now)
	case m.state == Backup && !now.Before(m.downAt):
		if (m.slept || now.Sub(m.downAt) > m.interval) && !m.doubted {
			// We were not there to hear anybody. Listen once more before we believe
			// our own silence, and only once: who is always late must not wait for ever.
			m.stats.Starved++
			m.probation(now)
			m.doubted = true
			return
		}
		m.becomeActive(now, m.downWhy)
	}
}

// touch brings the machine up to date with the passing of time, before an input
// is looked at. An arrival time may lie before the last call; time does not run
// backwards for that, or a track report that has ended would be true again.
func (m *Machine) touch(now time.Time) {
	if now.Before(m.seen) {
		now = m.seen
	}
	// We asked to be called within an interval.
	if now.Sub(m.seen) > 2*m.cfg.Interval {
		m.slept = true
	}
	m.seen = now
	// First what our own absence means: a router that others have replaced must
	// not say goodbye because its checks stood still as well.
	m.checkStarved(now)
	m.evaluate(now)
}

// checkStarved lets go of addresses that others must have taken over by now,
// because our last advert is older than they wait.
func (m *Machine) checkStarved(now time.Time) {
	if m.state != Active || now.Before(m.claimEnds()) {
		return
	}
	m.stats.Starved++
	m.emit(Action{Kind: LetGo})
	m.move(now, Backup, Reason{Cause: Starved})
	m.holder = netip.Addr{}
	// That now may be a packet's time of arrival, long past: the silence since then
	// is still to be doubted.
	m.probation(now)
}

// probation waits for whoever may be active to be heard once.
func (m *Machine) probation(now time.Time) {
	m.wait(now, 1, Reason{Cause: HeardNobody, Peer: m.holder})
}

// claimEnds is when an equal that has not heard us for so long takes over.
func (m *Machine) claimEnds() time.Time {
	return m.sentAt.Add(downInterval(m.cfg.Version, m.priority, m.cfg.Interval))
}

// Deadline returns when Advance wants to be called next; the zero time means
// never. It is never later than an interval after the last call, so that the
// status is renewed.
func (m *Machine) Deadline() time.Time {
	var at time.Time
	switch m.state {
	case Initialize:
		return time.Time{}
	case Active:
		at = m.advertAt
	case Backup:
		at = m.downAt
	}
	if beat := m.seen.Add(m.cfg.Interval); at.IsZero() || beat.Before(at) {
		at = beat
	}
	if !m.trackExpiry.IsZero() && m.trackExpiry.Before(at) {
		at = m.trackExpiry
	}
	return at
}

// AppendActions appends what is to be done to dst, in order, and forgets it.
func (m *Machine) AppendActions(dst []Action) []Action {
	dst = append(dst, m.actions...)
	m.actions = m.actions[:0]
	return dst
}

// Advert returns the advert that a [SendAdvert] action of this priority stands
// for. Its Addrs belong to the machine.
func (m *Machine) Advert(priority uint8) Advert {
	a := Advert{
		Version: m.cfg.Version, VRID: m.cfg.VRID, Priority: priority, Interval: m.cfg.Interval,
		Checksum: m.cfg.Checksum, Addrs: m.cfg.Addrs,
	}
	if a.Version == 2 {
		a.Checksum = ChecksumPlain
		a.AuthType, a.Auth = m.cfg.auth()
	}
	return a
}

// Status returns the state as of now. An active router's claim ends when its
// last advert is older than the others wait; a backup's view when its down timer
// ends; Fault and Initialize, after three intervals without a call.
func (m *Machine) Status(now time.Time) Status {
	s := Status{
		State: m.state, Since: m.since, Reason: m.reason, Priority: m.priority, Holder: m.holder,
		ValidUntil: m.seen.Add(3 * m.cfg.Interval),
	}
	switch m.state {
	case Active:
		s.ValidUntil, s.Holder = m.claimEnds(), m.cfg.Source
	case Backup:
		s.ValidUntil = m.downAt
	}
	return s.At(now)
}

// Stats returns the counters.
func (m *Machine) Stats() Stats { return m.stats }

// enter starts to take part: as the owner at once, else as a backup that waits
// for a whole down interval.
func (m *Machine) enter(now time.Time, why Reason) {
	m.preemptFrom = time.Time{}
	m.interval = m.cfg.Interval
	if m.priority == PriorityOwner {
		m.becomeActive(now, Reason{Cause: OwnsAddresses})
		return
	}
	m.wait(now, 3, Reason{Cause: HeardNobody})
	m.move(now, Backup, why)
}

// becomeActive claims the addresses: the advert first, so that rivals hear of
// it before the neighbours do.
func (m *Machine) becomeActive(now time.Time, why Reason) {
	m.stats.BecameActive++
	m.interval = m.cfg.Interval
	m.preemptFrom = time.Time{}
	m.send(now, m.priority)
	m.move(now, Active, why)
	m.hold(now)
	m.emit(Action{Kind: Announce, Reason: why})
}

// fail goes to Fault.
func (m *Machine) fail(now time.Time, why Reason) {
	m.leave(now)
	m.move(now, Fault, why)
}

// leave gives the addresses up, if we have them, and listens to nobody any more.
func (m *Machine) leave(now time.Time) {
	m.holder = netip.Addr{}
	if m.state != Active {
		return
	}
	m.send(now, 0)
	m.emit(Action{Kind: LetGo})
}

// claim sends an advert and renews the addresses with it. Reactions renew as well:
// each puts off the next advert that is due, so that a peer that provokes them
// often enough would otherwise let the addresses end.
func (m *Machine) claim(now time.Time) {
	m.send(now, m.priority)
	m.hold(now)
}

// hold renews the addresses for their lifetime.
func (m *Machine) hold(now time.Time) {
	m.emit(Action{Kind: Hold, Until: now.Add(m.cfg.Lifetime)})
}

func (m *Machine) send(now time.Time, priority uint8) {
	m.stats.Sent++
	m.sentAt, m.advertAt = now, now.Add(m.cfg.Interval)
	m.emit(Action{Kind: SendAdvert, Priority: priority})
}

func (m *Machine) move(now time.Time, to State, why Reason) {
	m.emit(Action{Kind: Changed, From: m.state, To: to, Reason: why})
	m.state, m.since, m.reason = to, now, why
}

func (m *Machine) emit(a Action) { m.actions = append(m.actions, a) }
