package lastbeat_test

import (
	"fmt"
	"go/ast"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The rules of this file keep the packages independent of each other, of what
// they do not need, and of the clock. They are checked on the syntax of every
// Go file of the module, whatever platform it is for.

// driverFiles may read the clock, start timers and goroutines, and seed random
// numbers. Everything else in the library is told the time by its caller.
var driverFiles = map[string]string{
	"health/boottime_linux.go":      "the clock that goes on during a suspension",
	"health/monitor.go":             "dates what is asked and changed",
	"health/probe_icmp_linux.go":    "a token that tells our echo replies from others'",
	"health/schedule.go":            "the loop that probes",
	"internal/memnet/memnet.go":     "delivers by timer, in a synctest bubble",
	"internal/netns/netns_linux.go": "a thread of its own for each namespace",
	"lb/balancer.go":                "seeds the random start",
	"nft/table.go":                  "dates the answers of the kernel",
	"nft/table_linux.go":            "deadline of a netlink answer",
	"vrrp/conn_linux.go":            "the goroutine that drains a raw socket, and its kernel stamps",
	"vrrp/garp_linux.go":            "deadline of a raw send",
	"vrrp/holder.go":                "the loop that holds addresses",
	"vrrp/instance.go":              "the loop of a router",
}

// thirdParty lists where each foreign module may be imported, by patterns of
// [path.Match] where a trailing /... matches everything below. A module
// that is not here is imported nowhere.
var thirdParty = map[string][]string{
	"github.com/google/nftables":  {"nft/*_linux.go", "nft/*_linux_test.go"},
	"github.com/mdlayher/netlink": {"nft/*_linux.go", "nft/*_linux_test.go"},
	"github.com/mdlayher/arp":     {"vrrp/*_linux.go", "vrrp/*_linux_test.go"},
	"github.com/mdlayher/packet":  {"vrrp/*_linux.go", "vrrp/*_linux_test.go"},
	"github.com/vishvananda/netlink": {
		"vrrp/*_linux.go", "vrrp/*_linux_test.go",
		"internal/netns/*_linux.go", "internal/netns/*_linux_test.go",
		"nft/conntrack_linux.go",
	},
	"golang.org/x/sync":                   {"health/...", "vrrp/...", "nft/...", "internal/...", "examples/..."},
	"golang.org/x/sys":                    {"health/...", "vrrp/...", "nft/...", "internal/...", "examples/..."},
	"golang.org/x/net":                    {"vrrp/...", "internal/...", "examples/..."},
	"go.yaml.in/yaml/v3":                  {"examples/..."},
	"github.com/prometheus/client_golang": {"examples/..."},
	// Tests may import these everywhere; see depsRules.
	"github.com/stretchr/testify": nil,
	"pgregory.net/rapid":          nil,
	"go.uber.org/goleak":          nil,
}

var testOnly = []string{"github.com/stretchr/testify", "pgregory.net/rapid", "go.uber.org/goleak"}

// linked lists the foreign modules that end up in a program which imports only
// the package, on Linux.
var linked = map[string][]string{
	"lb":     {},
	"health": {"golang.org/x/sync", "golang.org/x/sys"},
	"nft": {
		"github.com/google/nftables", "github.com/mdlayher/netlink", "github.com/mdlayher/socket",
		"golang.org/x/net", "golang.org/x/sync", "golang.org/x/sys",
	},
	"vrrp": {
		"github.com/josharian/native", "github.com/mdlayher/arp", "github.com/mdlayher/ethernet",
		"github.com/mdlayher/packet", "github.com/mdlayher/socket", "github.com/vishvananda/netlink",
		"github.com/vishvananda/netns", "golang.org/x/net", "golang.org/x/sync", "golang.org/x/sys",
	},
}

// A depsRule returns one line for each violation in a file.
type depsRule struct {
	name  string
	check func(s source) []string
	// planted are files that the rule must catch, by path.
	planted map[string]string
	// fine are files that look alike and that it must let pass.
	fine map[string]string
}

var depsRules = []depsRule{
	{
		name: "public packages import no sibling", check: checkSiblings,
		planted: map[string]string{
			"vrrp/a.go":            `package vrrp; import _ "github.com/lastbeat/lastbeat/health"`,
			"vrrp/in_test.go":      `package vrrp; import _ "github.com/lastbeat/lastbeat/lb"`,
			"vrrp/vrrptest/a.go":   `package vrrptest; import _ "github.com/lastbeat/lastbeat/nft"`,
			"lb/example.go":        `package lb; import _ "github.com/lastbeat/lastbeat/examples/internal/lab"`,
			"health/outer_test.go": `package health_test; import _ "github.com/lastbeat/lastbeat/examples/internal/lab"`,
			"doc.go":               `package lastbeat; import _ "github.com/lastbeat/lastbeat/lb"`,
		},
		fine: map[string]string{
			"vrrp/vrrptest/a.go": `package vrrptest; import _ "github.com/lastbeat/lastbeat/vrrp"`,
			"vrrp/b_test.go":     `package vrrp_test; import _ "github.com/lastbeat/lastbeat/health"`,
			"vrrp/c.go":          `package vrrp; import _ "github.com/lastbeat/lastbeat/internal/cksum"`,
			"examples/x/main.go": `package main; import _ "github.com/lastbeat/lastbeat/vrrp"`,
		},
	},
	{
		name: "internal imports nothing public", check: checkInternal,
		planted: map[string]string{
			"internal/sim/a.go":      `package sim; import _ "github.com/lastbeat/lastbeat/vrrp"`,
			"internal/sim/a_test.go": `package sim_test; import _ "github.com/lastbeat/lastbeat/lb"`,
			"internal/sim/b.go":      `package sim; import _ "github.com/lastbeat/lastbeat/examples/internal/lab"`,
		},
		fine: map[string]string{
			"internal/netns/nstest/a.go": `package nstest; import _ "github.com/lastbeat/lastbeat/internal/netns"`,
			"examples/internal/lab/a.go": `package lab; import _ "github.com/lastbeat/lastbeat/vrrp"`,
		},
	},
	{
		name: "foreign modules stay where they are needed", check: checkThirdParty,
		planted: map[string]string{
			"lb/a.go":                 `package lb; import _ "golang.org/x/sync/errgroup"`,
			"health/a.go":             `package health; import _ "golang.org/x/net/icmp"`,
			"nft/plan.go":             `package nft; import _ "github.com/google/nftables"`,
			"nft/other_linux.go":      `package nft; import _ "github.com/vishvananda/netlink"`,
			"health/b_linux.go":       `package health; import _ "github.com/google/nftables/expr"`,
			"nft/plan_test.go":        `package nft; import _ "github.com/mdlayher/netlink"`,
			"vrrp/garp.go":            `package vrrp; import _ "github.com/mdlayher/arp"`,
			"vrrp/conn.go":            `package vrrp; import _ "github.com/mdlayher/packet"`,
			"vrrp/address.go":         `package vrrp; import _ "github.com/vishvananda/netlink/nl"`,
			"internal/netns/a.go":     `package netns; import _ "github.com/vishvananda/netlink"`,
			"vrrp/c.go":               `package vrrp; import _ "github.com/stretchr/testify/require"`,
			"internal/sim/testing.go": `package sim; import _ "pgregory.net/rapid"`,
			"examples/x/main.go":      `package main; import _ "go.uber.org/goleak"`,
			"health/yaml.go":          `package health; import _ "go.yaml.in/yaml/v3"`,
			"health/metrics.go":       `package health; import _ "github.com/prometheus/client_golang/prometheus"`,
			"health/new.go":           `package health; import _ "example.com/not/in/the/list"`,
			"nft/nftx_linux.go":       `package nft; import _ "github.com/google/nftablesextra"`,
		},
		fine: map[string]string{
			"nft/table_linux.go":   `package nft; import _ "github.com/google/nftables/expr"`,
			"vrrp/garp_linux.go":   `package vrrp; import _ "github.com/mdlayher/arp"`,
			"vrrp/some_test.go":    `package vrrp; import _ "pgregory.net/rapid"`,
			"examples/x/config.go": `package main; import _ "go.yaml.in/yaml/v3"`,
			"lb/a.go":              `package lb; import _ "net/netip"`,
		},
	},
	{
		name: "only drivers read the clock", check: checkClock,
		planted: map[string]string{
			"vrrp/now.go":       `package vrrp; import "time"; var t = time.Now()`,
			"vrrp/since.go":     `package vrrp; import "time"; func f(t time.Time) time.Duration { return time.Since(t) }`,
			"vrrp/until.go":     `package vrrp; import "time"; func f(t time.Time) time.Duration { return time.Until(t) }`,
			"vrrp/after.go":     `package vrrp; import "time"; var c = time.After(1)`,
			"vrrp/sleep.go":     `package vrrp; import "time"; func f() { time.Sleep(1) }`,
			"vrrp/timer.go":     `package vrrp; import "time"; var t = time.NewTimer(1)`,
			"vrrp/ticker.go":    `package vrrp; import "time"; var t = time.NewTicker(1)`,
			"vrrp/afterfunc.go": `package vrrp; import "time"; var t = time.AfterFunc(1, nil)`,
			"vrrp/tick.go":      `package vrrp; import "time"; var c = time.Tick(1)`,
			"vrrp/value.go":     `package vrrp; import "time"; var now func() time.Time = time.Now`,
			"vrrp/alias.go":     `package vrrp; import clock "time"; var t = clock.Now()`,
			"vrrp/unix.go":      `package vrrp; import "golang.org/x/sys/unix"; func f(t *unix.Timespec) { unix.ClockGettime(0, t) }`,
			"vrrp/dot.go":       `package vrrp; import . "time"; var t = Now()`,
			"internal/sim/a.go": `package sim; import "time"; var t = time.Now()`,
		},
		fine: map[string]string{
			"vrrp/holder.go":     `package vrrp; import "time"; var t = time.Now()`,
			"vrrp/a_test.go":     `package vrrp; import "time"; var t = time.Now()`,
			"vrrp/a.go":          `package vrrp; import "time"; var t = time.Unix(0, 0).Add(time.Second)`,
			"vrrp/local.go":      `package vrrp; func f(time interface{ Now() int }) int { return time.Now() }`,
			"examples/x/main.go": `package main; import "time"; var t = time.Now()`,
		},
	},
	{
		name: "only drivers start goroutines", check: checkGoroutines,
		planted: map[string]string{
			"lb/go.go":  `package lb; func f() { go f() }`,
			"nft/go.go": `package nft; var g = func() { for { go func() {}() } }`,
		},
		fine: map[string]string{
			"health/monitor.go": `package health; func f() { go f() }`,
			"lb/go_test.go":     `package lb; func f() { go f() }`,
		},
	},
	{
		name: "no global randomness", check: checkRandom,
		planted: map[string]string{
			"lb/v2.go":          `package lb; import "math/rand/v2"; var n = rand.IntN(3)`,
			"lb/v1.go":          `package lb; import "math/rand"; var n = rand.Intn(3)`,
			"lb/alias.go":       `package lb; import mrand "math/rand/v2"; var n = mrand.N(3)`,
			"lb/value.go":       `package lb; import "math/rand/v2"; var f = rand.Uint64`,
			"lb/dot.go":         `package lb; import . "math/rand/v2"; var n = IntN(3)`,
			"vrrp/crypto.go":    `package vrrp; import "crypto/rand"; var r = rand.Reader`,
			"internal/sim/a.go": `package sim; import "math/rand/v2"; var n = rand.Int()`,
		},
		fine: map[string]string{
			"lb/seeded.go":   `package lb; import "math/rand/v2"; var r = rand.New(rand.NewPCG(1, 2)); var n = r.IntN(3)`,
			"lb/type.go":     `package lb; import "math/rand/v2"; type C struct { Rand *rand.Rand; S rand.Source; P *rand.PCG }`,
			"lb/a_test.go":   `package lb; import "math/rand/v2"; var n = rand.IntN(3)`,
			"lb/balancer.go": `package lb; import "crypto/rand"; func f(b []byte) { rand.Read(b) }`,
		},
	},
}

func TestDependencyRules(t *testing.T) {
	all := sources(t)
	require.Greater(t, len(all), 50, "the walk must have found the module's files")
	for _, rule := range depsRules {
		t.Run(rule.name, func(t *testing.T) {
			var found []string
			for _, s := range all {
				found = append(found, rule.check(s)...)
			}
			require.Empty(t, found, strings.Join(found, "\n"))
			for _, name := range slices.Sorted(maps.Keys(rule.planted)) {
				t.Run("catches "+name, func(t *testing.T) {
					s, err := parseSource(name, rule.planted[name])
					require.NoError(t, err)
					require.NotEmpty(t, rule.check(s), rule.planted[name])
				})
			}
			for _, name := range slices.Sorted(maps.Keys(rule.fine)) {
				t.Run("passes "+name, func(t *testing.T) {
					s, err := parseSource(name, rule.fine[name])
					require.NoError(t, err)
					require.Empty(t, rule.check(s), rule.fine[name])
				})
			}
		})
	}
}

// A permission that nobody uses any more is one that nobody would notice being
// used for something else.
func TestDriverFilesAreNeeded(t *testing.T) {
	used := map[string]bool{}
	for _, s := range sources(t) {
		if driverFiles[s.path] != "" && (len(clockReads(s)) > 0 || len(goroutines(s)) > 0 || len(randomUses(s)) > 0) {
			used[s.path] = true
		}
	}
	for name := range driverFiles {
		require.True(t, used[name], "%s needs no place in driverFiles: it is gone, or reads no clock, starts no goroutine and draws nothing at random", name)
	}
}

func TestLinkedModules(t *testing.T) {
	for _, dir := range publicDirs(t) {
		family := familyOf(dir)
		t.Run(dir, func(t *testing.T) {
			allowed, known := linked[family]
			require.True(t, known, "deps_test.go does not say what %s may link: give it a line in linked", family)
			require.Empty(t, unexpectedModules(allowed, linkedModules(t, "./"+dir)))
		})
	}
	t.Run("catches a detour through internal", func(t *testing.T) {
		// internal/netns stands for a helper that lb might begin to use.
		require.Contains(t, unexpectedModules(linked["lb"], linkedModules(t, "./internal/netns")), "github.com/vishvananda/netlink")
	})
}

// linkedModules returns the modules of a package and all that it imports.
func linkedModules(t *testing.T, pkg string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", pkg)
	cmd.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	require.Contains(t, string(out), module)
	return strings.Fields(string(out))
}

func unexpectedModules(allowed, got []string) []string {
	got = slices.Compact(slices.Sorted(slices.Values(got)))
	return slices.DeleteFunc(got, func(m string) bool { return m == module || slices.Contains(allowed, m) })
}

func checkSiblings(s source) []string {
	if s.family() != "" && !s.public() || s.family() == "" && s.test() {
		return nil
	}
	var found []string
	for imp, spec := range s.imports {
		below, ours := strings.CutPrefix(imp, module+"/")
		if !ours {
			continue
		}
		family := familyOf(below)
		sibling := isPublic(family) && family != s.family() && !s.external()
		if sibling || family == "examples" {
			found = append(found, fmt.Sprintf("%s: imports %s: packages meet only below examples", s.at(spec), imp))
		}
	}
	return found
}

func checkInternal(s source) []string {
	if s.family() != "internal" {
		return nil
	}
	var found []string
	for imp, spec := range s.imports {
		below, ours := strings.CutPrefix(imp, module+"/")
		if imp == module || ours && familyOf(below) != "internal" {
			found = append(found, fmt.Sprintf("%s: internal imports %s: put the test into that package, or what it needs below internal", s.at(spec), imp))
		}
	}
	return found
}

func checkThirdParty(s source) []string {
	var found []string
	for imp, spec := range s.imports {
		host, _, _ := strings.Cut(imp, "/")
		if !strings.Contains(host, ".") || imp == module || strings.HasPrefix(imp, module+"/") {
			continue // the standard library, or ours
		}
		if !thirdPartyAllowed(s, imp) {
			found = append(found, fmt.Sprintf("%s: imports %s, which deps_test.go does not allow here", s.at(spec), imp))
		}
	}
	return found
}

func thirdPartyAllowed(s source, imp string) bool {
	for mod, where := range thirdParty {
		if imp != mod && !strings.HasPrefix(imp, mod+"/") {
			continue
		}
		if slices.Contains(testOnly, mod) {
			return s.test()
		}
		return slices.ContainsFunc(where, func(pattern string) bool {
			if dir, below := strings.CutSuffix(pattern, "/..."); below {
				return strings.HasPrefix(s.path, dir+"/")
			}
			ok, err := path.Match(pattern, s.path)
			return ok && err == nil
		})
	}
	return false
}

// driver tells whether the file may do what only drivers do.
func (s source) driver() bool {
	return s.test() || driverFiles[s.path] != "" || !s.public() && s.family() != "internal"
}

func checkClock(s source) []string {
	if s.driver() {
		return nil
	}
	return clockReads(s)
}

func clockReads(s source) []string {
	reads := []string{"Now", "Since", "Until", "After", "Sleep", "NewTimer", "NewTicker", "AfterFunc", "Tick"}
	const remedy = "reads the clock: take now from the caller, or stand in driverFiles"
	return slices.Concat(
		uses(s, "time", remedy, func(name string) bool { return slices.Contains(reads, name) }),
		uses(s, "golang.org/x/sys/unix", remedy, func(name string) bool { return name == "ClockGettime" || name == "Gettimeofday" }))
}

func checkRandom(s source) []string {
	if s.driver() {
		return nil
	}
	return randomUses(s)
}

func randomUses(s source) []string {
	const remedy = "draws from a global source: take a seed or a *rand.Rand from the caller"
	harmless := []string{"New", "NewPCG", "NewChaCha8", "NewSource", "NewZipf", "Rand", "Source", "Source64", "PCG", "ChaCha8", "Zipf"}
	global := func(name string) bool { return !slices.Contains(harmless, name) }
	return slices.Concat(
		uses(s, "math/rand", remedy, global),
		uses(s, "math/rand/v2", remedy, global),
		uses(s, "crypto/rand", remedy, func(string) bool { return true }))
}

// uses finds the selectors of an imported package whose name is bad.
func uses(s source, pkg, remedy string, bad func(string) bool) []string {
	var found []string
	for imp, spec := range s.imports {
		if imp != pkg {
			continue
		}
		local := path.Base(strings.TrimSuffix(pkg, "/v2"))
		if spec.Name != nil {
			local = spec.Name.Name
		}
		if local == "." {
			found = append(found, fmt.Sprintf("%s: imports %s by a dot, which hides what it uses of it", s.at(spec), pkg))
			continue
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			// Obj is set for what is declared in this file, such as a parameter.
			if id, ok := sel.X.(*ast.Ident); ok && id.Name == local && id.Obj == nil && bad(sel.Sel.Name) {
				found = append(found, fmt.Sprintf("%s: %s.%s %s", s.at(sel), pkg, sel.Sel.Name, remedy))
			}
			return true
		})
	}
	return found
}

func checkGoroutines(s source) []string {
	if s.driver() {
		return nil
	}
	return goroutines(s)
}

func goroutines(s source) []string {
	var found []string
	ast.Inspect(s.File, func(n ast.Node) bool {
		if g, ok := n.(*ast.GoStmt); ok {
			found = append(found, s.at(g)+": starts a goroutine: only Run does, in a file of driverFiles")
		}
		return true
	})
	return found
}
