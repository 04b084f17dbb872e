package main

import (
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/internal/netns/nstest"
)

// entered is a lab that is kept up, with the commands that enter its nodes.
type entered struct {
	*program
	enter map[string][]string
}

func enterLab(t *testing.T) *entered {
	for _, program := range []string{"nsenter", "nft", "curl", "ip"} {
		nstest.Peer(t, program)
	}
	l := &entered{program: start(t, "-fault", "none"), enter: map[string][]string{}}
	l.until("There, for example")
	for _, m := range regexp.MustCompile(`(?m)^  (\w+) +192\.168\.37\.\d+ +(nsenter .*) sh$`).FindAllStringSubmatch(l.output(), -1) {
		l.enter[m[1]] = strings.Fields(m[2])
	}
	require.Len(t, l.enter, len(nodes)+2, l.output())
	return l
}

// run does something on a node, as a person who has entered it.
func (l *entered) run(node, script string) string {
	l.t.Helper()
	args := append(append([]string(nil), l.enter[node]...), "sh", "-c", script)
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	require.NoError(l.t, err, "%s on %s: %s", script, node, out)
	return string(out)
}

// holder asks the kernels who has an address.
func (l *entered) holder(vip string) string {
	l.t.Helper()
	var who []string
	for _, m := range masters {
		if strings.Contains(l.run(m, "ip -o -4 address show up dev "+iface), " "+vip+"/") {
			who = append(who, m)
		}
	}
	return strings.Join(who, " ")
}

// counters are those of a node's redirect.
type counters struct{ external, externalPackets, local, localPackets int }

func (l *entered) counters(node string) counters {
	l.t.Helper()
	ruleset := l.run(node, "nft list ruleset")
	number := func(kind, name string) int {
		m := regexp.MustCompile(kind + " " + name + ` \{[^}]*?counter packets (\d+)`).FindStringSubmatch(ruleset)
		require.NotNil(l.t, m, "no counter of %s on %s:\n%s", name, node, ruleset)
		n, err := strconv.Atoi(m[1])
		require.NoError(l.t, err)
		return n
	}
	return counters{
		number("map", "external4"), number("set", "external4_packets"),
		number("map", "local4"), number("set", "local4_packets"),
	}
}

// ask sends one request for the API from a node and wants an answer.
func (l *entered) ask(node string) {
	l.t.Helper()
	url := "https://" + api.Addr + ":6443/"
	out := l.run(node, "curl -sk --max-time 5 -D - -o /dev/null "+url)
	server := regexp.MustCompile(`X-Server: (\w+)`).FindStringSubmatch(out)
	require.NotNil(l.t, server, "%s: %s", node, out)
	l.t.Logf("%-8s curl -k %s: %s, served by %s", node, url, strings.Fields(out)[1], server[1])
}

// requireRedirect asks from everywhere, and holds the counters against it: a
// connection counts on the holder, and only there; as local when it is the
// holder's own, else as external.
func (l *entered) requireRedirect(holder string, askers ...string) {
	l.t.Helper()
	up := slices.DeleteFunc(slices.Clone(askers), func(n string) bool { return !isMaster(n) })
	for _, from := range askers {
		before := map[string]counters{}
		for _, m := range up {
			before[m] = l.counters(m)
		}
		l.ask(from)
		for _, m := range up {
			was, is := before[m], l.counters(m)
			l.t.Logf("         %s: external %d to %d connections, %d to %d packets; local %d to %d, %d to %d", m,
				was.external, is.external, was.externalPackets, is.externalPackets, was.local, is.local, was.localPackets, is.localPackets)
			// A connection's last packets may pass after curl has its answer.
			switch {
			case m != holder: // also the standby that asked: its own rule let it pass to the wire
				require.Equal(l.t, was, is, "on %s, asked from %s", m, from)
			case from == holder:
				require.Equal(l.t, []int{was.external, was.local + 1}, []int{is.external, is.local}, "on %s, asked from %s", m, from)
				require.Greater(l.t, is.localPackets, was.localPackets+3)
			default:
				require.Equal(l.t, []int{was.external + 1, was.local}, []int{is.external, is.local}, "on %s, asked from %s", m, from)
				require.Greater(l.t, is.externalPackets, was.externalPackets+3)
			}
		}
	}
}

// A person enters the nodes of a lab that is kept up, asks for the API from each,
// takes the holder's interface down, and asks again.
func TestKernelRedirectSeenFromTheNodes(t *testing.T) {
	l := enterLab(t)
	require.Equal(t, firstHolder, l.holder(api.Addr))
	t.Logf("%s holds %s; nft list ruleset there:\n%s", firstHolder, api.Addr, l.run(firstHolder, "nft list ruleset"))
	l.requireRedirect(firstHolder, "client", "worker0", "master0", "master1", "master2")

	l.run(firstHolder, "ip link set "+iface+" down")
	var holder string
	require.Eventually(t, func() bool {
		holder = l.holder(api.Addr)
		return holder == "master0" || holder == "master1"
	}, 30*time.Second, 100*time.Millisecond, "nobody took over")
	t.Logf("%s down on %s; now %s holds %s", iface, firstHolder, holder, api.Addr)
	l.requireRedirect(holder, "client", "worker0", "master0", "master1")
	t.Logf("nft list ruleset on %s:\n%s", holder, l.run(holder, "nft list ruleset"))

	require.NoError(t, syscall.Kill(-l.cmd.Process.Pid, syscall.SIGINT))
	require.Zero(t, l.wait(), "%s\n%s", l.output(), &l.stderr)
	l.requireNothingLeft()
	require.Empty(t, l.stderr.String())
}
