// Command vipnode is one node's daemon: it holds virtual addresses by VRRP as
// long as its checks allow, redirects their port to its own TCP balancer, and
// tells who holds what, since when, until when that is true, and why. See
// README.md.
//
//	vipnode -config node.yaml
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

	"github.com/lastbeat/lastbeat/examples/internal/node"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run returns the exit status: 2 for what the user can put right, 1 for a failure
// while running.
func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("vipnode", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // faults are printed by complain, in one line
	path := flags.String("config", "", "the node's YAML `file`; required; SIGHUP reads it again")
	text := flags.Bool("text", false, "log as text instead of JSON")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintln(stderr, "usage: vipnode -config FILE [-text]")
		flags.SetOutput(stderr)
		flags.PrintDefaults()
		return 0
	case err != nil:
		return complain(stderr, fmt.Errorf("%w: vipnode -help lists the flags", err))
	case flags.NArg() > 0:
		return complain(stderr, fmt.Errorf("%s: not a flag: name the file with -config", flags.Arg(0)))
	}
	log := slog.New(slog.NewJSONHandler(stdout, nil))
	if *text {
		log = slog.New(slog.NewTextHandler(stdout, nil))
	}

	// Before anything is read, so that no early signal kills.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)

	config, err := read(*path)
	if err != nil {
		return complain(stderr, err)
	}
	n, err := node.New(config, log)
	if err != nil {
		return complain(stderr, inFile(*path, err))
	}
	for _, w := range n.Warnings() {
		log.Warn(w)
	}
	err = serve(ctx, stop, hangup, n, *path, log)
	if start, ok := errors.AsType[*node.StartError](err); ok {
		return complain(stderr, inFile(*path, start))
	}
	if err != nil {
		complain(stderr, err)
		return 1
	}
	log.Info("stopped", "addresses", "given up", "redirect", "removed")
	return 0
}

// serve runs the node until ctx ends. The second signal then ends the process.
func serve(ctx context.Context, stop func(), hangup <-chan os.Signal, n *node.Node, path string, log *slog.Logger) error {
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	for stopping := ctx.Done(); ; {
		select {
		case <-hangup:
			reload(n, path, log)
		case <-stopping:
			stopping = nil
			stop()
			log.Info("stopping")
		case err := <-ended:
			return err
		}
	}
}

// reload reads the file again. A faulty one changes nothing.
func reload(n *node.Node, path string, log *slog.Logger) {
	config, err := read(path)
	var restart []string
	if err == nil {
		restart, err = n.Reload(config)
	}
	if err != nil {
		for _, line := range node.Lines(err) {
			log.Error("not reloaded, all stays as it was", "err", line)
		}
		return
	}
	log.Info("reloaded")
	if len(restart) > 0 {
		log.Warn("changes that need a restart", "keys", strings.Join(restart, " "))
	}
	for _, w := range n.Warnings() {
		log.Warn(w)
	}
}

func read(path string) (node.Config, error) {
	if path == "" {
		return node.Config{}, errors.New("-config: no file: give one, such as -config node.yaml")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return node.Config{}, fmt.Errorf("-config %w: name a file that can be read", err)
	}
	config, err := node.Parse(data)
	return config, inFile(path, err)
}

// inFile names the file in each fault.
func inFile(path string, err error) error {
	if err == nil {
		return nil
	}
	var out []error
	for _, line := range node.Lines(err) {
		out = append(out, fmt.Errorf("%s: %w", path, line))
	}
	return errors.Join(out...)
}

// complain prints one line for each fault.
func complain(stderr io.Writer, err error) int {
	for _, line := range node.Lines(err) {
		fmt.Fprintln(stderr, "vipnode:", line)
	}
	return 2
}
