//go:build !linux

package main

import (
	"context"
	"fmt"
	"runtime"
)

func runLab(context.Context, options) (int, error) {
	return 0, fmt.Errorf("%w: network namespaces are a part of Linux, this is %s", errNoLab, runtime.GOOS)
}
