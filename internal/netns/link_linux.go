package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Veth joins two namespaces by a virtual cable whose ends are up.
func Veth(a *NS, aName string, b *NS, bName string) error {
	err := a.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = aName
		return wrap("add veth "+aName, netlink.LinkAdd(&netlink.Veth{
			LinkAttrs:     attrs,
			PeerName:      bName,
			PeerNamespace: netlink.NsFd(b.file.Fd()),
		}))
	})
	if err != nil {
		return err
	}
	if err := a.SetUp(aName); err != nil {
		return err
	}
	return b.SetUp(bName)
}

// Bridge makes a bridge that is up, floods multicast and forwards at once on
// every port.
func (n *NS) Bridge(name string) error {
	return n.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		snooping := false
		err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping})
		if err != nil {
			return wrap("add bridge "+name, err)
		}
		return setUp(name)
	})
}

// Enslave makes a link a port of a bridge in the same namespace.
func (n *NS) Enslave(link, bridge string) error {
	return n.withLink(link, func(l netlink.Link) error {
		br, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(l, br)
	})
}

// Release takes a port out of its bridge; its carrier stays, as behind a switch
// that no longer forwards.
func (n *NS) Release(link string) error { return n.withLink(link, netlink.LinkSetNoMaster) }

// SetUp sets a link administratively up.
func (n *NS) SetUp(link string) error { return n.withLink(link, netlink.LinkSetUp) }

// SetDown sets a link administratively down: the other end of a veth pair loses
// its carrier.
func (n *NS) SetDown(link string) error { return n.withLink(link, netlink.LinkSetDown) }

// Rename renames a link, taking it down for the moment.
func (n *NS) Rename(link, name string) error {
	return n.withLink(link, func(l netlink.Link) error {
		if err := netlink.LinkSetDown(l); err != nil {
			return err
		}
		if err := netlink.LinkSetName(l, name); err != nil {
			return err
		}
		return netlink.LinkSetUp(l)
	})
}

// Delete removes a link.
func (n *NS) Delete(link string) error { return n.withLink(link, netlink.LinkDel) }

// AddAddr adds an address with its prefix to a link, usable at once.
func (n *NS) AddAddr(link string, p netip.Prefix) error {
	return n.withLink(link, func(l netlink.Link) error {
		return netlink.AddrAdd(l, addr(p))
	})
}

// DelAddr removes an address from a link.
func (n *NS) DelAddr(link string, p netip.Prefix) error {
	return n.withLink(link, func(l netlink.Link) error {
		return netlink.AddrDel(l, addr(p))
	})
}

// Addrs lists the addresses of a link, in the kernel's order.
func (n *NS) Addrs(link string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	err := n.withLink(link, func(l netlink.Link) error {
		list, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		for _, a := range list {
			ip, _ := netip.AddrFromSlice(a.IP)
			ones, _ := a.Mask.Size()
			out = append(out, netip.PrefixFrom(ip.Unmap(), ones))
		}
		return err
	})
	return out, err
}

// FlushNeighbours makes a link forget whom it has at the other end: the next
// IPv4 packet asks by ARP again.
func (n *NS) FlushNeighbours(link string) error {
	return n.withLink(link, func(l netlink.Link) error {
		list, err := netlink.NeighList(l.Attrs().Index, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		for _, entry := range list {
			// Entries that need no ARP, such as broadcast, cannot be forgotten.
			if entry.State&unix.NUD_NOARP != 0 {
				continue
			}
			if err := netlink.NeighDel(&entry); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
		return nil
	})
}

// MAC returns the hardware address of a link.
func (n *NS) MAC(link string) (net.HardwareAddr, error) {
	var mac net.HardwareAddr
	err := n.withLink(link, func(l netlink.Link) error {
		mac = l.Attrs().HardwareAddr
		return nil
	})
	return mac, err
}

func (n *NS) withLink(name string, f func(netlink.Link) error) error {
	return n.Do(func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return wrap("link "+name, err)
		}
		return wrap("link "+name, f(l))
	})
}

func setUp(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return wrap("link "+name, err)
	}
	return wrap("set "+name+" up", netlink.LinkSetUp(l))
}

func addr(p netip.Prefix) *netlink.Addr {
	a := &netlink.Addr{IPNet: &net.IPNet{
		IP:   p.Addr().AsSlice(),
		Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen()),
	}}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return a
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("netns: %s: %w", what, err)
}
