package vrrp

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// fakeHost is a kernel and a network. It removes addresses whose lifetime
// ended, and can be made to freeze whoever calls it.
type fakeHost struct {
	mu        sync.Mutex
	ends      map[netip.Prefix]time.Time
	fault     error
	stuck     chan struct{} // non-nil: calls block until it is closed
	report    func(addrChange)
	announced []fakeAnnouncement
	closed    int
}

type fakeAnnouncement struct {
	at   time.Time
	addr netip.Addr
}

func newFakeHost() *fakeHost { return &fakeHost{ends: make(map[netip.Prefix]time.Time)} }

func (f *fakeHost) enter() error {
	f.mu.Lock()
	stuck, fault := f.stuck, f.fault
	f.mu.Unlock()
	if stuck != nil {
		<-stuck
	}
	return fault
}

func (f *fakeHost) check([]netip.Prefix) error { return f.enter() }

func (f *fakeHost) Add(lifetime time.Duration, prefixes ...netip.Prefix) error {
	if err := f.enter(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range prefixes {
		f.ends[p] = time.Now().Add(lifetime)
	}
	return nil
}

func (f *fakeHost) Renew(lifetime time.Duration, prefixes ...netip.Prefix) error {
	return f.Add(lifetime, prefixes...)
}

func (f *fakeHost) Remove(prefixes ...netip.Prefix) error {
	if err := f.enter(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range prefixes {
		delete(f.ends, p)
	}
	return nil
}

func (f *fakeHost) Owned(prefixes ...netip.Prefix) ([]netip.Prefix, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	return f.present(), nil
}

func (f *fakeHost) missing(prefixes []netip.Prefix) ([]netip.Prefix, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	present := f.present()
	return slices.DeleteFunc(slices.Clone(prefixes), func(p netip.Prefix) bool { return slices.Contains(present, p) }), nil
}

func (f *fakeHost) watch(ctx context.Context, _ []netip.Prefix, report func(addrChange)) error {
	f.mu.Lock()
	f.report = report
	f.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (f *fakeHost) Open() error { return f.enter() }

func (f *fakeHost) Announce(addr netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.announced = append(f.announced, fakeAnnouncement{time.Now(), addr})
	return nil
}

func (f *fakeHost) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed++
	return nil
}

// present lists the addresses that the kernel still has.
func (f *fakeHost) present() (ps []netip.Prefix) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range holderPrefixes {
		if time.Now().Before(f.ends[p]) {
			ps = append(ps, p)
		}
	}
	return ps
}

// lastEnd is when the kernel removes the last address.
func (f *fakeHost) lastEnd() (last time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.ends {
		if e.After(last) {
			last = e
		}
	}
	return last
}

func (f *fakeHost) frames() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.announced)
}

// deleteByOther is somebody else's `ip address del`.
func (f *fakeHost) deleteByOther(p netip.Prefix) {
	f.mu.Lock()
	delete(f.ends, p)
	report := f.report
	f.mu.Unlock()
	report(addrMaybeLost)
}

// freeze makes every later call block; thaw ends it.
func (f *fakeHost) freeze() (thaw func()) {
	ch := make(chan struct{})
	f.mu.Lock()
	f.stuck = ch
	f.mu.Unlock()
	return func() {
		f.mu.Lock()
		f.stuck = nil
		f.mu.Unlock()
		close(ch)
	}
}
