// Package netns makes throw-away network namespaces for tests and for the
// examples' labs: a whole network of hosts on one machine, as root or, where
// user namespaces are allowed, as anybody.
//
// [StartIsolated] starts a command in fresh user, network, mount and process
// namespaces. Everything below that process dies with it, so that nothing is
// left behind however it ends. Inside, [New] makes further network namespaces
// (the hosts), [Veth] and [NS.Bridge] the cables, and [NS.Start] a process that
// lives on a host as a whole.
//
// A Go goroutine started inside [NS.Do] does not inherit the namespace of its
// thread. Code that starts goroutines, dials or listens by name therefore runs
// in a process of its own, through [NS.Start].
package netns

import "errors"

// ErrUnavailable is matched by every error which says that this machine does
// not let us make namespaces; its text names the remedy.
var ErrUnavailable = errors.New("network namespaces are not available")
