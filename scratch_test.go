package lastbeat_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The module is not published, so these tests do what its README tells a user
// to do: require it in a module of one's own and replace it by this directory.

func TestImportFromAnotherModule(t *testing.T) {
	for _, dir := range publicDirs(t) {
		t.Run(dir, func(t *testing.T) {
			m := newScratch(t)
			if len(linked[familyOf(dir)]) == 0 {
				// It must build for somebody who has downloaded nothing at all, and can't.
				m.env = append(m.env, "GOPROXY=off", "GOMODCACHE="+t.TempDir(), "GOFLAGS=-modcacherw")
			} else {
				m.takeSums()
			}
			m.write("main.go", "package main\n\nimport _ \""+module+"/"+dir+"\"\n\nfunc main() {}\n")
			m.run("build", "-o", "app", ".")
		})
	}
	t.Run("catches a package that is not there", func(t *testing.T) {
		m := newScratch(t)
		m.write("main.go", "package main\n\nimport _ \""+module+"/nothing\"\n\nfunc main() {}\n")
		out, err := m.command("build", "-o", "app", ".").CombinedOutput()
		require.Error(t, err, string(out))
	})
}

func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	require.Less(t, strings.Count(string(text), "\n"), 120, "lines of README.md")

	t.Run("the program runs", func(t *testing.T) {
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(text, -1)
		require.Len(t, blocks, 1, "blocks of Go in README.md")
		m := newScratch(t)
		m.takeSums()
		m.write("main.go", string(blocks[0][1]))
		m.run("vet", ".")
		out := m.run("run", ".")
		for _, line := range []string{
			"a is online: the next connection goes to ",
			"b is online: the next connection goes to ",
			"b is offline: the next connection goes to a\n",
			"a is unknown: expired\n",
		} {
			require.Contains(t, out, line)
		}
	})
	t.Run("it shows how to require the module", func(t *testing.T) {
		require.Contains(t, string(text), "go mod edit "+strings.Join(requireArgs("PATH"), " "))
	})
	t.Run("its table has every package", func(t *testing.T) {
		for _, dir := range publicDirs(t) {
			require.Contains(t, string(text), "| [`"+dir+"`]("+dir+") |")
		}
	})
	t.Run("its links lead somewhere", func(t *testing.T) {
		prose := regexp.MustCompile("(?s)```.*?```").ReplaceAll(text, nil)
		for _, link := range regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllSubmatch(prose, -1) {
			if target := string(link[1]); !strings.Contains(target, "://") {
				_, err := os.Stat(target)
				require.NoError(t, err)
			}
		}
	})
}

// requireArgs are the arguments of go mod edit that the README gives.
func requireArgs(dir string) []string {
	return []string{"-require=" + module + "@v0.0.0", "-replace=" + module + "=" + dir}
}

// A scratch is somebody else's module that uses this one.
type scratch struct {
	t   *testing.T
	dir string
	env []string
}

func newScratch(t *testing.T) *scratch {
	t.Helper()
	root, err := os.Getwd()
	require.NoError(t, err)
	m := &scratch{t: t, dir: t.TempDir(), env: []string{"GOSUMDB=off", "GOWORK=off", "GOFLAGS="}}
	m.run("mod", "init", "example.com/scratch")
	m.run(append([]string{"mod", "edit"}, requireArgs(root)...)...)
	return m
}

// takeSums lets the scratch have the modules which this one needs, as a user's go
// mod tidy does. Most are in the module cache since these tests were built; a few
// files that only tell of requirements may have to be downloaded.
func (m *scratch) takeSums() {
	m.t.Helper()
	sums, err := os.ReadFile("go.sum")
	require.NoError(m.t, err)
	m.write("go.sum", string(sums))
	m.env = append(m.env, "GOFLAGS=-mod=mod")
}

func (m *scratch) write(name, text string) {
	m.t.Helper()
	require.NoError(m.t, os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o644))
}

func (m *scratch) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(m.t.Context(), "go", args...)
	cmd.Dir = m.dir
	cmd.Env = append(os.Environ(), m.env...)
	return cmd
}

func (m *scratch) run(args ...string) string {
	m.t.Helper()
	out, err := m.command(args...).CombinedOutput()
	require.NoError(m.t, err, "go %s:\n%s", strings.Join(args, " "), out)
	return string(out)
}
