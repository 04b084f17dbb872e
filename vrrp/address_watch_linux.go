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
	if link, err := addrLink(w.iface); err == nil {
		w.running = link.Attrs().RawFlags&unix.IFF_RUNNING != 0
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
	running  bool // the interface was able to send when last heard of
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
		if len(m.Data) < unix.SizeofIfInfomsg || addrLinkName(m.Data) != w.iface {
			return 0
		}
		was := w.running
		w.running = m.Header.Type == unix.RTM_NEWLINK && nl.DeserializeIfInfomsg(m.Data).Flags&unix.IFF_RUNNING != 0
		if w.running && !was {
			return addrLinkUp
		}
		if was && !w.running {
			return addrMaybeLost
		}
	}
	return 0
}

// addrLinkName returns the IFLA_IFNAME of a link message, or "".
func addrLinkName(b []byte) string {
	attrs, err := nl.ParseRouteAttr(b[unix.SizeofIfInfomsg:])
	if err != nil {
		return ""
	}
	for _, at := range attrs {
		if at.Attr.Type == unix.IFLA_IFNAME {
			return unix.ByteSliceToString(at.Value)
		}
	}
	return ""
}
