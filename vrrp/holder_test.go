package vrrp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

var holderPrefixes = []netip.Prefix{
	netip.MustParsePrefix("192.0.2.1/24"),
	netip.MustParsePrefix("192.0.2.2/24"),
	netip.MustParsePrefix("2001:db8::1/64"),
}

// holderTest is a Holder that runs in a bubble.
type holderTest struct {
	*Holder
	host *fakeHost
	stop func() error // ends Run and returns its error

	mu     sync.Mutex
	events []HolderEvent
}

// kinds returns the kinds of the events since the last call.
func (h *holderTest) kinds() (ks []HolderEventKind) {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		ks = append(ks, e.Kind)
	}
	h.events = nil
	return ks
}

func (h *holderTest) note(e HolderEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

func newHolderTest(t *testing.T, c HolderConfig) *holderTest {
	t.Helper()
	h := &holderTest{host: newFakeHost()}
	c.Interface, c.Prefixes = "eth0", holderPrefixes
	if c.OnEvent == nil {
		c.OnEvent = h.note
	}
	c, err := c.validate()
	require.NoError(t, err)
	s, err := NewAnnounceSchedule(c.Announce)
	require.NoError(t, err)
	h.Holder = newHolder(c, s, h.host, h.host)
	return h
}

func (h *holderTest) start(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	h.stop = func() error {
		cancel()
		return <-done
	}
	synctest.Wait()
}

func holderBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	synctest.Test(t, f)
}

func TestHolderTokenExpiry(t *testing.T) {
	holderBubble(t, func(t *testing.T) {
		h := newHolderTest(t, HolderConfig{})
		require.Equal(t, HolderUnknown, h.Status().State, "not running")
		h.start(t)
		require.Equal(t, HolderReleased, h.Status().State)

		end := time.Now().Add(10 * time.Second)
		h.Hold(end)
		synctest.Wait()
		require.Equal(t, HolderHeld, h.Status().State)
		require.Equal(t, holderPrefixes, h.host.present())
		require.Equal(t, 2, h.host.frames(), "IPv4 only")

		for time.Now().Before(end) {
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			require.False(t, h.host.lastEnd().After(end), "the kernel would keep an address longer than the token lasts")
			if !time.Now().Before(end.Add(-DefaultMargin)) {
				require.Empty(t, h.host.present(), "%v before the end", time.Until(end))
			}
		}
		require.Equal(t, HolderReleased, h.Status().State)
		require.Equal(t, "the token ended", h.Status().Reason)
		require.Equal(t, []HolderEventKind{HolderAdded, HolderAnnounced, HolderRemoved}, h.kinds())
		require.NoError(t, h.stop())
		require.Equal(t, HolderUnknown, h.Status().State)
	})
}

func TestHolderRenewal(t *testing.T) {
	holderBubble(t, func(t *testing.T) {
		h := newHolderTest(t, HolderConfig{})
		h.Hold(time.Now().Add(4 * time.Second)) // before Run
		h.start(t)
		for range 600 {
			require.Equal(t, HolderHeld, h.Status().State)
			require.Equal(t, holderPrefixes, h.host.present())
			time.Sleep(time.Second)
			h.Hold(time.Now().Add(4 * time.Second))
		}
		require.Equal(t, []HolderEventKind{HolderAdded, HolderAnnounced}, h.kinds())
		require.Equal(t, 2*(6+9), h.host.frames(), "a round and nine refreshes of two addresses")
		require.NoError(t, h.stop())
		require.Empty(t, h.host.present(), "removed at the end of Run")
		require.Equal(t, []HolderEventKind{HolderRemoved}, h.kinds())
		require.Equal(t, 1, h.host.closed)

		h.Hold(time.Now().Add(time.Hour))
		require.Equal(t, HolderUnknown, h.Status().State, "Run has ended")
		require.ErrorIs(t, h.Run(t.Context()), errHolderRunTwice)
	})
}

