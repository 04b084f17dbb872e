package yamlx

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type config struct {
	Name  string        `yaml:"name"`
	Every time.Duration `yaml:"every"`
	Count int           `yaml:"count"`
	On    bool          `yaml:"on"`
	Hosts []string      `yaml:"hosts"`
	Check struct {
		Fall  uint8         `yaml:"fall"`
		After time.Duration `yaml:"after"`
	} `yaml:"check"`
	Nodes []struct {
		Port int `yaml:"port"`
	} `yaml:"nodes"`
	Odd odd `yaml:"odd"`

	Source netip.Addr     `yaml:"source"`
	VIPs   []netip.Prefix `yaml:"vips"`
}

type odd int

func (*odd) UnmarshalText(text []byte) error { return errors.New("odd " + string(text) + ": is even") }

func TestDecode(t *testing.T) {
	want := config{Name: "a", Every: 1500 * time.Millisecond, Hosts: []string{"x", "y"}}
	want.Check.Fall = 3
	var got config
	require.NoError(t, Decode([]byte("name: a\nevery: 1.5s\nhosts: [x, y]\ncheck: {fall: 3}\n"), &got))
	require.Equal(t, want, got)
	require.NoError(t, Decode(nil, &got))
	require.NoError(t, Decode([]byte("# nothing\n"), &got))
	require.Equal(t, want, got)
}

func TestFaults(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"unknown key":      {"name: a\nnmae: b\n", "line 2: nmae: no such key: correct its spelling or remove it"},
		"unknown, nested":  {"check:\n  fall: 1\n  fal: 2\n", "line 3: check.fal: no such key: correct its spelling or remove it"},
		"unknown, in list": {"nodes:\n- port: 1\n- prt: 2\n", "line 3: nodes[1].prt: no such key: correct its spelling or remove it"},
		"no number":        {"count: many\n", "line 1: count many: give a whole number within its range"},
		"a long value":     {"count: a very long value\n", "line 1: count a very long value: give a whole number within its range"},
		"out of range":     {"check:\n  fall: 256\n", "line 2: check.fall 256: give a whole number within its range"},
		"time with no unit": {"every: 5\n",
			"line 1: every 5: give a time such as 5s or 500ms"},
		"two on a line":       {"check: {fall: x, after: y}\n", "line 1: check.fall x: give a whole number within its range\nline 1: check.after y: give a time such as 5s or 500ms"},
		"bool":                {"on: maybe\n", "line 1: on maybe: give true or false"},
		"list for text":       {"name: [a]\n", "line 1: name is of another kind: give text"},
		"text for list":       {"hosts: a\n", "line 1: hosts a: give a list"},
		"text for keys":       {"check: a\n", "line 1: check a: give keys and values below it"},
		"item":                {"hosts:\n- a\n- [b]\n", "line 3: hosts[1] is of another kind: give text"},
		"a list as a file":    {"- a\n", "line 1: document is of another kind: give keys and values below it"},
		"twice":               {"name: a\nname: b\n", "line 2: name: key stands in line 1 already: remove one of the two"},
		"syntax":              {"name: a\ncount: 1: 2\n", "line 2: mapping values are not allowed in this context: correct the YAML syntax"},
		"two documents":       {"name: a\n---\nname: b\n", "there is a second document: keep only the first, and remove the line --- between them"},
		"type's own":          {"odd: 2\n", "odd 2: is even"},
		"address":             {"name: a\nsource: 192.0.2.256\n", "line 2: source 192.0.2.256: give an address such as 192.0.2.1"},
		"prefix":              {"vips:\n- 192.0.2.1/24\n- 192.0.2.2\n", "line 3: vips[1] 192.0.2.2: give an address with the length of its network, such as 192.0.2.1/24"},
		"prefix, bad address": {"vips: [192.0.2.x/24]\n", "line 1: vips[0] 192.0.2.x/24: give an address with the length of its network, such as 192.0.2.1/24"},
		"unknown and bad":     {"nmae: b\ncount: x\n", "line 1: nmae: no such key: correct its spelling or remove it\nline 2: count x: give a whole number within its range"},
	} {
		t.Run(name, func(t *testing.T) {
			require.EqualError(t, Decode([]byte(c.text), new(config)), c.want)
		})
	}
}

// Whatever the bytes, it returns; the library's own panics are its errors.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"name: a\n", "check: {fall: x, after: y}\n", "nodes:\n- prt: 2\n", "a: &a [*a]\n", "? [a]\n: b\n", "<<: {nmae: 1}\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) { _ = Decode(data, new(config)) })
}
