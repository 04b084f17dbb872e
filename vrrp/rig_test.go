package vrrp_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/internal/cksum"
	"github.com/lastbeat/lastbeat/vrrp"
)

// Three routers as in the tests below: ours and two others around it.
var (
	lowAddr  = netip.MustParseAddr("192.0.2.21")
	ownAddr  = netip.MustParseAddr("192.0.2.22")
	highAddr = netip.MustParseAddr("192.0.2.23")
	testVIP  = netip.MustParseAddr("192.0.2.201")
	t0       = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	forever  = t0.Add(1000 * time.Hour)
)

func baseConfig() vrrp.Config {
	return vrrp.Config{
		VRID: 206, Version: 2, Priority: 68, Addrs: []netip.Addr{testVIP},
		Source: ownAddr, Peers: []netip.Addr{lowAddr, highAddr}, Password: "secret",
	}
}

// rig drives one machine and writes down what it wants done.
type rig struct {
	*vrrp.Machine
	t   *testing.T
	cfg vrrp.Config
	now time.Time
}

func newRig(t *testing.T, edit func(*vrrp.Config)) *rig {
	t.Helper()
	cfg := baseConfig()
	if edit != nil {
		edit(&cfg)
	}
	m, err := vrrp.NewMachine(cfg)
	require.NoError(t, err)
	return &rig{Machine: m, t: t, cfg: cfg, now: t0}
}

// started is a rig whose machine has been started at t0.
func started(t *testing.T, edit func(*vrrp.Config)) *rig {
	r := newRig(t, edit)
	r.Start(r.now)
	return r
}

// active is a rig whose machine has become active on time, its actions drained.
func active(t *testing.T, edit func(*vrrp.Config)) *rig {
	r := started(t, edit)
	for r.state() == vrrp.Backup {
		r.next()
	}
	require.Equal(t, vrrp.Active, r.state())
	r.did()
	return r
}

func (r *rig) state() vrrp.State { return r.Status(r.now).State }

// after moves the clock without telling the machine.
func (r *rig) after(d time.Duration) *rig { r.now = r.now.Add(d); return r }

// next moves the clock to the machine's deadline and calls it.
func (r *rig) next() {
	r.t.Helper()
	at := r.Deadline()
	require.False(r.t, at.IsZero(), "the machine waits for nothing")
	if at.After(r.now) { // else it became due by the last input
		r.now = at
	}
	r.Advance(r.now)
	require.True(r.t, r.Deadline().After(r.now), "what is due is done: a loop would spin")
}

// until runs the machine on time up to d after t0.
func (r *rig) until(d time.Duration) {
	r.t.Helper()
	for at := r.Deadline(); !at.IsZero() && !at.After(t0.Add(d)); at = r.Deadline() {
		r.next()
	}
	r.now = t0.Add(d)
}

// hear hands in an advert of another router.
func (r *rig) hear(src netip.Addr, priority uint8, edits ...func(*vrrp.Advert)) vrrp.Discard {
	r.t.Helper()
	a := r.Machine.Advert(priority)
	for _, e := range edits {
		e(&a)
	}
	return r.Receive(r.now, wrapIPv4(r.t, a, src, ownAddr, 255))
}

// did drains the actions, in short words.
func (r *rig) did() string {
	var out []string
	for _, a := range r.AppendActions(nil) {
		switch a.Kind {
		case vrrp.SendAdvert:
			out = append(out, fmt.Sprintf("advert %d", a.Priority))
		case vrrp.Hold:
			out = append(out, fmt.Sprintf("hold %v", a.Until.Sub(r.now)))
		case vrrp.LetGo:
			out = append(out, "let go")
		case vrrp.Announce:
			out = append(out, "announce")
		case vrrp.Changed:
			out = append(out, fmt.Sprintf("%v>%v (%v)", a.From, a.To, a.Reason))
		}
	}
	return strings.Join(out, ", ")
}

// wrapIPv4 puts an advert into an IPv4 packet as the kernel hands it to a raw socket.
func wrapIPv4(t testing.TB, a vrrp.Advert, src, dst netip.Addr, ttl byte) []byte {
	t.Helper()
	msg, err := a.AppendBinary(make([]byte, 20), src, dst)
	require.NoError(t, err)
	hdr := msg[:20]
	hdr[0], hdr[1] = 0x45, 0xc0
	hdr[2], hdr[3] = byte(len(msg)>>8), byte(len(msg))
	hdr[8], hdr[9] = ttl, 112
	copy(hdr[12:], src.AsSlice())
	copy(hdr[16:], dst.AsSlice())
	sum := cksum.Finish(cksum.Sum(0, hdr))
	hdr[10], hdr[11] = byte(sum>>8), byte(sum)
	return msg
}
