package vrrp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ifaProto is IFA_PROTO of linux/if_addr.h, the owner of an address, which
// neither x/sys nor the netlink package has. Linux 5.18 and later.
const ifaProto = 11

// addrBatchSize bounds the messages of one sendmsg call, and so the answers
// that wait in the socket's buffer.
const addrBatchSize = 64

// addrTimeout bounds one exchange with the kernel. It answers while it handles
// the request, so this only guards against a broken one.
const addrTimeout = 2 * time.Second

// install adds or renews all prefixes in one batch.
func (a *Addresses) install(prefixes []netip.Prefix, lifetime time.Duration) error {
	index, err := addrLinkIndex(a.cfg.Interface)
	if err != nil {
		return &addrError{"hold", prefixes, a.cfg.Interface, err}
	}
	seconds := uint32(lifetime / time.Second)
	reqs := make([]*nl.NetlinkRequest, len(prefixes))
	for i, p := range prefixes {
		reqs[i] = a.newAddrRequest(index, p, seconds)
	}
	return a.execute("hold", prefixes, reqs, nil)
}

// remove removes all prefixes in one batch.
func (a *Addresses) remove(prefixes []netip.Prefix) error {
	index, err := addrLinkIndex(a.cfg.Interface)
	if errors.Is(err, ErrNoInterface) {
		return nil // gone with its interface
	}
	if err != nil {
		return &addrError{"release", prefixes, a.cfg.Interface, err}
	}
	reqs := make([]*nl.NetlinkRequest, len(prefixes))
	for i, p := range prefixes {
		reqs[i] = addrRequest(unix.RTM_DELADDR, 0, index, p)
	}
	return a.execute("release", prefixes, reqs, func(err error) bool {
		return errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENODEV)
	})
}

// execute runs a batch and blames the prefixes whose message was refused.
// Refusals that are harmless are dropped.
func (a *Addresses) execute(op string, prefixes []netip.Prefix, reqs []*nl.NetlinkRequest, harmless func(error) bool) error {
	errs, err := addrExecute(reqs)
	if err != nil {
		return &addrError{op, prefixes, a.cfg.Interface, err}
	}
	var faults []error
	for i, err := range errs {
		if err == nil || harmless != nil && harmless(err) {
			continue
		}
		if isPermission(err) { // one line, not one for each address
			return &addrError{op, prefixes, a.cfg.Interface, err}
		}
		faults = append(faults, &addrError{op, prefixes[i : i+1], a.cfg.Interface, err})
	}
	return errors.Join(faults...)
}

// check tells why addresses could not be added right now: no such interface,
// or no privilege. The privilege is asked from the kernel, by removing an
// address that no host has: capability bits alone say nothing about the
// namespace.
func (a *Addresses) check(prefixes []netip.Prefix) error {
	index, err := addrLinkIndex(a.cfg.Interface)
	if err != nil {
		return &addrError{"hold", prefixes, a.cfg.Interface, err}
	}
	nobody := netip.PrefixFrom(netip.IPv4Unspecified(), 32)
	errs, err := addrExecute([]*nl.NetlinkRequest{addrRequest(unix.RTM_DELADDR, 0, index, nobody)})
	if err == nil && isPermission(errs[0]) {
		err = errs[0]
	}
	if err != nil {
		return &addrError{"hold", prefixes, a.cfg.Interface, err}
	}
	return nil
}

// newAddrRequest builds the message that adds p, or renews it: the kernel
// takes both for the same when NLM_F_REPLACE is set.
func (a *Addresses) newAddrRequest(index int, p netip.Prefix, seconds uint32) *nl.NetlinkRequest {
	req := addrRequest(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, index, p)
	req.AddData(nl.NewRtAttr(ifaProto, []byte{a.cfg.Protocol}))
	life := nl.IfaCacheInfo{IfaCacheinfo: unix.IfaCacheinfo{Valid: seconds, Prefered: seconds}}
	if p.Addr().Is6() {
		// Deprecated at once: usable by peers, never chosen as our own source.
		life.Prefered = 0
	} else if a.cfg.Label != "" {
		req.AddData(nl.NewRtAttr(unix.IFA_LABEL, nl.ZeroTerminated(a.cfg.Label)))
	}
	req.AddData(nl.NewRtAttr(unix.IFA_CACHEINFO, life.Serialize()))
	return req
}

