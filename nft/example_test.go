package nft_test

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/lastbeat/lastbeat/nft"
)

// The rules for any configuration can be read before anything is changed.
func ExampleTable_Render() {
	t, err := nft.New(nft.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := t.Render(nft.Config{Redirects: []nft.Redirect{
		{VIP: netip.MustParseAddr("192.0.2.1"), From: 6443, To: 9445},
		{VIP: netip.MustParseAddr("2001:db8::1"), From: 6443, To: 9445},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, "dnat") || strings.Contains(line, " : 192.0.2.1 . ") {
			fmt.Println(strings.TrimSpace(line))
		}
	}
	// Output:
	// elements = { 192.0.2.1 . tcp . 6443 timeout 6s : 192.0.2.1 . 9445 }
	// elements = { 192.0.2.1 . tcp . 6443 timeout 6s : 192.0.2.1 . 9445 }
	// iif != "lo" fib daddr type local dnat ip to ip daddr . meta l4proto . th dport map @external4
	// iif != "lo" fib daddr type local dnat ip6 to ip6 daddr . meta l4proto . th dport map @external6
	// fib daddr type local dnat ip to ip daddr . meta l4proto . th dport map @local4
	// fib daddr type local dnat ip6 to ip6 daddr . meta l4proto . th dport map @local6
}

// Faults are found without a kernel, all at once.
func ExampleConfig_Validate() {
	vip := netip.MustParseAddr("192.0.2.1")
	fmt.Println(nft.Config{Redirects: []nft.Redirect{
		{VIP: vip, From: 6443, To: 6443},
		{VIP: vip, To: 9445},
	}}.Validate())
	// Output:
	// nft: invalid configuration: Redirects[0] (192.0.2.1:6443/tcp -> 6443) redirects a port to itself: change To or leave it out
	// nft: invalid configuration: Redirects[1] (192.0.2.1:0/tcp -> 9445) From: use a port from 1 to 65535
}

// Without an owner that renews, a verdict is not believed.
func ExampleTable_Status() {
	t, err := nft.New(nft.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	s := t.Status()
	fmt.Println(s.State, "because", s.Reason)
	fmt.Println("renew every", t.RenewEvery())
	// Output:
	// unknown because never applied
	// renew every 2s
}
