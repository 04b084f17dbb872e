package lastbeat_test

import (
	"go/ast"
	"go/types"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAPIRulesCatchForeignTypes(t *testing.T) {
	imports := newExportData(t)
	cases := map[string]struct {
		text string
		want string // the name that is found, "" for none
	}{
		"third-party parameter":    {`import "github.com/google/nftables"; func F(t *nftables.Table) {}`, "p.F"},
		"third-party result":       {`import "github.com/google/nftables"; func F() (map[string][]nftables.Rule, error) { return nil, nil }`, "p.F"},
		"third-party field":        {`import "github.com/vishvananda/netlink"; type T struct { Link netlink.Link }`, "p.T.Link"},
		"third-party embedded":     {`import "github.com/google/nftables"; type conn = nftables.Conn; type T struct { *conn }`, "p.T.conn"},
		"third-party method":       {`import "github.com/google/nftables"; type T struct{}; func (*T) M(func(...nftables.Chain)) {}`, "p.T.M"},
		"third-party variable":     {`import "github.com/google/nftables"; var V chan nftables.Chain`, "p.V"},
		"third-party alias":        {`import "github.com/google/nftables"; type T = nftables.Chain`, "p.T"},
		"third-party underlying":   {`import "github.com/google/nftables"; type T nftables.Rule`, "p.T.Table"},
		"third-party constraint":   {`import "github.com/google/nftables"; type T[K interface{ *nftables.Rule }] struct{}`, "p.T"},
		"third-party argument":     {`import ("sync/atomic"; "github.com/google/nftables"); type T struct { P atomic.Pointer[nftables.Rule] }`, "p.T.P"},
		"through an unexported":    {`import "github.com/google/nftables"; type t struct { Table nftables.Table }; func New() *t { return nil }`, "p.New.Table"},
		"interface method":         {`import "github.com/google/nftables"; type I interface { M() nftables.Table }`, "p.I.M"},
		"internal type":            {`import "github.com/lastbeat/lastbeat/internal/sim"; func F(*sim.World) {}`, "p.F"},
		"sibling's type":           {`import "github.com/lastbeat/lastbeat/health"; func F(health.Status) {}`, "p.F"},
		"net.IP parameter":         {`import "net"; func F(net.IP) {}`, "p.F"},
		"net.IP result":            {`import "net"; func F() []net.IP { return nil }`, "p.F"},
		"net.IP field":             {`import "net"; type T struct { IP net.IP }`, "p.T.IP"},
		"net.IP embedded":          {`import "net"; type T struct { net.IP }`, "p.T.IP"},
		"net.IPNet":                {`import "net"; var V map[string]*net.IPNet`, "p.V"},
		"own and standard types":   {`import ("net"; "net/netip"); type T struct { A netip.Addr; C net.PacketConn; N *T }; func (T) M() error { return nil }`, ""},
		"hidden third-party field": {`import "github.com/google/nftables"; type T struct { conn *nftables.Conn }; func f(nftables.Table) {}`, ""},
		"a type of the family":     {`import "github.com/lastbeat/lastbeat/vrrp"; func F(vrrp.Config) {}`, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := parseSource("vrrp/p/planted.go", "package p; "+c.text)
			require.NoError(t, err)
			conf := types.Config{Importer: imports}
			pkg, err := conf.Check(module+"/vrrp/p", s.fset, []*ast.File{s.File}, nil)
			require.NoError(t, err)
			require.Equal(t, c.want, firstName(foreignTypes(pkg, imports.standard)))
		})
	}
}

func TestAPIRulesCatchMissingDocs(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"func":              {"func F() {}", "p.F"},
		"method":            {"// T is.\ntype T[K any] struct{}\nfunc (*T[K]) M() {}", "p.T.M"},
		"type":              {"type T int", "p.T"},
		"type in a group":   {"// These are.\ntype (\n\tT int\n)", "p.T"},
		"const":             {"const C = 1", "p.C"},
		"var in a group":    {"var (\n\tV int\n)", "p.V"},
		"field":             {"// T is.\ntype T struct {\n\tA int\n}", "p.T.A"},
		"nested field":      {"// T is.\ntype T struct {\n\tA struct{ B int } // is\n}", "p.T.B"},
		"field of its type": {"// S is.\ntype S int\n\n// T is.\ntype T struct {\n\tS S\n\tR S\n}", "p.T.R"},
		"interface method":  {"// I is.\ntype I interface {\n\tM()\n}", "p.I.M"},
		"all documented": {"// C is.\nconst C = 1\n\n// T is.\ntype T struct {\n\tA, B int // are\n\t// D is.\n\tD int\n\tc int\n}\n\n" +
			"// M does.\nfunc (T) M() {}\n\nfunc f() {}\n\ntype t struct{ X int }\n\nfunc (t) M() {}\n\n" +
			"// Errors.\nvar (\n\tErrA = f\n\tErrB = f\n)", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := parseSource("p/planted.go", "package p\n\n"+c.text)
			require.NoError(t, err)
			require.Equal(t, c.want, firstName(undocumented([]source{s})))
		})
	}
}

func TestAPIRulesCatchMissingExamples(t *testing.T) {
	example := "package p_test\n\nfunc ExampleF() {\n\tprintln()\n\t// Output: x\n}"
	cases := map[string]struct{ path, text, want string }{
		"none":           {"p/a_test.go", "package p_test\n\nfunc TestF() {}", "p"},
		"without output": {"p/a_test.go", "package p_test\n\nfunc ExampleF() {\n\tprintln()\n}", "p"},
		"on linux only":  {"p/a_linux_test.go", example, "p"},
		"with output":    {"p/a_test.go", example, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := parseSource(c.path, c.text)
			require.NoError(t, err)
			require.Equal(t, c.want, firstName(withoutExample("p", []source{s})))
		})
	}
}

func firstName(found []finding) string {
	if len(found) == 0 {
		return ""
	}
	return found[0].name
}
