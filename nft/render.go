package nft

import (
	"fmt"
	"strings"
	"time"
)

// Render returns the table that [Table.Apply] makes for cfg as text that nft
// loads: the same text for the same redirects in any order. It asks no kernel
// and needs no privilege. The error is that of [Config.Validate].
//
// Loading the text twice extends no lifetime; only Renew does.
func (t *Table) Render(cfg Config) (string, error) {
	if err := cfg.Validate(); err != nil {
		return "", err
	}
	return render(newLayout(t.opts, cfg), t.opts.Timeout), nil
}

func render(l layout, timeout time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s {\n", l.table)
	for _, s := range l.sets {
		fmt.Fprintf(&b, "\t%s {\n\t\ttype %s\n\t\tflags timeout\n\t\tcounter\n", s.object(), s.shape())
		for i, k := range sortedKeys(s.elems) {
			if i == 0 {
				b.WriteString("\t\telements = { ")
			} else {
				b.WriteString(",\n\t\t             ")
			}
			fmt.Fprintf(&b, "%s timeout %s", keyText(k), timeText(timeout))
			if !s.count {
				fmt.Fprintf(&b, " : %s", valueText(s.elems[k]))
			}
		}
		if len(s.elems) > 0 {
			b.WriteString(" }\n")
		}
		b.WriteString("\t}\n\n")
	}
	for i, c := range l.chains {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "\tchain %s {\n\t\ttype %s hook %s priority %d; policy accept;\n", c.name, c.kind, c.hook, c.priority)
		for _, r := range c.rules {
			fmt.Fprintf(&b, "\t\t%s\n", r.text())
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
	return b.String()
}

// timeText returns a duration in whole milliseconds as nft writes it, "1m6s600ms".
func timeText(d time.Duration) string {
	var b strings.Builder
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if n := d / u.unit; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			d %= u.unit
		}
	}
	return b.String()
}
