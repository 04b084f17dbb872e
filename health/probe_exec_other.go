//go:build !unix

package health

import "os/exec"

// There are no process groups to kill here.

func ownGroup(*exec.Cmd) {}

func killGroup(*exec.Cmd) {}
