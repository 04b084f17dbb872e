package health

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
)

// ICMPConfig configures an [ICMP] prober.
type ICMPConfig struct {
	// Address is whom to ask. A link-local IPv6 address needs its zone.
	Address netip.Addr
	// Source is the address to ask from, of the same family. Default: the system
	// chooses.
	Source netip.Addr
}

// ICMP probes by an echo request ("ping") from a socket of its own. A reply to
// exactly this request is good. It shows that the host's kernel answers, not that
// anything on it works. May be used by many goroutines at once. Make one with
// [NewICMP].
//
// Only on Linux. It takes the kernel's unprivileged echo sockets where a group of
// the process is within net.ipv4.ping_group_range, which rules IPv6 too, and else a
// raw socket, which needs the capability CAP_NET_RAW. Without both every probe is a
// local error that names the remedies.
type ICMP struct {
	address, source netip.Addr
	seq             atomic.Uint32
}

// NewICMP returns a prober. Its error joins a *[ConfigError] for each bad field, or
// matches [errors.ErrUnsupported] on systems other than Linux.
func NewICMP(config ICMPConfig) (*ICMP, error) {
	address, source := config.Address.Unmap(), config.Source.Unmap()
	var faults []error
	if !address.IsValid() || address.IsUnspecified() || address.IsMulticast() {
		faults = append(faults, &ConfigError{"", "Address", config.Address, "the address of one host"})
	}
	if source.IsValid() && source.Is4() != address.Is4() {
		faults = append(faults, &ConfigError{"", "Source", config.Source, "an address of the same family as Address"})
	}
	if address.Is6() && address.IsLinkLocalUnicast() && address.Zone() == "" {
		faults = append(faults, &ConfigError{"", "Address", config.Address, "a zone, such as %eth0, as it is link-local"})
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if !echoSupported {
		return nil, fmt.Errorf("health: ICMP echo: %w on this system: use another prober", errors.ErrUnsupported)
	}
	return &ICMP{address: address, source: source}, nil
}
