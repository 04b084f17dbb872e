package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/lastbeat/lastbeat/examples/internal/capture"
	"github.com/lastbeat/lastbeat/internal/netns"
)

const bridge = "br0"

// Lab is the running network. Its methods may be called from any goroutine.
type Lab struct {
	config  Config
	dir     string // for files of the nodes' programs
	sw      *netns.NS
	nodes   map[string]*netns.NS
	macs    map[capture.MAC]string
	capture *capture.Capture

	stop  context.CancelFunc // ends the capture and the reaper
	ended sync.WaitGroup     // all goroutines of the lab
	err   error              // of the capture; set before ended

	calls     sync.Mutex // one Line or Ended at a time
	mu        sync.Mutex
	closing   bool
	processes map[processKey]*process // the latest of each
}

// New builds the network and starts the capture. The process must be one that
// netns.StartIsolated started and netns.Setup finished. It ends with
// [Lab.Close].
func New(c Config) (*Lab, error) {
	l := &Lab{
		config:    c,
		nodes:     map[string]*netns.NS{},
		macs:      map[capture.MAC]string{},
		processes: map[processKey]*process{},
		stop:      func() {},
	}
	if c.Packet == nil {
		l.config.Packet = func(capture.Packet) {}
	}
	if err := l.build(); err != nil {
		return nil, errors.Join(fmt.Errorf("lab: %w", err), l.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.ended.Go(func() { l.err = l.capture.Run(ctx) })
	l.ended.Go(func() { l.reap(ctx) })
	return l, nil
}

func (l *Lab) build() (err error) {
	// /run is our own (netns.Setup): even a killed lab leaves nothing on the host.
	if l.dir, err = os.MkdirTemp("/run", "lab"); err != nil {
		return err
	}
	if l.sw, err = netns.New(); err != nil {
		return err
	}
	if err := l.sw.Bridge(bridge); err != nil {
		return err
	}
	for _, h := range Hosts() {
		if err := l.cable(h); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
	return l.sw.Do(func() (err error) {
		l.capture, err = capture.Open(capture.Config{Interface: bridge, Packet: l.config.Packet, Pcap: l.config.Pcap})
		return err
	})
}

// cable makes a host and connects it to the switch.
func (l *Lab) cable(h Host) error {
	ns, err := netns.New()
	if err != nil {
		return err
	}
	l.nodes[h.Name] = ns
	if err := netns.Veth(l.sw, port(h.Name), ns, Interface); err != nil {
		return err
	}
	if err := l.sw.Enslave(port(h.Name), bridge); err != nil {
		return err
	}
	mac, err := ns.MAC(Interface)
	if err != nil {
		return err
	}
	l.macs[capture.MAC(mac)] = h.Name
	return ns.AddAddr(Interface, h.Prefix())
}

// port is the switch's name for its end of a host's cable.
func port(node string) string { return "p-" + node }

// Close kills all processes, ends the capture, removes the network, and returns
// what went wrong with the capture.
func (l *Lab) Close() error {
	l.mu.Lock()
	l.closing = true
	for _, p := range l.processes {
		if !p.ended {
			p.asked = true
			p.signal(kill)
		}
	}
	l.mu.Unlock()
	l.stop()
	l.ended.Wait()
	for _, ns := range l.nodes {
		ns.Close()
	}
	if l.sw != nil {
		l.sw.Close()
	}
	if l.dir == "" {
		return l.err
	}
	return errors.Join(l.err, os.RemoveAll(l.dir))
}

// NS returns the network namespace of a node, or nil. It is the lab's: do not
// close it.
func (l *Lab) NS(node string) *netns.NS { return l.nodes[node] }

// NodeOf tells which node has a hardware address: "" for none.
func (l *Lab) NodeOf(mac capture.MAC) string { return l.macs[mac] }

// Dir is a directory for files of the nodes' programs. Close removes it.
func (l *Lab) Dir() string { return l.dir }

// Captured returns the capture's counts: with Lost above zero, what was measured
// has holes.
func (l *Lab) Captured() capture.Stats { return l.capture.Stats() }

// Mark puts v as JSON among the captured packets.
func (l *Lab) Mark(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("lab: mark: %w", err)
	}
	return l.capture.Mark(string(b))
}

// Silent cuts a node off without telling it: its port leaves the bridge, and
// the carrier stays, as behind a switch that no longer forwards.
func (l *Lab) Silent(node string) error {
	return l.fault(node, Mark{Event: "fault", Fault: "silent", Node: node}, l.sw.Release)
}

// Carrier takes the carrier away from a node, as pulling its cable does.
func (l *Lab) Carrier(node string) error {
	return l.fault(node, Mark{Event: "fault", Fault: "carrier", Node: node}, l.sw.SetDown)
}

// Restore undoes Silent and Carrier.
func (l *Lab) Restore(node string) error {
	return l.fault(node, Mark{Event: "restore", Node: node}, func(port string) error {
		if err := l.sw.Enslave(port, bridge); err != nil {
			return err
		}
		return l.sw.SetUp(port)
	})
}

func (l *Lab) fault(node string, mark Mark, act func(port string) error) error {
	if l.nodes[node] == nil {
		return fmt.Errorf("lab: no node %q", node)
	}
	if err := l.Mark(mark); err != nil {
		return err
	}
	if err := act(port(node)); err != nil {
		return fmt.Errorf("lab: %s: %w", node, err)
	}
	return nil
}

// Enter returns the command with which a person on the host enters a node's
// namespaces, to be followed by the command to run there.
func (l *Lab) Enter(node string) (string, error) {
	ns := l.nodes[node]
	if ns == nil {
		return "", fmt.Errorf("lab: no node %q", node)
	}
	// /proc is the host's, so it names us as the host does. The namespace is
	// entered through our descriptor: no process need live in it.
	pid, err := os.Readlink("/proc/self")
	if err != nil {
		return "", fmt.Errorf("lab: %w", err)
	}
	uids, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return "", fmt.Errorf("lab: %w", err)
	}
	user := ""
	if !strings.Contains(string(uids), "4294967295") { // not all users: a user namespace
		user = " --user --preserve-credentials"
	}
	return fmt.Sprintf("nsenter --target %s%s --mount --net=/proc/%s/fd/%d", pid, user, pid, ns.Fd()), nil
}
