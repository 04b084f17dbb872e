package vrrp_test

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"time"

	"github.com/lastbeat/lastbeat/vrrp"
)

// An advert as keepalived sends it, read from the bytes behind the Ethernet header.
func ExampleParsePacket() {
	frame, _ := hex.DecodeString("45c00028000c0000ff70ef1dc0a82516c0a82515" +
		"21ce440101017f1bc0a825c9686a3468355f6170")
	p, err := vrrp.ParsePacket(frame, nil)
	fmt.Println(err)
	fmt.Printf("%v to %v: VRID %d, priority %d, addresses %v\n", p.Src, p.Dst, p.Advert.VRID, p.Advert.Priority, p.Advert.Addrs)

	frame[30]++ // one bit of damage
	_, err = vrrp.ParsePacket(frame, nil)
	fmt.Println(err)
	// Output:
	// <nil>
	// 192.168.37.22 to 192.168.37.21: VRID 206, priority 68, addresses [192.168.37.201]
	// vrrp: packet discarded: wrong checksum
}

// A program with a loop of its own drives the machine: it hands in packets and
// the time, and carries out the actions.
func ExampleMachine() {
	m, err := vrrp.NewMachine(vrrp.Config{
		VRID: 51, Priority: 100,
		Source: netip.MustParseAddr("192.0.2.11"),
		Peers:  []netip.Addr{netip.MustParseAddr("192.0.2.12")},
		Addrs:  []netip.Addr{netip.MustParseAddr("192.0.2.1")},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Unix(0, 0)
	now := start
	m.Start(now)
	for m.Status(now).State != vrrp.Active { // nobody is heard
		now = m.Deadline()
		m.Advance(now)
	}
	for _, a := range m.AppendActions(nil) {
		switch a.Kind {
		case vrrp.SendAdvert:
			fmt.Println("send an advert of priority", a.Priority)
		case vrrp.Hold:
			fmt.Println("hold the address for", a.Until.Sub(now))
		case vrrp.Announce:
			fmt.Println("announce it")
		case vrrp.Changed:
			fmt.Printf("%v to %v: %v\n", a.From, a.To, a.Reason)
		}
	}
	fmt.Println("after", now.Sub(start))

	// Nobody calls the machine any more: its status does not stay true.
	fmt.Println(m.Status(now.Add(time.Minute)).State)
	// Output:
	// Initialize to Backup: started
	// send an advert of priority 100
	// Backup to Active: no advert heard for the down interval
	// hold the address for 5s
	// announce it
	// after 3.609375s
	// Unknown
}

// A track's report ends unless it is renewed.
func ExampleMachine_Report() {
	m, _ := vrrp.NewMachine(vrrp.Config{
		VRID: 51, Priority: 40,
		Source: netip.MustParseAddr("192.0.2.11"), Multicast: true,
		Addrs:  []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		Tracks: []vrrp.Track{{Name: "balancer", Weight: 20}},
	})
	now := time.Unix(0, 0)
	m.Start(now)
	fmt.Println("priority", m.Status(now).Priority)
	if err := m.Report(now, "balancer", true, now.Add(2*time.Second)); err != nil {
		fmt.Println(err)
	}
	fmt.Println("priority", m.Status(now).Priority)
	now = now.Add(2 * time.Second)
	m.Advance(now)
	fmt.Println("priority", m.Status(now).Priority)
	// Output:
	// priority 40
	// priority 60
	// priority 40
}

// Configuration faults are reported together, each with its remedy; what is
// legal and probably not meant is a warning.
func ExampleNewInstance() {
	_, err := vrrp.NewInstance(vrrp.InstanceConfig{
		Config: vrrp.Config{
			VRID: 206, Version: 2, Interval: 400 * time.Millisecond,
			Source: netip.MustParseAddr("192.0.2.11"),
		},
		Interface: "eth0",
		Prefixes:  []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")},
	})
	fmt.Println(err)
	fmt.Println(vrrp.Config{Password: "hj4h5_api_vip"}.Warnings())
	// Output:
	// vrrp: interval 400ms: version 2 carries whole seconds, 1s to 255s; use version 3 below 1s
	// vrrp: no peers: list the other routers for unicast, or set Multicast
	// [password has 13 bytes: only the first 8 go on the wire, "hj4h5_ap"]
}
