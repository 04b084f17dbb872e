package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// isolate prepares cmd to start in fresh network, mount and process namespaces,
// and in a user namespace in which it is root when we are not root.
func isolate(cmd *exec.Cmd) {
	attr := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
	}
	if os.Geteuid() != 0 {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	cmd.SysProcAttr = attr
}

// StartIsolated starts cmd in fresh network, mount and process namespaces, and,
// when we are not root, in a user namespace in which it is root. The process is
// the first one of its process namespace: when it ends, however it ends, the
// kernel kills all that it started. A refusal is reported as [ErrUnavailable]
// with the settings that usually cause it.
//
// The child is killed when the calling thread ends, so the caller keeps its
// goroutine locked to its thread until it has waited for the child.
func StartIsolated(cmd *exec.Cmd) error {
	isolate(cmd)
	cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	err := cmd.Start()
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES),
		errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("netns: %w: %w: run as root, or allow user namespaces "+
			"(user.max_user_namespaces, kernel.unprivileged_userns_clone, "+
			"kernel.apparmor_restrict_unprivileged_userns)", ErrUnavailable, err)
	case err != nil:
		return fmt.Errorf("netns: %w", err)
	}
	return nil
}

// Setup finishes the namespaces of a process that was started by
// [StartIsolated]: mounts stay private to it, /run is an empty tmpfs, lo is up.
// Then it really makes two namespaces with a cable between them, since clone
// flags can be allowed where links are not.
func Setup() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return unavailable("make mounts private", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return unavailable("mount a tmpfs on /run", err)
	}
	if err := prepare(); err != nil {
		return unavailable("bring lo up", err)
	}
	a, err := New()
	if err != nil {
		return unavailable("make a namespace", err)
	}
	defer a.Close()
	b, err := New()
	if err != nil {
		return unavailable("make a namespace", err)
	}
	defer b.Close()
	if err := Veth(a, "probe0", b, "probe1"); err != nil {
		return unavailable("make a veth pair", err)
	}
	return nil
}

func unavailable(what string, err error) error {
	return fmt.Errorf("netns: %w: cannot %s: %w: run as root on a kernel with namespaces and veth",
		ErrUnavailable, what, err)
}

// NS is a network namespace, held open by a descriptor. It disappears when it
// is closed and the last process in it has ended. Its methods may be called
// from any goroutine.
type NS struct {
	file *os.File
}

// New makes an empty network namespace whose lo is up and whose IPv6 addresses
// need no duplicate address detection. The caller closes it.
func New() (*NS, error) {
	var ns *NS
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("netns: unshare: %w", err)
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return fmt.Errorf("netns: %w", err)
		}
		if err := prepare(); err != nil {
			f.Close()
			return err
		}
		ns = &NS{file: f}
		return nil
	})
	return ns, err
}

// Current returns the namespace that the process is in. The caller closes it.
func Current() (*NS, error) {
	f, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("netns: %w", err)
	}
	return &NS{file: f}, nil
}

// Close lets go of the namespace. Processes in it keep it alive.
func (n *NS) Close() error { return n.file.Close() }

// Fd returns the descriptor that holds the namespace open, for use while n is
// not closed: as /proc/PID/fd/FD it lets other programs enter.
func (n *NS) Fd() int { return int(n.file.Fd()) }

// Do runs f on a thread that is inside the namespace, and returns its error.
// Sockets that f opens itself stay in the namespace; goroutines that it starts
// do not run in it.
func (n *NS) Do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("netns: setns: %w", err)
		}
		return f()
	})
}

// Start starts cmd inside the namespace; the whole process lives there.
func (n *NS) Start(cmd *exec.Cmd) error { return n.Do(cmd.Start) }

// onThread runs f on a thread of its own and brings the thread back to the
// process's namespace afterwards. A thread that cannot be brought back is
// thrown away, for the next goroutine on it would live in the wrong network.
func onThread(f func() error) error {
	home, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return fmt.Errorf("netns: %w", err)
	}
	defer home.Close()
	errc := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := f()
		if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back == nil {
			runtime.UnlockOSThread()
		}
		errc <- err
	}()
	return <-errc
}

// prepare makes the calling thread's fresh namespace usable.
func prepare() error {
	if err := setUp("lo"); err != nil {
		return err
	}
	for _, c := range []string{"all", "default"} {
		// A kernel without IPv6 has no such file, and needs none.
		path := "/proc/sys/net/ipv6/conf/" + c + "/accept_dad"
		if err := os.WriteFile(path, []byte("0"), 0o644); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("netns: %w", err)
		}
	}
	return nil
}
