package lastbeat_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/doc"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// The rules of this file keep the packages usable by strangers: what they export
// is made of the standard library's types and their own, is documented, and is
// shown by an example that runs.

// apiExceptions lists what may break a rule, as "rule: package.Name" with the
// reason. An entry that is not needed fails the test.
var apiExceptions = map[string]string{}

// bannedTypes are standard types that have a better successor.
var bannedTypes = map[string]string{
	"net.IP":     "netip.Addr",
	"net.IPMask": "netip.Prefix",
	"net.IPNet":  "netip.Prefix",
	"net.IPAddr": "netip.Addr",
}

func TestAPI(t *testing.T) {
	imports := newExportData(t)
	used := map[string]bool{}
	// report drops the exceptions.
	report := func(t *testing.T, rule string, found []finding) {
		t.Helper()
		var lines []string
		for _, f := range found {
			key := rule + ": " + f.name
			if apiExceptions[key] != "" {
				used[key] = true
				continue
			}
			lines = append(lines, f.name+": "+f.text)
		}
		require.Empty(t, lines, strings.Join(lines, "\n"))
	}
	files := map[string][]source{}
	for _, s := range sources(t) {
		files[path.Dir(s.path)] = append(files[path.Dir(s.path)], s)
	}
	for _, dir := range publicDirs(t) {
		t.Run(dir, func(t *testing.T) {
			t.Run("types", func(t *testing.T) {
				pkg, err := imports.Import(module + "/" + dir)
				require.NoError(t, err)
				report(t, "types", foreignTypes(pkg, imports.standard))
			})
			t.Run("documented", func(t *testing.T) { report(t, "documented", undocumented(files[dir])) })
			t.Run("example", func(t *testing.T) { report(t, "example", withoutExample(dir, files[dir])) })
		})
	}
	for key := range apiExceptions {
		require.True(t, used[key], "the exception %q is not needed", key)
	}
}

// A finding is a violation of a rule by an exported name.
type finding struct{ name, text string }

// exportData imports packages from the compiler's output, as `go build` sees them.
type exportData struct {
	types.Importer
	files map[string]string // import path to file
	std   map[string]bool
}

func newExportData(t *testing.T) *exportData {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Export,Standard", "./...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	e := &exportData{files: map[string]string{}, std: map[string]bool{}}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Export string
			Standard           bool
		}
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		e.files[p.ImportPath], e.std[p.ImportPath] = p.Export, p.Standard
	}
	e.Importer = importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(e.files[path])
	})
	return e
}

func (e *exportData) standard(path string) bool { return e.std[path] }

// foreignTypes finds exported names of pkg whose types name what an importer
// should not have to know: types of other modules, of siblings, of internal
// packages, and bannedTypes.
func foreignTypes(pkg *types.Package, standard func(string) bool) []finding {
	w := &typeWalk{pkg: pkg, standard: standard, seen: map[types.Type]bool{}}
	for _, name := range pkg.Scope().Names() {
		if obj := pkg.Scope().Lookup(name); obj.Exported() {
			w.where = pkg.Name() + "." + name
			w.walk(obj.Type())
		}
	}
	return w.found
}

type typeWalk struct {
	pkg      *types.Package
	standard func(string) bool
	seen     map[types.Type]bool
	where    string
	found    []finding
}

func (w *typeWalk) walk(t types.Type) {
	if w.seen[t] {
		return
	}
	switch t.(type) {
	case *types.Named, *types.Alias:
		// Others are cheap, and worth reporting at each name that uses them.
		w.seen[t] = w.own(t)
	}
	switch t := t.(type) {
	case *types.Alias:
		w.name(t.Obj())
		w.list(t.TypeArgs())
		if w.own(t) {
			w.walk(t.Rhs())
		}
	case *types.Named:
		w.name(t.Obj())
		w.list(t.TypeArgs())
		if !w.own(t) {
			return
		}
		w.params(t.TypeParams())
		w.walk(t.Underlying())
		for m := range t.Methods() {
			if m.Exported() {
				w.at("."+m.Name(), m.Type())
			}
		}
	case *types.Pointer:
		w.walk(t.Elem())
	case *types.Slice:
		w.walk(t.Elem())
	case *types.Array:
		w.walk(t.Elem())
	case *types.Chan:
		w.walk(t.Elem())
	case *types.Map:
		w.walk(t.Key())
		w.walk(t.Elem())
	case *types.Signature:
		w.params(t.TypeParams())
		for v := range t.Params().Variables() {
			w.walk(v.Type())
		}
		for v := range t.Results().Variables() {
			w.walk(v.Type())
		}
	case *types.Struct:
		for f := range t.Fields() {
			// What an embedded field promotes is visible even if its name is not.
			if f.Exported() || f.Embedded() {
				w.at("."+f.Name(), f.Type())
			}
		}
	case *types.Interface:
		for e := range t.EmbeddedTypes() {
			w.walk(e)
		}
		for m := range t.ExplicitMethods() {
			if m.Exported() {
				w.at("."+m.Name(), m.Type())
			}
		}
	case *types.Union:
		for term := range t.Terms() {
			w.walk(term.Type())
		}
	}
}