// addrRequest builds what adding and removing have in common.
func addrRequest(typ, flags, index int, p netip.Prefix) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(typ, flags|unix.NLM_F_ACK)
	msg := nl.NewIfAddrmsg(unix.AF_INET)
	if p.Addr().Is6() {
		msg.Family = unix.AF_INET6
		msg.Flags = unix.IFA_F_NODAD
	}
	msg.Prefixlen = uint8(p.Bits())
	msg.Index = uint32(index)
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.IFA_LOCAL, p.Addr().AsSlice()))
	req.AddData(nl.NewRtAttr(unix.IFA_ADDRESS, p.Addr().AsSlice()))
	return req
}

// addrLinkIndex finds the interface. The index is looked up each time, because
// an interface that was made anew has another one.
func addrLinkIndex(name string) (int, error) {
	link, err := addrLink(name)
	if err != nil {
		return 0, err
	}
	return link.Attrs().Index, nil
}

func addrLink(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	var notFound netlink.LinkNotFoundError
	if errors.As(err, &notFound) || errors.Is(err, unix.ENODEV) {
		return nil, ErrNoInterface
	}
	return link, err
}

// addrSocket opens a routing socket of our own in the namespace of the calling
// thread.
func addrSocket(groups ...uint) (*nl.NetlinkSocket, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, groups...)
	if err != nil {
		return nil, os.NewSyscallError("netlink socket", err)
	}
	return s, nil
}

// addrExecute sends the requests, many in one system call, and returns the
// kernel's answer to each.
func addrExecute(reqs []*nl.NetlinkRequest) ([]error, error) {
	s, err := addrSocket()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	timeout := unix.NsecToTimeval(int64(addrTimeout))
	if err := s.SetReceiveTimeout(&timeout); err != nil {
		return nil, err
	}
	answers := make([]error, 0, len(reqs))
	for len(reqs) > 0 {
		n := min(len(reqs), addrBatchSize)
		errs, err := addrExecuteBatch(s, reqs[:n])
		if err != nil {
			return nil, err
		}
		answers, reqs = append(answers, errs...), reqs[n:]
	}
	return answers, nil
}

func addrExecuteBatch(s *nl.NetlinkSocket, reqs []*nl.NetlinkRequest) ([]error, error) {
	var batch []byte
	waiting := make(map[uint32]int, len(reqs))
	for i, r := range reqs {
		batch = append(batch, r.Serialize()...)
		for len(batch)%unix.NLMSG_ALIGNTO != 0 {
			batch = append(batch, 0)
		}
		waiting[r.Seq] = i
	}
	if err := addrSend(s, batch); err != nil {
		return nil, err
	}
	errs := make([]error, len(reqs))
	for len(waiting) > 0 {
		msgs, _, err := s.Receive()
		if err != nil {
			return nil, os.NewSyscallError("netlink receive", err)
		}
		for _, m := range msgs {
			i, ok := waiting[m.Header.Seq]
			if !ok || m.Header.Type != unix.NLMSG_ERROR {
				continue
			}
			delete(waiting, m.Header.Seq)
			errs[i] = addrAnswer(m)
		}
	}
	return errs, nil
}

