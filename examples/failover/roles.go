package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/lastbeat/lastbeat/examples/internal/load"
	"github.com/lastbeat/lastbeat/examples/internal/node"
	"github.com/lastbeat/lastbeat/examples/internal/standin"
	"github.com/lastbeat/lastbeat/health"
)

// The roles in which this program runs again on the lab's nodes, besides those of
// package standin.
const (
	roleNode  = "vipnode"
	roleLoad  = "load"
	roleProbe = "probe"
)

// runRole runs "role ROLE NODE ARGS..." until SIGTERM.
func runRole(args []string) error {
	if len(args) < 2 {
		return errors.New("role: which, and on which node?")
	}
	role, on, args := args[0], args[1], args[2:]
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	switch role {
	case roleNode:
		return runNode(ctx, args)
	case roleLoad:
		var c load.Config
		if err := json.Unmarshal([]byte(args[0]), &c); err != nil {
			return err
		}
		return load.Lines(ctx, c, os.Stdout)
	case roleProbe:
		return runProbe(ctx, args)
	}
	s, err := standin.ForRole(role, on)
	if err != nil {
		return err
	}
	return s.Run(ctx, func([]net.Addr) {})
}

// runNode is vipnode with the file that the lab has written.
func runNode(ctx context.Context, args []string) error {
	data, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	config, err := node.Parse(data)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(os.Stdout, nil))
	n, err := node.New(config, log)
	if err != nil {
		return err
	}
	for _, w := range n.Warnings() {
		log.Warn(w)
	}
	return n.Run(ctx)
}

// runProbe is a check script for keepalived: it asks the status page of the
// vipnode beside it.
func runProbe(ctx context.Context, args []string) error {
	p, err := health.NewHTTP(health.HTTPConfig{URL: args[0]})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return p.Probe(ctx)
}

// checkURL is where vipnode's status page tells about a check.
func checkURL(name string) string {
	return fmt.Sprintf("http://127.0.0.1:9455/check/%s", name)
}
