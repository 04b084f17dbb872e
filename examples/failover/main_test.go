package main

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/lastbeat/lastbeat/examples/internal/node"
)

// asProgram makes the test binary be the program, which runs itself again on the
// lab's nodes.
const asProgram = "LASTBEAT_FAILOVER_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// figuresFile is what a program reads of the figures.
type figuresFile struct {
	Fault, Peer string
	Version     int
	Simulated   bool
	Runs        []struct {
		Lost    int `json:"frames_lost"`
		Results []struct {
			VIP       string
			OldHolder string   `json:"old_holder"`
			NewHolder string   `json:"new_holder"`
			Takeover  *float64 `json:"takeover_ms"`
			Limit     *float64 `json:"limit_ms"`
			Gap       float64  `json:"gap_ms"`
			Requests  int
			Failed    int
			Moved     bool
		}
	}
}

func readFigures(t *testing.T, path string) figuresFile {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var f figuresFile
	require.NoError(t, json.Unmarshal(data, &f))
	return f
}

func milliseconds(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }

// Every node's file is one that vipnode takes, with and without VRRP of its own.
func TestNodeConfigs(t *testing.T) {
	for _, name := range nodes {
		for _, vrrp := range []bool{true, false} {
			for _, interval := range []time.Duration{time.Second, 100 * time.Millisecond} {
				text, err := yaml.Marshal(nodeConfig(name, interval, vrrp)) // as the lab writes it
				require.NoError(t, err)
				config, err := node.Parse(text)
				require.NoError(t, err, string(text))
				_, err = node.New(config, nil)
				require.NoError(t, err, "%s, VRRP %v, %v", name, vrrp, interval)
			}
		}
	}
}
