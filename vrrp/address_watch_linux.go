package vrrp

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// watch reports changes that concern the prefixes or the interface, until ctx
// ends. It calls back from the calling goroutine and may report too much: an
// address of ours that was removed by ourselves, or from another interface.
func (a *Addresses) watch(ctx context.Context, prefixes []netip.Prefix, report func(addrChange)) error {
	s, err := addrSocket(unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return &addrError{"watch addresses", nil, a.cfg.Interface, err}
	}
	stop := context.AfterFunc(ctx, s.Close)
	defer func() {
		if stop() {
			s.Close()
		}
	}()
	w := addrWatcher{iface: a.cfg.Interface, prefixes: prefixes}
	if index, err := addrLinkIndex(w.iface); err == nil {
		w.begin(index)
	}
	for {
		msgs, _, err := s.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			// The kernel dropped events while we were slow. Suspect the worst.
			report(addrMaybeLost)
			continue
		case err != nil:
			return &addrError{"watch addresses", nil, a.cfg.Interface, err}
		}
		for _, m := range msgs {
			if c := w.judge(m); c != 0 {
				report(c)
			}
		}
	}
}

// addrWatcher turns routing messages into changes.
type addrWatcher struct {
	iface    string
	prefixes []netip.Prefix
	link     addrLinkState // as last heard of
}

// addrLinkState is what a link message says about the interface.
type addrLinkState struct {
	name    string
	index   int32
	running bool // administratively up, and with a carrier
	// changes counts how often the carrier came or went. The kernel waits
	// before it reports a change of the carrier, and so can report nothing but
	// the same state once more when a cable was out for half a second.
	changes uint32
}

// begin notes the state to compare with.
func (w *addrWatcher) begin(index int) {
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	req.AddData(msg)
	answers, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err == nil && len(answers) == 1 {
		w.link, _ = parseLinkMessage(answers[0])
	}
}

// judge returns 0 for a message that does not concern us.
func (w *addrWatcher) judge(m syscall.NetlinkMessage) addrChange {
	switch m.Header.Type {
	case unix.RTM_DELADDR:
		e, _, err := parseAddrMessage(m.Data)
		if err == nil && slices.Contains(w.prefixes, e.prefix) {
			return addrMaybeLost
		}
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		link, ok := parseLinkMessage(m.Data)
		if !ok || link.name != w.iface {
			return 0
		}
		if m.Header.Type == unix.RTM_DELLINK {
			link.running = false
		}
		was := w.link
		w.link = link
		switch {
		case link.running && (!was.running || was.index != link.index || was.changes != link.changes):
			return addrLinkUp
		case was.running && !link.running:
			return addrMaybeLost
		}
	}
	return 0
}

// parseLinkMessage reads an RTM_NEWLINK or RTM_DELLINK message.
func parseLinkMessage(b []byte) (l addrLinkState, ok bool) {
	if len(b) < unix.SizeofIfInfomsg {
		return l, false
	}
	msg := nl.DeserializeIfInfomsg(b)
	if msg.Family != unix.AF_UNSPEC {
		return l, false // a bridge tells about a port, with other attributes
	}
	l.index, l.running = msg.Index, msg.Flags&unix.IFF_RUNNING != 0
	attrs, err := routeAttributes(b[unix.SizeofIfInfomsg:])
	if err != nil {
		return l, false
	}
	for _, at := range attrs {
		switch {
		case at.Attr.Type == unix.IFLA_IFNAME:
			l.name = unix.ByteSliceToString(at.Value)
		case at.Attr.Type == unix.IFLA_CARRIER_CHANGES && len(at.Value) >= 4:
			l.changes = nl.NativeEndian().Uint32(at.Value)
		}
	}
	return l, l.name != ""
}
