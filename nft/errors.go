package nft

import (
	"errors"
	"fmt"
	"strings"
)

// Errors to tell apart with [errors.Is]. A missing privilege matches
// [io/fs.ErrPermission], a platform other than Linux [errors.ErrUnsupported].
var (
	// ErrConfig: a [Config] is wrong; nothing was written.
	ErrConfig = errors.New("nft: invalid configuration")
	// ErrNotApplied: there is nothing to renew, verify or count, because Apply
	// has not succeeded since New or Remove.
	ErrNotApplied = errors.New("nft: nothing is applied; call Apply first")
	// ErrNotInstalled: the table is not in the kernel. Somebody removed it; Apply
	// makes it again.
	ErrNotInstalled = errors.New("nft: the table is gone; call Apply to make it again")
	// ErrForeign: a table of our name holds chains or sets that are not ours.
	// It is left alone. Choose another [Options.Table].
	ErrForeign = errors.New("nft: a table of this name belongs to somebody else; choose another Options.Table")
)

// MismatchError says how the kernel's content differs from what was applied.
// It matches [ErrNotInstalled] when the whole table is missing.
type MismatchError struct {
	Table       string       // the table's name
	Differences []Difference // at least one
}

// Error lists the first differences.
func (e *MismatchError) Error() string {
	const shown = 4
	var b strings.Builder
	fmt.Fprintf(&b, "nft: table inet %s differs from what was applied: ", e.Table)
	for i, d := range e.Differences {
		if i == shown {
			fmt.Fprintf(&b, "; and %d more", len(e.Differences)-shown)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(d.String())
	}
	b.WriteString(" (call Apply to repair it)")
	return b.String()
}

// Is makes a MismatchError match [ErrNotInstalled] when the table is missing.
func (e *MismatchError) Is(target error) bool {
	return target == ErrNotInstalled && len(e.Differences) == 1 && e.Differences[0].Object == "table"
}

// Difference is one thing that is not as it was applied.
type Difference struct {
	// Object names the thing as nft does: "table", "chain prerouting",
	// "rule 1 of chain output", "map external4" or
	// "element 192.0.2.1 . tcp . 6443 of map external4".
	Object string
	// Want and Got describe it; Want is empty for something that should not be
	// there, Got for something that is missing.
	Want, Got string
}

// String returns the difference as a phrase.
func (d Difference) String() string {
	switch {
	case d.Got == "":
		return fmt.Sprintf("%s is missing, want %s", d.Object, d.Want)
	case d.Want == "":
		return fmt.Sprintf("%s should not be there: %s", d.Object, d.Got)
	}
	return fmt.Sprintf("%s is %s, want %s", d.Object, d.Got, d.Want)
}
