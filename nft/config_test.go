package nft

import (
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNewRefusesBadOptions(t *testing.T) {
	for name, test := range map[string]struct {
		opts Options
		says string
	}{
		"table starts with a digit":  {Options{Table: "1st"}, `nft: Options.Table "1st": use a letter, then at most 63 letters, digits, '_' or '-'`},
		"table would inject nft":     {Options{Table: "a { }"}, `nft: Options.Table "a { }": use a letter, then at most 63 letters, digits, '_' or '-'`},
		"table too long":             {Options{Table: strings.Repeat("a", 65)}, `nft: Options.Table "` + strings.Repeat("a", 65) + `": use a letter, then at most 63 letters, digits, '_' or '-'`},
		"before connection tracking": {Options{Priority: -200}, "nft: Options.Priority -200: use -199 to 199, after connection tracking at -200"},
		"too late":                   {Options{Priority: 200}, "nft: Options.Priority 200: use -199 to 199, after connection tracking at -200"},
		"too short":                  {Options{Timeout: 499 * time.Millisecond}, "nft: Options.Timeout 499ms: use 500ms to 24h"},
		"negative":                   {Options{Timeout: -time.Second}, "nft: Options.Timeout -1s: use 500ms to 24h"},
		"too long":                   {Options{Timeout: 25 * time.Hour}, "nft: Options.Timeout 25h0m0s: use 500ms to 24h"},
		"no whole milliseconds":      {Options{Timeout: time.Second + 1}, "nft: Options.Timeout 1.000000001s: use whole milliseconds, the kernel's unit"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(test.opts)
			require.EqualError(t, err, test.says)
		})
	}
	_, err := New(Options{Table: "-", Priority: 1000, Timeout: 1})
	require.Len(t, strings.Split(err.Error(), "\n"), 3, "all faults at once")
}

func TestConfigRefusals(t *testing.T) {
	vip := netip.MustParseAddr("192.0.2.1")
	for name, test := range map[string]struct {
		r    Redirect
		says string
	}{
		"no VIP":      {Redirect{From: 1, To: 2}, "has no VIP: set an IPv4 or IPv6 address"},
		"mapped":      {Redirect{VIP: netip.MustParseAddr("::ffff:192.0.2.9"), From: 1, To: 2}, "VIP ::ffff:192.0.2.9: use the plain IPv4 form 192.0.2.9"},
		"zone":        {Redirect{VIP: netip.MustParseAddr("fe80::1%eth0"), From: 1, To: 2}, "VIP fe80::1%eth0: leave out the zone"},
		"any":         {Redirect{VIP: netip.IPv6Unspecified(), From: 1, To: 2}, "VIP ::: use a unicast address that other hosts can reach"},
		"multicast":   {Redirect{VIP: netip.MustParseAddr("224.0.0.18"), From: 1, To: 2}, "VIP 224.0.0.18: use a unicast address that other hosts can reach"},
		"loopback":    {Redirect{VIP: netip.MustParseAddr("127.0.0.1"), From: 1, To: 2}, "VIP 127.0.0.1: use a unicast address that other hosts can reach"},
		"broadcast":   {Redirect{VIP: netip.MustParseAddr("255.255.255.255"), From: 1, To: 2}, "VIP 255.255.255.255: use a unicast address that other hosts can reach"},
		"protocol":    {Redirect{VIP: vip, Proto: 2, From: 1, To: 2}, "(192.0.2.1:1/Proto(2) -> 2) protocol: use TCP or UDP"},
		"no From":     {Redirect{VIP: vip, To: 2}, "(192.0.2.1:0/tcp -> 2) From: use a port from 1 to 65535"},
		"no To":       {Redirect{VIP: vip, From: 1}, "(192.0.2.1:1/tcp -> 0) To: use a port from 1 to 65535"},
		"to itself":   {Redirect{VIP: vip, From: 1, To: 1}, "(192.0.2.1:1/tcp -> 1) redirects a port to itself: change To or leave it out"},
		"two targets": {Redirect{VIP: vip, From: 6443, To: 7}, "(192.0.2.1:6443/tcp -> 7) repeats VIP, protocol and From of Redirects[0]: keep one"},
	} {
		t.Run(name, func(t *testing.T) {
			tab, f := newFake(t)
			_, err := tab.Apply(t.Context(), Config{Redirects: []Redirect{api4, test.r}})
			require.EqualError(t, err, "nft: invalid configuration: Redirects[1] "+test.says)
			require.ErrorIs(t, err, ErrConfig)
			require.Empty(t, f.commits)
			_, err = tab.Render(Config{Redirects: []Redirect{test.r}})
			require.Equal(t, name != "two targets", err != nil)
		})
	}
	udp := api4
	udp.Proto = UDP
	require.NoError(t, Config{Redirects: []Redirect{api4, udp, api6, dns4}}.Validate())
	err := Config{Redirects: make([]Redirect, 3)}.Validate()
	require.Len(t, strings.Split(err.Error(), "\n"), 3, "all faults at once")
}

func TestNames(t *testing.T) {
	require.Equal(t, "[2001:db8::1]:6443/tcp -> 9445", api6.String())
	require.Equal(t, []string{"unknown", "installed", "faulty", "removed", "State(9)"},
		[]string{Unknown.String(), Installed.String(), Faulty.String(), Removed.String(), State(9).String()})
	for r := NeverApplied; r <= Expired; r++ {
		require.NotContains(t, r.String(), "Reason(")
	}
	require.Equal(t, "Reason(99)", Reason(99).String())
	require.Contains(t, Conflict{Kind: 9}.String(), "ConflictKind(9)")
	require.False(t, errors.Is(&MismatchError{Differences: []Difference{{Object: "chain x"}}}, io.EOF))
}
