// Package yamlx reads the YAML files of the examples strictly, and says what is
// wrong in terms of the file: one line for each fault, with the line number, the key
// as a path, its value and what to do. The YAML library says most of that in terms
// of Go types, and does not name the key of a value that does not fit.
package yamlx

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Decode reads the one document in data into the value that into points to. Keys
// that it has no field for are faults, and so is a second document. All faults are
// joined. An empty document changes nothing.
func Decode(data []byte, into any) error {
	var root yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	err := decoder.Decode(&root)
	switch {
	case err == io.EOF:
		return nil
	case err != nil:
		return fmt.Errorf("%s: correct the YAML syntax", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if decoder.Decode(new(yaml.Node)) != io.EOF {
		return errors.New("there is a second document: keep only the first, and remove the line --- between them")
	}

	// Node.Decode would ignore unknown keys, so the text is read once more.
	decoder = yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	err = decoder.Decode(into)
	mistyped, ok := errors.AsType[*yaml.TypeError](err)
	if !ok {
		return explainAddress(err, &root)
	}
	var faults []error
	for _, text := range mistyped.Errors {
		faults = append(faults, explain(text, &root))
	}
	return errors.Join(faults...)
}

var (
	unknownKey = regexp.MustCompile(`^line (\d+): field (.*) not found in type `)
	wrongType  = regexp.MustCompile("(?s)^line (\\d+): cannot unmarshal (\\S+)(?: `(.*)`)? into (.*)$")
	twice      = regexp.MustCompile(`^line (\d+): mapping key "(.*)" already defined at line (\d+)$`)
)

// badAddress is what package netip says of a text that is no address.
var badAddress = regexp.MustCompile(`^(?:ParseAddr|netip\.(ParsePrefix))\("(.*?)"\): `)

// explainAddress says where an address is wrong. Errors of other types' own
// UnmarshalText are left as they are, and so is nil.
func explainAddress(err error, root *yaml.Node) error {
	if err == nil {
		return nil
	}
	m := badAddress.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	var line int
	path := find(root, func(_, v *yaml.Node) bool {
		line = v.Line
		return v.Kind == yaml.ScalarNode && v.Value == m[2]
	})
	want := "an address such as 192.0.2.1"
	if m[1] != "" {
		want = "an address with the length of its network, such as 192.0.2.1/24"
	}
	return fmt.Errorf("line %d: %s %s: give %s", line, path, m[2], want)
}

// wanted describes values of Go types to people who do not know Go.
var wanted = map[string]string{
	"time.Duration": "a time such as 5s or 500ms",
	"bool":          "true or false",
	"string":        "text",
	"float64":       "a number",
}

// explain says in terms of the file what the library said in terms of Go.
func explain(text string, root *yaml.Node) error {
	if m := unknownKey.FindStringSubmatch(text); m != nil {
		path := find(root, func(key, _ *yaml.Node) bool { return key != nil && at(key, m[1]) && key.Value == m[2] })
		return fmt.Errorf("line %s: %s: no such key: correct its spelling or remove it", m[1], path)
	}
	if m := twice.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("line %s: %s: key stands in line %s already: remove one of the two", m[1], m[2], m[3])
	}
	m := wrongType.FindStringSubmatch(text)
	if m == nil {
		return errors.New(text)
	}
	line, tag, typ := m[1], m[2], m[4]
	shown := strings.TrimSuffix(m[3], "...") // the library cuts long values
	var value string
	path := find(root, func(_, v *yaml.Node) bool {
		if !at(v, line) || v.ShortTag() != tag || !strings.HasPrefix(v.Value, shown) {
			return false
		}
		value = v.Value
		return true
	})
	want := wanted[typ]
	switch {
	case want != "":
	case strings.HasPrefix(typ, "int"), strings.HasPrefix(typ, "uint"):
		want = "a whole number within its range"
	case strings.HasPrefix(typ, "[]"):
		want = "a list"
	default:
		want = "keys and values below it"
	}
	if value == "" {
		value = "is of another kind"
	}
	return fmt.Errorf("line %s: %s %s: give %s", line, path, value, want)
}

func at(n *yaml.Node, line string) bool { return strconv.Itoa(n.Line) == line }

// find returns the path of the first key or value that is wanted. The key is nil for
// items of lists.
func find(root *yaml.Node, is func(key, value *yaml.Node) bool) string {
	var visit func(path string, n *yaml.Node) string
	try := func(path string, key, value *yaml.Node) string {
		if is(key, value) {
			return path
		}
		return visit(path, value)
	}
	visit = func(path string, n *yaml.Node) string {
		switch n.Kind {
		case yaml.DocumentNode:
			return try("document", nil, n.Content[0])
		case yaml.MappingNode:
			if path == "document" {
				path = ""
			} else {
				path += "."
			}
			for i := 0; i+1 < len(n.Content); i += 2 {
				if found := try(path+n.Content[i].Value, n.Content[i], n.Content[i+1]); found != "" {
					return found
				}
			}
		case yaml.SequenceNode:
			for i, item := range n.Content {
				if found := try(fmt.Sprintf("%s[%d]", path, i), nil, item); found != "" {
					return found
				}
			}
		}
		return ""
	}
	return visit("", root)
}
