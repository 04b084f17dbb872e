package vrrp_test

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/lastbeat/lastbeat/vrrp"
)

// A lease holder keeps the virtual address while its lease is valid. No VRRP
// takes part.
func ExampleHolder() {
	h, err := vrrp.NewHolder(vrrp.HolderConfig{
		Interface: "eth0",
		Prefixes:  []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")},
		OnEvent: func(e vrrp.HolderEvent) {
			fmt.Println(e.At.Format(time.TimeOnly), e.Kind, e.Prefixes, e.Reason)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	run := func(ctx context.Context, renewed <-chan time.Time) error {
		done := make(chan error, 1)
		go func() { done <- h.Run(ctx) }()
		for {
			select {
			case validUntil, ok := <-renewed: // from the election
				if ok {
					h.Hold(validUntil)
				} else {
					h.Release("lost the election")
					renewed = nil
				}
			case err := <-done:
				return err
			}
		}
	}
	_ = run // needs CAP_NET_ADMIN and CAP_NET_RAW

	st := h.Status()
	fmt.Println(st.State, "because", st.Reason)
	// Output: unknown because not running
}

// All faults of a configuration are told at once, with what to write instead.
func ExampleNewHolder() {
	_, err := vrrp.NewHolder(vrrp.HolderConfig{
		Interface: "eth0",
		Prefixes:  []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
		Lifetime:  1500 * time.Millisecond,
	})
	fmt.Println(err)
	// Output:
	// vrrp: address 192.0.2.0/24: the network's own address: use one inside it
	// vrrp: holder lifetime 1.5s: use whole seconds from 2s to 24h0m0s
}

// The schedule is driven by its own deadlines; here by a clock made of
// numbers.
func ExampleAnnounceSchedule() {
	s, err := vrrp.NewAnnounceSchedule(vrrp.AnnounceConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	taken := time.Unix(0, 0)
	s.Again(taken)
	for range 8 {
		due, _ := s.Deadline()
		if s.Advance(due) {
			fmt.Print(due.Sub(taken), " ")
		}
	}
	s.Stop() // the role is lost
	_, planned := s.Deadline()
	fmt.Println(planned)
	// Output: 0s 50ms 200ms 500ms 1s 5s 1m5s 2m5s false
}

// The frame by which a new holder moves the neighbours' entries to itself.
func ExampleGratuitousARP_AppendBinary() {
	g := vrrp.GratuitousARP{
		MAC:  [6]byte{0x1a, 0x9a, 0x69, 0x2d, 0x67, 0xb9},
		Addr: netip.MustParseAddr("192.168.37.201"),
	}
	frame, err := g.AppendBinary(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("% x\n% x\n", frame[:14], frame[14:])
	// Output:
	// ff ff ff ff ff ff 1a 9a 69 2d 67 b9 08 06
	// 00 01 08 00 06 04 00 01 1a 9a 69 2d 67 b9 c0 a8 25 c9 ff ff ff ff ff ff c0 a8 25 c9
}
