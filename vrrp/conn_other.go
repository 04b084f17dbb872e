//go:build !linux

package vrrp

import (
	"errors"
	"net/netip"
)

func dialRaw(ifname string, _ netip.Addr, _ bool) (transport, error) {
	return nil, connError(ifname, errors.ErrUnsupported)
}