// at walks a part of the present name.
func (w *typeWalk) at(part string, t types.Type) {
	before := w.where
	w.where += part
	w.walk(t)
	w.where = before
}

func (w *typeWalk) params(l *types.TypeParamList) {
	for p := range l.TypeParams() {
		w.walk(p.Constraint())
	}
}

func (w *typeWalk) list(l *types.TypeList) {
	for t := range l.Types() {
		w.walk(t)
	}
}

// own tells whether a named type is declared in the package itself.
func (w *typeWalk) own(t types.Type) bool {
	named, ok := t.(interface{ Obj() *types.TypeName })
	return ok && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == w.pkg.Path()
}

// name judges the use of a named type.
func (w *typeWalk) name(obj *types.TypeName) {
	pkg := obj.Pkg()
	if pkg == nil || pkg.Path() == w.pkg.Path() {
		return // predeclared, or the package's own
	}
	full := pkg.Path() + "." + obj.Name()
	below, ours := strings.CutPrefix(pkg.Path(), module+"/")
	sameFamily := ours && familyOf(below) == familyOf(strings.TrimPrefix(w.pkg.Path(), module+"/"))
	switch {
	case bannedTypes[full] != "":
		w.found = append(w.found, finding{w.where, "uses " + full + ": use " + bannedTypes[full]})
	case !w.standard(pkg.Path()) && !sameFamily:
		w.found = append(w.found, finding{w.where, "uses " + full + ", which an importer would have to know: use a type of the package or of the standard library"})
	}
}

// undocumented finds exported names without a doc comment, on every platform.
func undocumented(files []source) []finding {
	var found []finding
	for _, s := range files {
		if s.test() {
			continue
		}
		missing := func(n ast.Node, parts ...string) {
			found = append(found, finding{s.Name.Name + "." + strings.Join(parts, "."), s.at(n) + ": has no doc comment"})
		}
		for _, decl := range s.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				recv := receiver(d)
				if d.Name.IsExported() && (recv == "" || ast.IsExported(recv)) && d.Doc.Text() == "" {
					missing(d, strings.TrimPrefix(recv+"."+d.Name.Name, "."))
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						if !spec.Name.IsExported() {
							continue
						}
						if spec.Doc.Text() == "" && (d.Doc.Text() == "" || d.Lparen.IsValid()) {
							missing(spec, spec.Name.Name)
						}
						undocumentedFields(spec.Type, d.Doc.Text()+spec.Doc.Text(), func(n ast.Node, name string) { missing(n, spec.Name.Name, name) })
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							own := spec.Doc.Text() != "" || spec.Comment.Text() != ""
							// One comment may explain a group: errors, for example.
							if name.IsExported() && !own && d.Doc.Text() == "" {
								missing(name, name.Name)
							}
						}
					}
				}
			}
		}
	}
	return found
}

// undocumentedFields finds exported fields and interface methods that no comment
// explains: none of their own, none of the type that says their name as a word,
// as where several belong together. A field that has the name of its type, as
// in "State State" or "State HolderState", is explained there.
func undocumentedFields(t ast.Expr, about string, missing func(ast.Node, string)) {
	var list *ast.FieldList
	switch t := t.(type) {
	case *ast.StructType:
		list = t.Fields
	case *ast.InterfaceType:
		list = t.Methods
	default:
		return
	}
	for _, f := range list.List {
		about += f.Doc.Text() + f.Comment.Text()
	}
	words := strings.FieldsFunc(about, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	for _, f := range list.List {
		for _, name := range f.Names {
			own := f.Doc.Text() != "" || f.Comment.Text() != ""
			if name.IsExported() && !own && !slices.Contains(words, name.Name) && !namesakes(name, f.Type) {
				missing(f, name.Name)
			}
		}
		undocumentedFields(f.Type, "", missing)
	}
}

func namesakes(name *ast.Ident, t ast.Expr) bool {
	id, ok := t.(*ast.Ident)
	return ok && id.IsExported() && strings.HasSuffix(id.Name, name.Name)
}

// receiver returns the name of the receiver's type, or "".
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return fmt.Sprintf("%T", t)
		}
	}
}

// withoutExample reports a package that has no Example with output.
func withoutExample(name string, files []source) []finding {
	var tests []*ast.File
	for _, s := range files {
		// A file for one platform, or with namespaces, does not run everywhere.
		if s.test() && !strings.HasSuffix(s.path, "_linux_test.go") {
			tests = append(tests, s.File)
		}
	}
	if slices.ContainsFunc(doc.Examples(tests...), func(e *doc.Example) bool { return e.Output != "" || e.EmptyOutput }) {
		return nil
	}
	return []finding{{name, "has no Example with an Output comment"}}
}
