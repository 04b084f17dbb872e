package vrrp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// DefaultProtocol is the ownership tag that [Addresses] puts on every address,
// the IFA_PROTO attribute of rtnetlink. The kernel uses 1 to 3 itself; any
// other number names a program and is compared only by programs.
const DefaultProtocol uint8 = 76

// Bounds of the lifetime of an address in the kernel.
const (
	minAddrLifetime = 1 * time.Second
	maxAddrLifetime = 24 * time.Hour
)

// Errors of [Addresses], [Announcer] and [Holder] that a caller may want to
// tell apart. A missing privilege matches [io/fs.ErrPermission].
var (
	// ErrNoInterface says that the interface does not exist.
	ErrNoInterface = errors.New("no such interface")

	// ErrForeignAddress says that the address stands on the interface already
	// and was put there by somebody else.
	ErrForeignAddress = errors.New("the address is there already and is not ours")
)

// AddressesConfig configures [NewAddresses].
type AddressesConfig struct {
	// Interface is the name of the interface that carries the addresses,
	// 1 to 15 bytes. It need not exist yet.
	Interface string

	// Label is the IFA_LABEL of IPv4 addresses, at most 15 bytes; empty means
	// the interface's name. IPv6 addresses have no label.
	Label string

	// Protocol is the ownership tag (IFA_PROTO), by which a later process
	// finds what this one left behind. 0 means [DefaultProtocol]; 1 to 3
	// belong to the kernel and are refused. Give each program of a host a
	// number of its own, and all interfaces of one program the same.
	Protocol uint8

	// Adopt makes Add take over an address that is there already and not
	// ours, such as one that another program left when it was killed. It then
	// gets our tag and lifetime, and goes when we remove it. Without it Add
	// refuses, because a virtual address that equals the host's own by mistake
	// would cost the host its own address. The same address with another
	// prefix length is always refused: both would stand side by side, and the
	// other would stay when ours goes.
	Adopt bool
}

// validate returns the configuration with its defaults, or all its faults.
func (c AddressesConfig) validate() (AddressesConfig, error) {
	var faults []error
	if err := validateInterfaceName(c.Interface); err != nil {
		faults = append(faults, err)
	}
	if len(c.Label) > 15 {
		faults = append(faults, &ConfigError{"Label", fmt.Errorf("label %q has %d bytes: use at most 15", c.Label, len(c.Label))})
	}
	switch c.Protocol {
	case 0:
		c.Protocol = DefaultProtocol
	case 1, 2, 3:
		faults = append(faults, &ConfigError{"Protocol", fmt.Errorf("address protocol %d belongs to the kernel: use 4 to 255", c.Protocol)})
	}
	return c, errors.Join(faults...)
}

// validateInterfaceName checks what the kernel would refuse in any case.
func validateInterfaceName(name string) error {
	switch {
	case name == "":
		return &ConfigError{"Interface", errors.New("interface is empty: name the interface that carries the address")}
	case len(name) > 15:
		return &ConfigError{"Interface", fmt.Errorf("interface %q has %d bytes: an interface name has at most 15", name, len(name))}
	case strings.ContainsAny(name, "/ \t\n\x00"):
		return &ConfigError{"Interface", fmt.Errorf("interface %q: a name has neither space nor slash", name)}
	}
	return nil
}

// validatePrefixes checks that each prefix is an address that a host can hold.
func validatePrefixes(prefixes []netip.Prefix) error {
	if len(prefixes) == 0 {
		return &ConfigError{"Prefixes", errors.New("no address: name at least one, such as 192.0.2.1/24")}
	}
	var faults []error
	seen := make(map[netip.Addr]bool, len(prefixes))
	for _, p := range prefixes {
		if why := badPrefix(p); why != "" {
			faults = append(faults, &ConfigError{"Prefixes", fmt.Errorf("address %v: %s", p, why)})
			continue
		}
		if seen[p.Addr()] {
			faults = append(faults, &ConfigError{"Prefixes", fmt.Errorf("address %v is named twice: remove one of the two", p.Addr())})
		}
		seen[p.Addr()] = true
	}
	return errors.Join(faults...)
}