// After Release has returned nothing is announced, whatever the worker was
// about to do.
func TestHolderReleaseStopsAnnouncements(t *testing.T) {
	holderBubble(t, func(t *testing.T) {
		h := newHolderTest(t, HolderConfig{Announce: AnnounceConfig{Refresh: 100 * time.Millisecond}})
		h.start(t)
		for i := range 200 {
			h.Hold(time.Now().Add(time.Hour))
			time.Sleep(time.Duration(i) * time.Millisecond)
			// No Wait here: the worker may be anywhere.
			h.Release("lost the election")
			sent := h.host.frames()
			time.Sleep(time.Duration(i%7) * time.Second)
			synctest.Wait()
			require.Equal(t, sent, h.host.frames())
			require.Empty(t, h.host.present())
			require.Equal(t, HolderReleased, h.Status().State)
			require.Equal(t, "lost the election", h.Status().Reason)
		}
		require.NoError(t, h.stop())
	})
}

// The worker is stuck in the kernel or was not scheduled.
func TestHolderFreeze(t *testing.T) {
	t.Run("the token ends meanwhile", func(t *testing.T) {
		holderBubble(t, func(t *testing.T) {
			h := newHolderTest(t, HolderConfig{})
			h.start(t)
			h.Hold(time.Now().Add(8 * time.Second))
			time.Sleep(time.Second)
			thaw := h.host.freeze()
			time.Sleep(time.Minute)
			require.Equal(t, HolderUnknown, h.Status().State, "nobody renews it")
			require.Empty(t, h.host.present(), "the kernel removed them")
			sent := h.host.frames()
			thaw()
			synctest.Wait()
			require.Equal(t, HolderReleased, h.Status().State)
			require.Empty(t, h.host.present())
			require.Equal(t, sent, h.host.frames())
			require.NoError(t, h.stop())
		})
	})
	t.Run("a new token is there", func(t *testing.T) {
		holderBubble(t, func(t *testing.T) {
			h := newHolderTest(t, HolderConfig{})
			h.start(t)
			h.Hold(time.Now().Add(8 * time.Second))
			time.Sleep(time.Second)
			thaw := h.host.freeze()
			time.Sleep(time.Minute)
			h.Hold(time.Now().Add(time.Minute))
			sent := h.host.frames()
			thaw()
			synctest.Wait()
			require.Equal(t, HolderHeld, h.Status().State)
			require.Equal(t, holderPrefixes, h.host.present())
			require.Equal(t, sent+2, h.host.frames(), "announced from the start")
			require.Equal(t, []HolderEventKind{HolderAdded, HolderAnnounced}, h.kinds()[2:])
			require.NoError(t, h.stop())
		})
	})
	t.Run("the token is still good", func(t *testing.T) {
		holderBubble(t, func(t *testing.T) {
			h := newHolderTest(t, HolderConfig{})
			h.start(t)
			h.Hold(time.Now().Add(time.Hour))
			time.Sleep(10 * time.Second)
			h.kinds()
			thaw := h.host.freeze()
			time.Sleep(time.Minute)
			thaw()
			synctest.Wait()
			require.Equal(t, HolderHeld, h.Status().State)
			require.Equal(t, []HolderEventKind{HolderRestored, HolderAnnounced}, h.kinds())
			require.NoError(t, h.stop())
		})
	})
}

func TestHolderForeignDeletion(t *testing.T) {
	holderBubble(t, func(t *testing.T) {
		h := newHolderTest(t, HolderConfig{})
		h.start(t)
		h.Hold(time.Now().Add(time.Hour))
		time.Sleep(10 * time.Second)
		h.kinds()
		sent := h.host.frames()
		h.host.deleteByOther(holderPrefixes[1])
		synctest.Wait()
		require.Equal(t, holderPrefixes, h.host.present(), "repaired at once")
		require.Equal(t, sent+2, h.host.frames())
		require.Equal(t, []HolderEventKind{HolderLost, HolderRestored, HolderAnnounced}, h.kinds())

		// Without the watcher's word the next check finds it.
		h.host.mu.Lock()
		delete(h.host.ends, holderPrefixes[0])
		h.host.mu.Unlock()
		time.Sleep(DefaultLifetime/3 + time.Millisecond)
		synctest.Wait()
		require.Equal(t, holderPrefixes, h.host.present())
		require.NoError(t, h.stop())
	})
}

