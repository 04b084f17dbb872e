package nft

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite testdata/*.nft")

func TestRender(t *testing.T) {
	for name, test := range map[string]struct {
		opts Options
		cfg  Config
	}{
		"empty":  {},
		"mixed":  {Options{}, Config{Redirects: []Redirect{dns4, api6, api4}}},
		"custom": {Options{Table: "node-7", Priority: -50, Timeout: 90*time.Minute + 1500*time.Millisecond}, Config{Redirects: []Redirect{api6}}},
	} {
		t.Run(name, func(t *testing.T) {
			tab, err := New(test.opts)
			require.NoError(t, err)
			got, err := tab.Render(test.cfg)
			require.NoError(t, err)
			file := filepath.Join("testdata", name+".nft")
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
		})
	}
}

func TestRenderDoesNotDependOnOrder(t *testing.T) {
	tab, err := New(Options{})
	require.NoError(t, err)
	list := manyRedirects(50)
	forward, err := tab.Render(Config{Redirects: list})
	require.NoError(t, err)
	slices.Reverse(list)
	backward, err := tab.Render(Config{Redirects: list})
	require.NoError(t, err)
	require.Equal(t, forward, backward)
	require.Equal(t, 8, strings.Count(forward, "fib daddr type local"), "rules")
}

func TestTimeText(t *testing.T) {
	require.Equal(t, "500ms", timeText(500*time.Millisecond))
	require.Equal(t, "1d1h1m1s1ms", timeText(25*time.Hour+time.Minute+time.Second+time.Millisecond))
}