// badPrefix tells why no host can hold p, or returns "".
func badPrefix(p netip.Prefix) string {
	a := p.Addr()
	switch {
	case !p.IsValid():
		return "not a prefix: write it as 192.0.2.1/24"
	case a.Is4In6():
		return "IPv4 inside IPv6: write it as IPv4"
	case a.IsUnspecified() || a.IsMulticast() || a.IsLoopback():
		return "unspecified, multicast and loopback addresses cannot move between hosts"
	case p.Bits() == 0:
		return "a prefix length of 0 would route everything to the interface"
	}
	if !a.Is4() || p.Bits() >= 31 {
		return ""
	}
	// RFC 3021: only /31 and /32 may use the first and the last address.
	host := uint32(1)<<(32-p.Bits()) - 1
	b := a.As4()
	v := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	switch v & host {
	case 0:
		return "the network's own address: use one inside it"
	case host:
		return "the network's broadcast address: use one inside it"
	}
	return ""
}

// Addresses puts addresses on one interface, for a while: the kernel removes
// each by itself when its lifetime was not renewed. So an address does not
// outlive a process that was killed or is stuck, which no cleanup code can
// promise.
//
// # Ownership
//
// Each address carries the tag Protocol. Sweep and Owned go by the tag, and so
// never touch what somebody else configured. Linux before 5.18 ignores and
// does not report the tag. There, recognised by no address of the namespace
// having one, an address counts as ours if the caller named exactly this
// prefix and it has a finite lifetime, which addresses configured by hand or
// by keepalived do not have.
//
// # Kernel behaviour to know
//
// Lifetimes are whole seconds. An IPv4 address whose network already has an
// address on the interface becomes a secondary; when the first address of the
// network goes, its secondaries go with it, unless the sysctl
// promote_secondaries is set. The [Holder] repairs that at once. IPv6
// addresses are added without duplicate address detection (a takeover cannot
// wait for it) and as deprecated, so that the host does not choose them as
// source for connections of its own.
//
// An Addresses value keeps nothing open. It is safe for concurrent use. Adding
// and removing needs CAP_NET_ADMIN in the user namespace that owns the network
// namespace; listing needs nothing. Only Linux is supported; elsewhere every
// method fails with an error that matches [errors.ErrUnsupported].
type Addresses struct {
	cfg AddressesConfig
}

// NewAddresses returns all faults of the configuration joined. It looks at no
// interface.
func NewAddresses(c AddressesConfig) (*Addresses, error) {
	c, err := c.validate()
	if err != nil {
		return nil, err
	}
	return &Addresses{cfg: c}, nil
}

// Add adds the addresses with a lifetime of whole seconds, 1 s to 24 h, in one
// batch. Those of ours that are there already are renewed. An address that
// somebody else put on the interface fails the call with [ErrForeignAddress]
// before anything is changed; see Adopt. Any other fault can leave some of the
// addresses added: Add again, or Remove.
func (a *Addresses) Add(lifetime time.Duration, prefixes ...netip.Prefix) error {
	if err := validateAdd(lifetime, prefixes); err != nil {
		return err
	}
	if err := a.refuseForeign(prefixes); err != nil {
		return err
	}
	return a.install(prefixes, lifetime)
}

// Renew starts the lifetime of the addresses anew and adds those that are
// missing, without asking whose they are: it is for addresses that the caller
// added before.
func (a *Addresses) Renew(lifetime time.Duration, prefixes ...netip.Prefix) error {
	if err := validateAdd(lifetime, prefixes); err != nil {
		return err
	}
	return a.install(prefixes, lifetime)
}

// Remove removes the addresses. Those that are gone already, be it with their
// interface, are no fault.
func (a *Addresses) Remove(prefixes ...netip.Prefix) error {
	if err := validatePrefixes(prefixes); err != nil {
		return err
	}
	return a.remove(prefixes)
}

// Owned returns those of the named prefixes that are on the interface and
// ours. Without names it returns every address of the interface that carries
// the tag.
func (a *Addresses) Owned(prefixes ...netip.Prefix) ([]netip.Prefix, error) {
	entries, err := a.dump()
	if err != nil {
		return nil, err
	}
	tags := tagsReported(entries)
	var owned []netip.Prefix
	for _, e := range entries {
		if e.onInterface && e.ours(a.cfg.Protocol, tags, prefixes) {
			owned = append(owned, e.prefix)
		}
	}
	return owned, nil
}

// Sweep removes what Owned returns for the same arguments, and tells what that
// was. Call it at start: an earlier process that was killed has left its
// addresses until their lifetime ends, and meanwhile this host answers for
// them. Without names it removes every tagged address of the interface, so
// call that form only before any [Holder] with the same tag runs there.
func (a *Addresses) Sweep(prefixes ...netip.Prefix) ([]netip.Prefix, error) {
	owned, err := a.Owned(prefixes...)
	if err != nil || len(owned) == 0 {
		return nil, err
	}
	return owned, a.remove(owned)
}

