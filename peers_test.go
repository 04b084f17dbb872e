package lastbeat_test

import (
	"go/ast"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A program that stays installed hides that `make peers` forgot it, so the list
// is compared with what the tests ask nstest.Peer for.
func TestPeersInstallsWhatTestsNeed(t *testing.T) {
	text, err := os.ReadFile(".ci/peers")
	require.NoError(t, err)
	_, list, _ := strings.Cut(string(text), "\npeers='\n")
	list, _, found := strings.Cut(list, "\n'\n")
	require.True(t, found, "the list in .ci/peers")
	var programs []string
	for line := range strings.Lines(list) {
		programs = append(programs, strings.Fields(line)[1:]...)
	}

	var needed []string
	for _, s := range sources(t) {
		needed = append(needed, peersOf(s)...)
	}
	require.NotEmpty(t, needed)
	for _, name := range needed {
		require.Contains(t, programs, name, ".ci/peers installs no package for it")
	}

	t.Run("catches a new one", func(t *testing.T) {
		s, err := parseSource("vrrp/a_linux_test.go", `package vrrp; func f() { nstest.Peer(t, "frr") }`)
		require.NoError(t, err)
		require.False(t, slices.Contains(programs, peersOf(s)[0]))
	})
}

// peersOf returns the programs that a file names in calls of nstest.Peer.
func peersOf(s source) []string {
	var names []string
	ast.Inspect(s.File, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 2 {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || sel.Sel.Name != "Peer" {
			return true
		}
		if lit, ok := call.Args[1].(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if name, err := strconv.Unquote(lit.Value); err == nil {
				names = append(names, name)
			}
		}
		return true
	})
	return names
}
