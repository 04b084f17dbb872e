package lab

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// KeepalivedConfig is what keepalived on a node of the lab is to do.
type KeepalivedConfig struct {
	Node string

	// Advert is the distance between adverts; 0 means 1 s. Whole seconds use
	// VRRP version 2 with the cluster's passwords; anything else, in steps of
	// 10 ms, needs version 3, which has no authentication.
	Advert time.Duration

	// Scripts are the command lines of the checks by their names; each that
	// the node has needs one. The program is named by its whole path.
	Scripts map[string]string
}

// Render returns the text of keepalived.conf, or all faults.
//
// The word enable_script_security of the original is left out: in a user
// namespace the files of the real root look foreign, and keepalived would then
// run no script at all.
func (c KeepalivedConfig) Render() (string, error) {
	node, ok := HostNamed(c.Node)
	if !ok || node.Kind == Client {
		return "", fmt.Errorf("lab: keepalived on %q: no such master or worker", c.Node)
	}
	if c.Advert == 0 {
		c.Advert = time.Second
	}
	var faults []error
	if c.Advert < 10*time.Millisecond || c.Advert%(10*time.Millisecond) != 0 {
		faults = append(faults, fmt.Errorf("lab: keepalived advert interval %v: use a multiple of 10ms", c.Advert))
	}

	var b strings.Builder
	b.WriteString("global_defs {\n  script_user root\n  max_auto_priority -1\n  vrrp_garp_master_refresh 60\n")
	if c.version() == 3 {
		b.WriteString("  vrrp_version 3\n")
	}
	b.WriteString("}\n")
	instances := []Instance{API(), Ingress()}
	for _, i := range instances {
		if !i.Includes(node) {
			continue
		}
		for _, check := range i.Checks() {
			faults = append(faults, c.script(&b, check))
		}
	}
	for _, i := range instances {
		if i.Includes(node) {
			c.instance(&b, i, node)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return "", err
	}
	return b.String(), nil
}

func (c KeepalivedConfig) version() int {
	if c.Advert%time.Second == 0 {
		return 2
	}
	return 3
}

// script writes a check. keepalived's own timeouts are whole seconds, so the
// program timeout ends a check that hangs, as in the cluster.
func (c KeepalivedConfig) script(b *strings.Builder, check Check) error {
	command := c.Scripts[check.Name]
	if command == "" || strings.ContainsAny(command, "\"\n") {
		return fmt.Errorf("lab: keepalived check %s: command line %q: give one without quotes and line ends", check.Name, command)
	}
	fmt.Fprintf(b, "\nvrrp_script %s {\n", check.Name)
	fmt.Fprintf(b, "  script \"/usr/bin/timeout %s %s\"\n", seconds(check.Timeout), command)
	fmt.Fprintf(b, "  interval %s\n", seconds(check.Interval))
	if check.Weight != 0 {
		fmt.Fprintf(b, "  weight %d\n", check.Weight)
	}
	fmt.Fprintf(b, "  rise %d\n  fall %d\n}\n", check.Rise, check.Fall)
	return nil
}

func (c KeepalivedConfig) instance(b *strings.Builder, i Instance, node Host) {
	fmt.Fprintf(b, "\nvrrp_instance %s {\n", i.Name)
	fmt.Fprintf(b, "  state BACKUP\n  interface %s\n", Interface)
	fmt.Fprintf(b, "  virtual_router_id %d\n  priority %d\n", i.VRID, i.Priority)
	fmt.Fprintf(b, "  advert_int %s\n", seconds(c.Advert))
	fmt.Fprintf(b, "  unicast_src_ip %s\n  unicast_peer {\n", node.Addr)
	for _, peer := range i.Peers(node) {
		fmt.Fprintf(b, "    %s\n", peer)
	}
	b.WriteString("  }\n")
	if c.version() == 2 {
		fmt.Fprintf(b, "  authentication {\n    auth_type PASS\n    auth_pass %s\n  }\n", i.Password)
	}
	fmt.Fprintf(b, "  virtual_ipaddress {\n    %s/%d label vip\n  }\n", i.VIP, PrefixBits)
	b.WriteString("  track_script {\n")
	for _, check := range i.Checks() {
		fmt.Fprintf(b, "    %s\n", check.Name)
	}
	b.WriteString("  }\n}\n")
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }
