// Command tcplb balances TCP connections over servers that answer their health
// checks. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/lastbeat/lastbeat/examples/internal/balancer"
	"github.com/lastbeat/lastbeat/examples/internal/yamlx"
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

// run returns the exit status: 2 for bad input, 1 for a failure while running.
func run(args []string, stderr io.Writer) int {
	config, file, err := configure(args, stderr)
	if err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return complain(stderr, err)
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	config.Log = log
	config.OnEvent = func(e balancer.Event) {
		log.Info("backend", "backend", e.Backend, "up", e.Up, "state", e.State, "since", e.At, "reason", e.Reason)
	}
	b, err := balancer.New(config)
	if err == nil {
		err = b.Listen()
	}
	if err != nil {
		return complain(stderr, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)

	if note := b.Note(); note != "" {
		log.Warn(note)
	}
	status := b.Status()
	log.Info("serving", "listen", status.Addresses["listen"], "ready", status.Addresses["ready"], "monitor", status.Addresses["monitor"],
		"stats", status.Addresses["stats"], "control", status.Addresses["control"],
		"maxconn", status.MaxConn, "backends", len(status.Backends))

	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	for stopping := ctx.Done(); ; {
		select {
		case <-hangup:
			reload(log, b, file, config)
		case <-stopping:
			stopping = nil
			stop() // the next signal ends the process
			log.Info("stopping", "connections", b.Status().Conns.Open, "grace", config.Grace)
		case err := <-ended:
			if err != nil {
				fmt.Fprintln(stderr, "tcplb:", err)
				return 1
			}
			log.Info("stopped", "conns", b.Status().Conns)
			return 0
		}
	}
}

// complain prints one line for each fault.
func complain(stderr io.Writer, err error) int {
	for line := range strings.Lines(err.Error()) {
		// The name of an internal package means nothing to the user.
		fmt.Fprintln(stderr, "tcplb:", strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "balancer: ", ""))
	}
	return 2
}

// configure returns the configuration, and the file that it came from, if any.
func configure(args []string, stderr io.Writer) (balancer.Config, string, error) {
	config := balancer.Config{Grace: 30 * time.Second}
	flags := flag.NewFlagSet("tcplb", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // faults are printed by complain, in one line
	file := flags.String("config", "", "read all settings from this YAML `file` instead of the flags; SIGHUP reads it again")
	flags.StringVar(&config.Listen, "listen", "", "`address` for clients, such as :9445")
	flags.StringVar(&config.Ready, "ready", "", "`address` of the HTTP port that says whether this process serves")
	flags.StringVar(&config.Monitor, "monitor", "", "`address` of the HTTP port that says whether a backend is alive")
	flags.StringVar(&config.Stats, "stats", "", "`address` of the HTTP port with a page for people, and /metrics")
	flags.StringVar(&config.Control, "control", "", "`address` of the HTTP port by which servers are drained, on loopback")
	flags.TextVar(&config.MaxConn, "maxconn", balancer.Auto, "connections at once, a `number` or auto")
	flags.StringVar(&config.Algorithm, "algorithm", "", "who gets a connection: roundrobin, weightedroundrobin, leastconn, random, p2c, source, maglev or first")
	flags.DurationVar(&config.SlowStart, "slow-start", 0, "`time` in which a server that comes back rises to its whole share")
	flags.StringVar(&config.Check.Kind, "check", "https", "how backends are probed: https, http or tcp")
	flags.StringVar(&config.Check.Path, "check-path", "/readyz", "`path` that http and https probes ask for")
	flags.DurationVar(&config.Check.Interval, "check-interval", 5*time.Second, "pause between two probes of a backend")
	flags.DurationVar(&config.Check.Timeout, "check-timeout", time.Second, "time that a probe may take")
	flags.IntVar(&config.Check.Rise, "rise", 1, "good probes in a row that bring a backend up")
	flags.IntVar(&config.Check.Fall, "fall", 3, "bad probes in a row that take a backend down")
	flags.DurationVar(&config.ConnectTimeout, "connect-timeout", time.Second, "time that a backend may take to accept")
	config.Queue = flags.Int("queue", 1024, "connections that may wait while every backend is full")
	flags.DurationVar(&config.QueueTimeout, "queue-timeout", 5*time.Second, "time that one of them may wait")
	flags.DurationVar(&config.Grace, "grace", config.Grace, "time that connections may go on after SIGTERM")
	flags.Usage = func() {} // not for every fault, only when asked for
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(stderr, "usage: tcplb -listen ADDRESS [flags] BACKEND...\n       tcplb -config FILE")
		flags.SetOutput(stderr)
		flags.PrintDefaults()
		return config, "", err
	} else if err != nil {
		return config, "", fmt.Errorf("%w: tcplb -help lists the flags", err)
	}
	if *file == "" {
		config.Backends = balancer.Servers(flags.Args()...)
		if len(config.Backends) == 0 {
			return config, "", errors.New("no backend: name at least one as host:port, after the flags")
		}
		return config, "", nil
	}
	var others []string
	flags.Visit(func(f *flag.Flag) {
		if f.Name != "config" {
			others = append(others, "-"+f.Name)
		}
	})
	others = append(others, flags.Args()...)
	if len(others) > 0 {
		return config, "", fmt.Errorf("-config %s: the file gives all settings: move %s into it", *file, strings.Join(others, " "))
	}
	config, err := read(*file)
	return config, *file, err
}

// read returns the configuration in a file.
func read(file string) (balancer.Config, error) {
	config := balancer.Config{Grace: 30 * time.Second}
	data, err := os.ReadFile(file)
	if err != nil {
		return config, fmt.Errorf("-config %w: name a file that can be read", err)
	}
	if err := yamlx.Decode(data, &config); err != nil {
		var faults []error
		for line := range strings.Lines(err.Error()) {
			faults = append(faults, fmt.Errorf("%s: %s", file, strings.TrimSuffix(line, "\n")))
		}
		return config, errors.Join(faults...)
	}
	if len(config.Backends) == 0 {
		return config, fmt.Errorf("%s: backends: there is none: list at least one as host:port", file)
	}
	return config, nil
}

// reload reads the file again. A bad file changes nothing.
func reload(log *slog.Logger, b *balancer.B, file string, old balancer.Config) {
	if file == "" {
		log.Warn("nothing to reload: started without -config")
		return
	}
	config, err := read(file)
	var restart []string
	if err == nil {
		config.OnEvent, config.Log = old.OnEvent, old.Log
		restart, err = b.Update(config)
	}
	if err != nil {
		log.Error("not reloaded, all stays as it was", "err", err)
		return
	}
	log.Info("reloaded", "backends", len(config.Backends))
	if len(restart) > 0 {
		log.Warn("changes that need a restart", "keys", strings.Join(restart, " "))
	}
}
