//go:build unix

package health_test

import (
	"context"
	"fmt"

	"github.com/lastbeat/lastbeat/health"
)

// The exit status is the verdict. Who wants a shell names it.
func ExampleNewExec() {
	for _, config := range []health.ExecConfig{
		{Path: "/bin/sh", Args: []string{"-c", "exit 0"}},
		{Path: "/bin/sh", Args: []string{"-c", "echo 'disk full' >&2; exit 1"}},
		{Path: "/no/such/program"},
	} {
		probe, err := health.NewExec(config)
		if err != nil {
			fmt.Println(err)
			return
		}
		err = probe.Probe(context.Background())
		fmt.Printf("%v, %v\n", health.Classify(err), err)
	}
	// Output:
	// good, <nil>
	// bad, health: exec /bin/sh: exit status 1: "disk full"
	// local error, health: exec /no/such/program: could not probe: fork/exec /no/such/program: no such file or directory
}
