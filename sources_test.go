package lastbeat_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/lastbeat/lastbeat"

// A source is one parsed Go file.
type source struct {
	path string // from the module's root, with slashes
	*ast.File
	fset *token.FileSet
}

func parseSource(name, text string) (source, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, text, parser.ParseComments)
	return source{name, f, fset}, err
}

// sources parses all Go files of this module; nested modules, testdata and
// hidden directories are not part of it.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name == "." {
				return nil
			}
			_, err := os.Stat(filepath.Join(name, "go.mod"))
			if err == nil || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		s, err := parseSource(filepath.ToSlash(name), string(text))
		all = append(all, s)
		return err
	})
	require.NoError(t, err)
	return all
}

// test tells whether the file belongs to tests only.
func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

// external tells whether the file is of the package that tests from outside.
func (s source) external() bool { return s.test() && strings.HasSuffix(s.Name.Name, "_test") }

// family is the first element of the file's directory: "vrrp" for vrrp and all
// below it, "" for the root.
func (s source) family() string { return familyOf(path.Dir(s.path)) }

// public tells whether the file is of a package that others import.
func (s source) public() bool { return isPublic(s.family()) }

func familyOf(dir string) string {
	first, _, _ := strings.Cut(dir, "/")
	return strings.TrimPrefix(first, ".")
}

func isPublic(family string) bool {
	return family != "" && family != "internal" && family != "examples"
}

// at is the position of a node, for a message.
func (s source) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", s.path, s.fset.Position(n.Pos()).Line)
}

// imports yields the import paths with their specs.
func (s source) imports(yield func(string, *ast.ImportSpec) bool) {
	for _, spec := range s.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err == nil && !yield(name, spec) {
			return
		}
	}
}

// publicDirs returns the directories of the packages that others import.
func publicDirs(t *testing.T) []string {
	t.Helper()
	var dirs []string
	for _, s := range sources(t) {
		if dir := path.Dir(s.path); s.public() && !s.test() && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	require.GreaterOrEqual(t, len(dirs), 4, "the walk must have found the packages")
	return dirs
}
