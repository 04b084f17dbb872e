//go:build !linux

package vrrp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"
)

// errAddrUnsupported matches errors.ErrUnsupported.
var errAddrUnsupported = fmt.Errorf("not implemented on %s/%s: %w", runtime.GOOS, runtime.GOARCH, errors.ErrUnsupported)

func (a *Addresses) install(prefixes []netip.Prefix, _ time.Duration) error {
	return &addrError{"hold", prefixes, a.cfg.Interface, errAddrUnsupported}
}

func (a *Addresses) remove(prefixes []netip.Prefix) error {
	return &addrError{"release", prefixes, a.cfg.Interface, errAddrUnsupported}
}

func (a *Addresses) dump() ([]addrEntry, error) {
	return nil, &addrError{"list addresses", nil, a.cfg.Interface, errAddrUnsupported}
}

func (a *Addresses) check(prefixes []netip.Prefix) error {
	return &addrError{"hold", prefixes, a.cfg.Interface, errAddrUnsupported}
}

func (a *Addresses) watch(context.Context, []netip.Prefix, func(addrChange)) error {
	return &addrError{"watch addresses", nil, a.cfg.Interface, errAddrUnsupported}
}