// addrSend sends to the kernel. It handles the request before sendto returns.
func addrSend(s *nl.NetlinkSocket, b []byte) error {
	err := unix.Sendto(s.GetFd(), b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	return os.NewSyscallError("netlink send", err)
}

// addrAnswer reads the error number of an NLMSG_ERROR or NLMSG_DONE message; 0
// is the acknowledgement.
func addrAnswer(m syscall.NetlinkMessage) error {
	if len(m.Data) < 4 {
		return nil
	}
	if n := int32(nl.NativeEndian().Uint32(m.Data)); n != 0 {
		return syscall.Errno(-n)
	}
	return nil
}

// dump lists the addresses of the namespace, and tells which stand on our
// interface.
func (a *Addresses) dump() ([]addrEntry, error) {
	index, err := addrLinkIndex(a.cfg.Interface)
	if err == nil {
		var entries []addrEntry
		// Someone may change addresses while the kernel lists them; it says so
		// and the list is taken again.
		for range 4 {
			if entries, err = addrDump(index); !errors.Is(err, nl.ErrDumpInterrupted) {
				break
			}
		}
		if err == nil {
			return entries, nil
		}
	}
	return nil, &addrError{"list addresses", nil, a.cfg.Interface, err}
}

func addrDump(index int) ([]addrEntry, error) {
	s, err := addrSocket()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	timeout := unix.NsecToTimeval(int64(addrTimeout))
	if err := s.SetReceiveTimeout(&timeout); err != nil {
		return nil, err
	}
	req := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
	req.AddData(nl.NewIfAddrmsg(unix.AF_UNSPEC))
	if err := addrSend(s, req.Serialize()); err != nil {
		return nil, err
	}
	var entries []addrEntry
	interrupted := false
	for {
		msgs, _, err := s.Receive()
		if err != nil {
			return nil, os.NewSyscallError("netlink receive", err)
		}
		for _, m := range msgs {
			if m.Header.Seq != req.Seq {
				continue
			}
			interrupted = interrupted || m.Header.Flags&unix.NLM_F_DUMP_INTR != 0
			switch m.Header.Type {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				if err := addrAnswer(m); err != nil {
					return nil, err
				}
				if interrupted {
					return nil, nl.ErrDumpInterrupted
				}
				return entries, nil
			case unix.RTM_NEWADDR:
				e, i, err := parseAddrMessage(m.Data)
				if err != nil {
					return nil, err
				}
				e.onInterface = i == index
				entries = append(entries, e)
			}
		}
	}
}

// parseAddrMessage reads an RTM_NEWADDR or RTM_DELADDR message.
func parseAddrMessage(b []byte) (e addrEntry, index int, err error) {
	if len(b) < unix.SizeofIfAddrmsg {
		return e, 0, fmt.Errorf("netlink: address message of %d bytes", len(b))
	}
	msg := nl.DeserializeIfAddrmsg(b)
	attrs, err := routeAttributes(b[unix.SizeofIfAddrmsg:])
	if err != nil {
		return e, 0, fmt.Errorf("netlink: address message: %w", err)
	}
	var local, address netip.Addr
	e.permanent = true
	for _, at := range attrs {
		switch at.Attr.Type {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(at.Value)
		case unix.IFA_ADDRESS:
			address, _ = netip.AddrFromSlice(at.Value)
		case unix.IFA_CACHEINFO:
			if len(at.Value) >= unix.SizeofIfaCacheinfo {
				e.permanent = nl.DeserializeIfaCacheInfo(at.Value).Valid == ^uint32(0)
			}
		case ifaProto:
			if len(at.Value) > 0 {
				e.protocol = at.Value[0]
			}
		}
	}
	// IPv6 sends no IFA_LOCAL; with a point-to-point peer IFA_ADDRESS is the
	// peer.
	if !local.IsValid() {
		local = address
	}
	e.prefix = netip.PrefixFrom(local, int(msg.Prefixlen))
	return e, int(msg.Index), nil
}

// routeAttributes splits the attributes of a routing message. The parser of
// the netlink package panics when the last one lacks its padding. The kernel
// does not do that, but we do not stake the process on it.
func routeAttributes(b []byte) ([]syscall.NetlinkRouteAttr, error) {
	if n := len(b) % unix.RTA_ALIGNTO; n != 0 {
		b = append(slices.Clone(b), make([]byte, unix.RTA_ALIGNTO-n)...)
	}
	return nl.ParseRouteAttr(b)
}