// A consumer that never returns holds up neither the addresses nor itself more
// than one event of each kind.
func TestHolderSlowConsumer(t *testing.T) {
	holderBubble(t, func(t *testing.T) {
		blocked := make(chan struct{})
		var got []HolderEvent
		h := newHolderTest(t, HolderConfig{OnEvent: func(e HolderEvent) {
			<-blocked
			got = append(got, e)
		}})
		h.start(t)
		const rounds = 50
		for range rounds {
			h.Hold(time.Now().Add(time.Hour))
			synctest.Wait()
			require.Equal(t, HolderHeld, h.Status().State)
			h.Release("lost")
			synctest.Wait()
			require.Equal(t, HolderReleased, h.Status().State)
		}
		close(blocked)
		require.NoError(t, h.stop())
		require.Len(t, got, 4, "the one it was busy with and the last of each kind")
		last := got[len(got)-1]
		require.Equal(t, HolderRemoved, last.Kind)
		require.Equal(t, HolderReleased, last.State)
		require.Equal(t, rounds-1, last.Missed)
	})
}

func TestHolderStopsUnknown(t *testing.T) {
	holderBubble(t, func(t *testing.T) {
		h := newHolderTest(t, HolderConfig{})
		h.start(t)
		h.Hold(time.Now().Add(time.Hour))
		synctest.Wait()
		require.Equal(t, HolderHeld, h.Status().State)
		require.NoError(t, h.stop())
		st := h.Status()
		require.Equal(t, HolderUnknown, st.State)
		require.Equal(t, "not running", st.Reason)
		require.Zero(t, st.ValidUntil)
	})
}

func TestHolderFaults(t *testing.T) {
	t.Run("at start", func(t *testing.T) {
		holderBubble(t, func(t *testing.T) {
			h := newHolderTest(t, HolderConfig{})
			h.host.fault = &addrError{"hold", holderPrefixes[:1], "eth0", syscall.EPERM}
			err := h.Run(t.Context())
			require.EqualError(t, err, "vrrp: hold 192.0.2.1/24 on eth0: needs CAP_NET_ADMIN: run as root or inside a user namespace")
			require.ErrorIs(t, err, fs.ErrPermission)
			require.Equal(t, HolderUnknown, h.Status().State)
		})
	})
	t.Run("later and passing", func(t *testing.T) {
		holderBubble(t, func(t *testing.T) {
			h := newHolderTest(t, HolderConfig{})
			h.start(t)
			fault := errors.New("busy")
			h.host.fault = fault
			h.Hold(time.Now().Add(time.Hour))
			synctest.Wait()
			st := h.Status()
			require.Equal(t, HolderTaking, st.State)
			require.ErrorIs(t, st.Err, fault)
			require.Zero(t, h.host.frames())
			h.host.mu.Lock()
			h.host.fault = nil
			h.host.mu.Unlock()
			time.Sleep(DefaultLifetime / 3)
			synctest.Wait()
			require.Equal(t, HolderHeld, h.Status().State)
			require.NoError(t, h.Status().Err)
			require.NoError(t, h.stop())
		})
	})
	t.Run("at the end", func(t *testing.T) {
		holderBubble(t, func(t *testing.T) {
			h := newHolderTest(t, HolderConfig{})
			h.start(t)
			h.Hold(time.Now().Add(time.Hour))
			synctest.Wait()
			h.host.mu.Lock()
			h.host.fault = errors.New("busy")
			h.host.mu.Unlock()
			require.ErrorContains(t, h.stop(), "busy")
		})
	})
}

// What an earlier owner left is removed before anything else.
func TestHolderSweepsAtStart(t *testing.T) {
	holderBubble(t, func(t *testing.T) {
		h := newHolderTest(t, HolderConfig{})
		h.host.ends[holderPrefixes[0]] = time.Now().Add(time.Hour)
		h.start(t)
		require.Empty(t, h.host.present())
		require.NoError(t, h.stop())
	})
}

