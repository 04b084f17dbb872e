package vrrp

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValidatePrefixes(t *testing.T) {
	tests := []struct {
		prefix string
		want   string // "": legal
	}{
		{"192.0.2.1/24", ""},
		{"192.0.2.1/32", ""},
		{"192.0.2.0/31", ""},
		{"192.0.2.1/31", ""},
		{"169.254.1.1/16", ""},
		{"2001:db8::1/64", ""},
		{"2001:db8::/128", ""},
		{"fe80::1/64", ""},
		{"192.0.2.0/24", "the network's own address"},
		{"192.0.2.255/24", "the network's broadcast address"},
		{"10.255.255.255/8", "the network's broadcast address"},
		{"192.0.2.1/0", "a prefix length of 0"},
		{"0.0.0.0/32", "unspecified"},
		{"127.0.0.1/8", "loopback"},
		{"::1/128", "loopback"},
		{"224.0.0.18/32", "multicast"},
		{"ff02::12/128", "multicast"},
		{"::ffff:192.0.2.1/120", "IPv4 inside IPv6"},
	}
	for _, tt := range tests {
		t.Run(tt.prefix, func(t *testing.T) {
			err := validatePrefixes([]netip.Prefix{netip.MustParsePrefix(tt.prefix)})
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "vrrp: address "+tt.prefix)
			require.ErrorContains(t, err, tt.want)
		})
	}
	require.ErrorContains(t, validatePrefixes([]netip.Prefix{{}}), "not a prefix")
	twice := []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("192.0.2.1/32")}
	require.ErrorContains(t, validatePrefixes(twice), "192.0.2.1 is named twice")
}

func TestValidateInterfaceName(t *testing.T) {
	require.NoError(t, validateInterfaceName("br-ex"))
	require.ErrorContains(t, validateInterfaceName(""), "is empty")
	require.ErrorContains(t, validateInterfaceName("0123456789abcdef"), "has 16 bytes")
	require.ErrorContains(t, validateInterfaceName("a b"), "neither space nor slash")
}

func TestAddrEntryOurs(t *testing.T) {
	vip, other := netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("192.0.2.9/24")
	named := []netip.Prefix{vip}
	tests := []struct {
		name  string
		entry addrEntry
		tags  bool
		named []netip.Prefix
		want  bool
	}{
		{"tagged and named", addrEntry{prefix: vip, protocol: 76}, true, named, true},
		{"tagged, none named", addrEntry{prefix: other, protocol: 76}, true, nil, true},
		{"tagged, another named", addrEntry{prefix: other, protocol: 76}, true, named, false},
		{"another's tag", addrEntry{prefix: vip, protocol: 18}, true, named, false},
		{"no tag on a kernel with tags", addrEntry{prefix: vip}, true, named, false},
		{"old kernel: named, with a lifetime", addrEntry{prefix: vip}, false, named, true},
		{"old kernel: named, permanent", addrEntry{prefix: vip, permanent: true}, false, named, false},
		{"old kernel: not named", addrEntry{prefix: other}, false, named, false},
		{"old kernel: none named", addrEntry{prefix: vip}, false, nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, tt.entry.ours(76, tt.tags, tt.named))
		})
	}
}
