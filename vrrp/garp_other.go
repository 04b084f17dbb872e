//go:build !linux

package vrrp

// announcerLink stands for a socket that cannot be had here.
type announcerLink struct {
	mac [6]byte
}

func openAnnouncerLink(string, *announcerLink) (*announcerLink, error) {
	return nil, errAddrUnsupported
}

func (l *announcerLink) send(GratuitousARP) error { return errAddrUnsupported }

func (l *announcerLink) close() *announcerLink { return nil }
