// Command failover shows, on one machine and with nothing installed, how an
// OpenShift-style control plane loses the master that holds its addresses and
// gets its API back: three masters, two workers and a client in network
// namespaces, each node running vipnode's code, with the measured timeline.
//
//	go run ./examples/failover
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

type options struct {
	fault    string
	advert   time.Duration
	until    string
	runs     int
	peer     string
	json     string
	svg      string
	pcap     string
	simulate bool
	seed     uint64
}

var (
	faults = []string{"silent", "carrier", "kill", "term", "freeze", "backend", "none"}
	untils = []string{"takeover", "removed", "refresh"}
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "role" {
		if err := runRole(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "failover:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, o)
	stop()
	os.Exit(code)
}

func parse(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("failover", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // a wrong flag is one line, not the whole usage
	fs.StringVar(&o.fault, "fault", "silent", "what happens to master2: "+strings.Join(faults, ", ")+"; none keeps the lab up")
	fs.DurationVar(&o.advert, "advert", time.Second, "between adverts: 1s (version 2 with a password) or 100ms (version 3)")
	fs.StringVar(&o.until, "until", "removed", "how long to watch: takeover, removed (the dead backend), refresh (60 s)")
	fs.IntVar(&o.runs, "runs", 1, "how often; more than one prints a summary")
	fs.StringVar(&o.peer, "peer", "", "keepalived: the same lab with the real one (it must be installed)")
	fs.StringVar(&o.json, "json", "", "write all figures to this `file`")
	fs.StringVar(&o.svg, "svg", "failover.svg", "draw the last run to this `file`; empty: none")
	fs.StringVar(&o.pcap, "pcap", "", "write the captured frames of the last run to this `file`")
	fs.BoolVar(&o.simulate, "simulate", false, "run the same machines in virtual time, without namespaces")
	fs.Uint64Var(&o.seed, "seed", 0, "`number` of a simulation: the same one gives the same run; 0 chooses one")
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Println("failover shows how a control plane's addresses survive their holder. Flags:")
		fs.SetOutput(os.Stdout)
		fs.PrintDefaults()
	}
	if err != nil {
		return o, err
	}
	switch {
	case fs.NArg() > 0:
		return o, fmt.Errorf("%q: flags only; see -help", fs.Arg(0))
	case !slices.Contains(faults, o.fault):
		return o, fmt.Errorf("-fault %s: choose one of %s", o.fault, strings.Join(faults, ", "))
	case !slices.Contains(untils, o.until):
		return o, fmt.Errorf("-until %s: choose one of %s", o.until, strings.Join(untils, ", "))
	case o.advert != time.Second && o.advert != 100*time.Millisecond:
		return o, fmt.Errorf("-advert %v: choose 1s or 100ms", o.advert)
	case o.runs < 1:
		return o, fmt.Errorf("-runs %d: at least 1", o.runs)
	case o.peer != "" && o.peer != "keepalived":
		return o, fmt.Errorf("-peer %s: only keepalived", o.peer)
	case o.peer != "" && o.simulate:
		return o, errors.New("-peer keepalived and -simulate: the real one cannot be simulated; choose one")
	case o.fault == "none" && o.simulate:
		return o, errors.New("-fault none keeps a real lab up, and a simulation has nothing to enter: leave out -simulate")
	case o.pcap != "" && o.simulate:
		return o, errors.New("-pcap and -simulate: a simulation has no frames; choose one")
	case o.seed != 0 && !o.simulate:
		return o, errors.New("-seed: only a simulation has one; add -simulate")
	}
	return o, o.checkFiles()
}

// checkFiles tells before a run, not after it, that its results cannot be written.
func (o options) checkFiles() error {
	for _, f := range []struct{ name, path string }{{"-json", o.json}, {"-svg", o.svg}, {"-pcap", o.pcap}} {
		if f.path == "" || o.fault == "none" {
			continue
		}
		_, err := os.Stat(f.path)
		isNew := errors.Is(err, os.ErrNotExist)
		file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			return fmt.Errorf("%s: %w: name a file that can be written", f.name, err)
		}
		err = file.Close()
		if isNew {
			err = errors.Join(err, os.Remove(f.path))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

func (o options) setup() setup {
	s := setup{Peer: "lastbeat", FaultKind: o.fault, Interval: o.advert, Version: 2, Simulated: o.simulate, Seed: o.seed}
	if o.peer != "" {
		s.Peer = o.peer
	}
	s.Lifetime = 5 * time.Second
	if o.advert < time.Second {
		s.Version, s.Lifetime = 3, 3*time.Second
	}
	if o.peer != "" {
		s.Lifetime = 0
	}
	return s
}

// run returns the exit status.
func run(ctx context.Context, o options) int {
	if !o.simulate {
		code, err := runLab(ctx, o)
		if !errors.Is(err, errNoLab) {
			if err != nil {
				fmt.Fprintln(os.Stderr, "failover:", err)
			}
			return code
		}
		if o.peer != "" || o.fault == "none" {
			fmt.Fprintln(os.Stderr, "failover:", err)
			return 2
		}
		fmt.Printf("simulated: %v\nsimulated: so nothing real happens here; the same machines run in virtual time\n", err)
		o.simulate = true
	}
	if err := runSimulated(o); err != nil {
		fmt.Fprintln(os.Stderr, "failover:", err)
		return 1
	}
	return 0
}

// errNoLab says that no lab can be built on this machine, and why.
var errNoLab = errors.New("no lab on this machine")

func runSimulated(o options) error {
	if o.seed == 0 {
		o.seed = rand.Uint64N(1_000_000) + 1
	}
	var runs []outcome
	for i := range o.runs {
		s := o.setup()
		s.Simulated, s.Seed = true, o.seed+uint64(i)
		fmt.Printf("simulated: %s; seed %d\n", s.describe(), s.Seed)
		obs, err := simulate(s, o.until)
		if err != nil {
			return err
		}
		out := judge(obs)
		if err := out.run().WriteEvents(os.Stdout); err != nil {
			return err
		}
		if err := out.writeResults(os.Stdout); err != nil {
			return err
		}
		runs = append(runs, out)
	}
	return finish(o, runs, "simulated: ")
}

// finish writes what is asked for after the last run.
func finish(o options, runs []outcome, prefix string) error {
	if len(runs) == 0 {
		return nil
	}
	if len(runs) > 1 {
		if err := writeSummary(os.Stdout, runs, prefix); err != nil {
			return err
		}
	}
	last := runs[len(runs)-1]
	var err error
	if o.svg != "" {
		err = errors.Join(err, toFile(o.svg, func(f *os.File) error { return last.run().WriteSVG(f) }))
		fmt.Printf("%spicture: %s\n", prefix, o.svg)
	}
	if o.json != "" {
		err = errors.Join(err, toFile(o.json, func(f *os.File) error { return writeJSON(f, last.obs.Setup, runs) }))
		fmt.Printf("%sfigures: %s\n", prefix, o.json)
	}
	return err
}

func toFile(path string, write func(*os.File) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

const freezeFor = 10 * time.Second

// runLength is how long a run is watched after the fault.
func runLength(fault, until string) time.Duration {
	switch until {
	case "takeover":
		if fault == "kill" || fault == "freeze" {
			return 15 * time.Second // the old kernel lets go, the frozen one comes back
		}
		return 8 * time.Second
	case "removed":
		return 21 * time.Second
	}
	return 72 * time.Second // a takeover, its opening round of 5 s, and 60 s
}
