package vrrp

import (
	"fmt"
	"net"
	"net/netip"
)

// linkState returns the index of an interface, and why a virtual router on it
// could neither be heard nor hear: it does not exist, is down, has no carrier,
// or lacks our source address.
func linkState(ifname string, source netip.Addr) (index int, err error) {
	ifi, err := net.InterfaceByName(ifname)
	if err != nil {
		return 0, ErrNoInterface
	}
	switch {
	case ifi.Flags&net.FlagUp == 0:
		return ifi.Index, fmt.Errorf("vrrp: interface %s is down", ifname)
	case ifi.Flags&net.FlagRunning == 0:
		return ifi.Index, fmt.Errorf("vrrp: interface %s has no carrier", ifname)
	}
	addrs, err := ifi.Addrs()
	if err != nil {
		return ifi.Index, fmt.Errorf("vrrp: addresses of interface %s: %w", ifname, err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr() == source {
			return ifi.Index, nil
		}
	}
	return ifi.Index, fmt.Errorf("vrrp: interface %s does not have the source address %v", ifname, source)
}