func TestHolderConcurrentUse(t *testing.T) {
	holderBubble(t, func(t *testing.T) {
		h := newHolderTest(t, HolderConfig{})
		h.start(t)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for range 200 {
					h.Hold(time.Now().Add(time.Minute))
					h.Announce("test")
					_ = h.Status()
					h.Release(fmt.Sprint(i))
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		require.Equal(t, HolderReleased, h.Status().State)
		require.Empty(t, h.host.present())
		require.NoError(t, h.stop())
	})
}

func TestHolderConfigFaults(t *testing.T) {
	_, err := NewHolder(HolderConfig{})
	require.ErrorContains(t, err, "vrrp: interface is empty")
	require.ErrorContains(t, err, "vrrp: no address")

	_, err = NewHolder(HolderConfig{
		Interface: "an-interface-name-too-long",
		Prefixes:  holderPrefixes,
		Label:     "a-label-much-too-long",
		Protocol:  2,
		Lifetime:  2500 * time.Millisecond,
		Margin:    time.Minute,
		Announce:  AnnounceConfig{Refresh: 1},
	})
	for _, want := range []string{
		`interface "an-interface-name-too-long" has 26 bytes`,
		`label "a-label-much-too-long" has 21 bytes`,
		"address protocol 2 belongs to the kernel",
		"holder lifetime 2.5s: use whole seconds from 2s",
		"holder margin 1m0s",
		"announce refresh is 1ns",
	} {
		require.ErrorContains(t, err, want)
	}

	// The caller's slice is neither kept nor changed.
	prefixes := slices.Clone(holderPrefixes)
	h, err := NewHolder(HolderConfig{Interface: "eth0", Prefixes: prefixes})
	require.NoError(t, err)
	prefixes[0] = netip.Prefix{}
	require.Equal(t, holderPrefixes, h.cfg.Prefixes)
}

// slowAnnouncer lets a test stop the worker before and inside a send.
type slowAnnouncer struct {
	*fakeHost
	opening, sending chan struct{} // the worker says that it is there
	open, send       chan struct{} // closed: it goes on
}

func (s *slowAnnouncer) Open() error {
	s.opening <- struct{}{}
	<-s.open
	return nil
}

func (s *slowAnnouncer) Announce(addr netip.Addr) error {
	s.sending <- struct{}{}
	<-s.send
	return s.fakeHost.Announce(addr)
}

func newSlowAnnouncer(t *testing.T) (*holderTest, *slowAnnouncer) {
	h := newHolderTest(t, HolderConfig{})
	s := &slowAnnouncer{h.host, make(chan struct{}, 9), make(chan struct{}, 9), make(chan struct{}), make(chan struct{})}
	h.ann = s
	return h, s
}

// The role is lost after the worker has decided to announce and before it
// sends.
func TestHolderReleaseBeforeSend(t *testing.T) {
	holderBubble(t, func(t *testing.T) {
		h, s := newSlowAnnouncer(t)
		close(s.send)
		go func() { s.open <- struct{}{} }() // the check at the start of Run
		h.start(t)
		<-s.opening
		h.Hold(time.Now().Add(time.Hour))
		<-s.opening
		h.Release("lost")
		close(s.open)
		synctest.Wait()
		require.Zero(t, h.host.frames())
		require.NoError(t, h.stop())
	})
}

// The role is lost while a frame is being sent: Release returns after it.
func TestHolderReleaseDuringSend(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	h, s := newSlowAnnouncer(t)
	close(s.open)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	h.Hold(time.Now().Add(time.Hour))
	<-s.sending
	released := make(chan int)
	go func() {
		h.Release("lost")
		released <- h.host.frames()
	}()
	for h.Status().State != HolderReleasing {
		runtime.Gosched()
	}
	for range 1000 { // a Release that does not wait would be through by now
		runtime.Gosched()
	}
	close(s.send)
	require.Equal(t, 1, <-released, "the frame in flight had left when Release returned")
	cancel()
	require.NoError(t, <-done)
	require.Equal(t, 1, h.host.frames())
}
