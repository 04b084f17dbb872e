package vrrp

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
)

// AnnouncerConfig configures [NewAnnouncer].
type AnnouncerConfig struct {
	// Interface is the name of the Ethernet interface to send on, 1 to 15
	// bytes. It need not exist yet.
	Interface string

	// Reply adds the reply form after each request form. The request form
	// alone is what keepalived sends and what Linux neighbours always accept;
	// some other stacks listen to replies only.
	Reply bool
}

// Announcer sends gratuitous ARP frames from the interface's own hardware
// address. See [GratuitousARP] for the forms. Unsolicited neighbour
// advertisements, the IPv6 counterpart, are not implemented.
//
// It is safe for concurrent use. It needs CAP_NET_RAW, and an interface with
// at least one IPv4 address, which the announced one is. Only Linux is
// supported; elsewhere Open fails with an error that matches
// [errors.ErrUnsupported].
type Announcer struct {
	cfg AnnouncerConfig

	mu   sync.Mutex
	link *announcerLink // nil: closed
}

// NewAnnouncer returns all faults of the configuration joined. It opens
// nothing.
func NewAnnouncer(c AnnouncerConfig) (*Announcer, error) {
	if err := validateInterfaceName(c.Interface); err != nil {
		return nil, err
	}
	return &Announcer{cfg: c}, nil
}

// Open makes ready to send: it looks up the interface's hardware address,
// which changes when the interface is made anew or a bond fails over, and
// opens a socket if there is none for it yet. Call it before each round of
// announcements, and Close once at the end.
func (a *Announcer) Open() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	link, err := openAnnouncerLink(a.cfg.Interface, a.link)
	a.link = link
	if err != nil {
		return &addrError{"announce", nil, a.cfg.Interface, err}
	}
	return nil
}

// Announce sends one frame for addr, or two with Reply, and returns when they
// are handed to the interface, after 50 ms at the latest. It opens the
// Announcer if that was not done yet.
func (a *Announcer) Announce(addr netip.Addr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !addr.Is4() {
		return fmt.Errorf("vrrp: announce %v: only IPv4 addresses can be announced: %w", addr, errors.ErrUnsupported)
	}
	if err := a.announce(addr); err != nil {
		// A socket that failed may belong to an interface that is gone.
		a.link = a.link.close()
		return &addrError{"announce", []netip.Prefix{netip.PrefixFrom(addr, 32)}, a.cfg.Interface, err}
	}
	return nil
}

func (a *Announcer) announce(addr netip.Addr) error {
	if a.link == nil {
		link, err := openAnnouncerLink(a.cfg.Interface, nil)
		if err != nil {
			return err
		}
		a.link = link
	}
	g := GratuitousARP{MAC: a.link.mac, Addr: addr}
	if err := a.link.send(g); err != nil || !a.cfg.Reply {
		return err
	}
	g.Reply = true
	return a.link.send(g)
}

// Close closes the socket. The Announcer may be used again.
func (a *Announcer) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.link = a.link.close()
	return nil
}