// refuseForeign fails if one of the addresses is there and not ours, nor may
// be adopted.
func (a *Addresses) refuseForeign(prefixes []netip.Prefix) error {
	entries, err := a.dump()
	if err != nil {
		return err
	}
	tags := tagsReported(entries)
	var foreign []netip.Prefix
	for _, e := range entries {
		same := slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Addr() == e.prefix.Addr() })
		ours := e.ours(a.cfg.Protocol, tags, []netip.Prefix{e.prefix})
		adopted := a.cfg.Adopt && slices.Contains(prefixes, e.prefix)
		if e.onInterface && same && !ours && !adopted {
			foreign = append(foreign, e.prefix)
		}
	}
	if len(foreign) == 0 {
		return nil
	}
	return &addrError{"hold", foreign, a.cfg.Interface, ErrForeignAddress}
}

// missing returns those of the prefixes that are not on the interface.
func (a *Addresses) missing(prefixes []netip.Prefix) ([]netip.Prefix, error) {
	entries, err := a.dump()
	if err != nil {
		return nil, err
	}
	var missing []netip.Prefix
	for _, p := range prefixes {
		there := slices.ContainsFunc(entries, func(e addrEntry) bool { return e.onInterface && e.prefix == p })
		if !there {
			missing = append(missing, p)
		}
	}
	return missing, nil
}

// validateAdd checks the arguments of Add and Renew.
func validateAdd(lifetime time.Duration, prefixes []netip.Prefix) error {
	err := validatePrefixes(prefixes)
	if lifetime < minAddrLifetime || lifetime > maxAddrLifetime || lifetime%time.Second != 0 {
		err = errors.Join(err, fmt.Errorf("vrrp: address lifetime %v: use whole seconds from %v to %v", lifetime, minAddrLifetime, maxAddrLifetime))
	}
	return err
}

// addrEntry is one address as the kernel reports it.
type addrEntry struct {
	prefix      netip.Prefix
	onInterface bool  // it stands on the interface that was asked about
	protocol    uint8 // IFA_PROTO; 0: none
	permanent   bool  // it has no lifetime
}

// ours decides ownership. tags tells whether this kernel reports tags at all.
func (e addrEntry) ours(protocol uint8, tags bool, named []netip.Prefix) bool {
	isNamed := slices.Contains(named, e.prefix)
	if tags {
		return e.protocol == protocol && (isNamed || len(named) == 0)
	}
	return isNamed && !e.permanent
}

// tagsReported tells from a list of addresses whether the kernel knows
// IFA_PROTO. Where it does, the loopback addresses have one, and so has each
// address of ours.
func tagsReported(entries []addrEntry) bool {
	return slices.ContainsFunc(entries, func(e addrEntry) bool { return e.protocol != 0 })
}

// opReceive names what a raw socket is opened for.
const opReceive = "receive adverts"

// connError is a fault of a raw socket.
func connError(ifname string, err error) error { return &addrError{opReceive, nil, ifname, err} }

// addrError is a fault of the environment, told with what was tried and where.
type addrError struct {
	op       string
	prefixes []netip.Prefix
	iface    string
	err      error
}

func (e *addrError) Error() string {
	names := make([]string, len(e.prefixes))
	for i, p := range e.prefixes {
		names[i] = p.String()
	}
	what := e.op
	if len(names) > 0 {
		what += " " + strings.Join(names, ", ")
	}
	return fmt.Sprintf("vrrp: %s on %s: %s", what, e.iface, e.remedy())
}

func (e *addrError) Unwrap() error { return e.err }

// remedy is the cause in words, with what to do about it where that is known.
func (e *addrError) remedy() string {
	switch {
	case isPermission(e.err) && (e.op == "announce" || e.op == opReceive):
		return "needs CAP_NET_RAW: run as root or inside a user namespace"
	case isPermission(e.err):
		return "needs CAP_NET_ADMIN: run as root or inside a user namespace"
	case errors.Is(e.err, ErrForeignAddress):
		return e.err.Error() + ": remove it there, or allow to adopt it"
	case errors.Is(e.err, syscall.EACCES) && slices.ContainsFunc(e.prefixes, func(p netip.Prefix) bool { return p.Addr().Is6() }):
		return "IPv6 is disabled there: set the sysctl net.ipv6.conf." + e.iface + ".disable_ipv6 to 0"
	}
	return e.err.Error()
}
