// Package lab is a control plane's network on one machine: three masters, two
// workers and a client on one switch, each in a network namespace of its own,
// with the addresses of an OpenShift cluster on bare metal.
//
// A [Lab] is made by a process that lives in namespaces of its own, the first
// of its process namespace (package netns says how): all that the lab starts
// dies with it, however it ends. The nodes' processes are the same program,
// executed again with a role.
//
//	l, err := lab.New(lab.Config{Line: ..., Packet: ...})
//	defer l.Close()
//	l.Start("master0", "api")
//	l.Start("client", "load")
//	l.Silent("master2")
//
// A capture on the switch sees all that passes. Each fault puts a [Mark] among
// its packets just before it acts, so that cause and effect have one clock.
//
// The addresses and [KeepalivedConfig] are plain data on every system; a Lab is
// for Linux.
package lab

import (
	"io"
	"os/exec"

	"github.com/lastbeat/lastbeat/examples/internal/capture"
)

// Config configures [New]. Its functions are called from goroutines of the lab,
// each one at a time. While one does not return, what it would be told next
// waits; it may call the lab's methods except Close, Stop and Wait.
type Config struct {
	// Command makes the command of a role on a node; nil runs this program
	// again as "role ROLE NODE ARGS...". The lab sets its output, its process
	// group and its namespace, and starts it.
	Command func(node, role string, args []string) *exec.Cmd

	// Line gets each line that a process writes to its standard output.
	Line func(Line)

	// Ended is told when a process has ended, after its last line.
	Ended func(End)

	// Packet gets what the capture on the switch sees.
	Packet func(capture.Packet)

	// Pcap, if set, receives the captured frames as a file for tcpdump.
	Pcap io.Writer
}

// Line is a line of output.
type Line struct {
	Node, Role string
	Text       string
}

// End is the end of a process.
type End struct {
	Node, Role string
	Err        error    // nil for exit status 0
	Asked      bool     // we had told it to end, or killed it
	Stderr     []string // the last lines of its standard error
}

// Mark is the text of the marks that the lab sends, as JSON. A fault carries
// its kind: silent, carrier, kill, term or freeze. The other events undo one:
// restore, thaw.
type Mark struct {
	Event string `json:"event"`
	Fault string `json:"fault,omitempty"`
	Node  string `json:"node"`
	Role  string `json:"role,omitempty"`
}
