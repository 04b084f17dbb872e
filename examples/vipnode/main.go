// Command vipnode is one node's daemon: it holds virtual addresses by VRRP as
// long as its checks allow, redirects their port to its own TCP balancer, and
// tells who holds what, since when, until when that is true, and why.
//
//	vipnode -config node.yaml
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/lastbeat/lastbeat/examples/internal/node"
)

func main() {
	path := flag.String("config", "", "the node's YAML `file`; required")
	text := flag.Bool("text", false, "log as text instead of JSON")
	flag.Parse()
	log := slog.New(slog.NewJSONHandler(os.Stdout, nil))
	if *text {
		log = slog.New(slog.NewTextHandler(os.Stdout, nil))
	}
	os.Exit(run(*path, log))
}

// run returns the exit status: 2 for what the user can put right, 1 for a failure
// while running.
func run(path string, log *slog.Logger) int {
	n, err := load(path, log)
	if err != nil {
		complain(path, err)
		return 2
	}
	for _, w := range n.Warnings() {
		log.Warn(w)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	go reloads(ctx, n, path, log)

	err = n.Run(ctx)
	if start, ok := errors.AsType[*node.StartError](err); ok {
		complain(path, start)
		return 2
	}
	if err != nil {
		complain(path, err)
		return 1
	}
	log.Info("stopped", "addresses", "given up", "redirect", "removed")
	return 0
}

func load(path string, log *slog.Logger) (*node.Node, error) {
	config, err := read(path)
	if err != nil {
		return nil, err
	}
	return node.New(config, log)
}

func read(path string) (node.Config, error) {
	if path == "" {
		return node.Config{}, errors.New("no file: give one with -config node.yaml")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return node.Config{}, err
	}
	return node.Parse(data)
}

// reloads reads the file again at each SIGHUP.
func reloads(ctx context.Context, n *node.Node, path string, log *slog.Logger) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
		}
		config, err := read(path)
		var restart []string
		if err == nil {
			restart, err = n.Reload(config)
		}
		if err != nil {
			log.Error("reload: nothing changed", "err", err)
			continue
		}
		log.Info("reloaded", "need restart", strings.Join(restart, ", "))
	}
}

// complain prints one line for each fault.
func complain(path string, err error) {
	for _, line := range node.Lines(err) {
		fmt.Fprintf(os.Stderr, "vipnode: %s: %v\n", path, line)
	}
}
