package nft

import (
	"context"
	"io/fs"
	"maps"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lastbeat/lastbeat/internal/netns/nstest"
)

// newTable returns a table for the network namespace of the process.
func newTable(t *testing.T, opts Options) *Table {
	t.Helper()
	tab, err := New(opts)
	require.NoError(t, err)
	return tab
}

// nftRun runs the stock nft.
func nftRun(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), nstest.Peer(t, "nft"), args...).CombinedOutput()
	require.NoError(t, err, "nft %s\n%s", strings.Join(args, " "), out)
	return string(out)
}

// nftScript runs the stock nft on a text, as one transaction.
func nftScript(t *testing.T, text string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), nstest.Peer(t, "nft"), "-f", "-")
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", text, out)
}

// kernelRead returns what the kernel has, past the table's own bookkeeping.
func kernelRead(t *testing.T, tab *Table) state {
	t.Helper()
	have, err := tab.k.read(t.Context(), tab.want)
	require.NoError(t, err)
	return have
}

// What is rendered and what is applied are the same: nft loads the one, we find
// nothing to change; we make the other, nft prints the one.
func TestKernelRenderIsWhatApplyMakes(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		cfg := Config{Redirects: append(manyRedirects(20), dns4)}
		tab := newTable(t, Options{Table: "by-nft", Priority: -50, Timeout: time.Hour})
		text, err := tab.Render(cfg)
		require.NoError(t, err)
		nftScript(t, text)
		res, err := tab.Apply(t.Context(), cfg)
		require.NoError(t, err)
		require.Equal(t, Result{Atomic: true}, res)

		byNft := nftRun(t, "list", "ruleset")
		require.NoError(t, tab.Remove(t.Context()))
		require.Empty(t, nftRun(t, "list", "ruleset"), "nothing is left")
		res, err = tab.Apply(t.Context(), cfg)
		require.NoError(t, err)
		require.True(t, res.Rebuilt)
		require.ElementsMatch(t, stable(byNft), stable(nftRun(t, "list", "ruleset")))
	})
}

// stable cuts a listing into its objects and elements, without what runs or
// depends on who went first.
func stable(listing string) []string {
	listing = regexp.MustCompile(`timeout \S+ expires \S+`).ReplaceAllString(listing, "timed")
	return regexp.MustCompile(`\n+|, *|\{|\}`).Split(strings.ReplaceAll(listing, "\t", ""), -1)
}

func TestKernelVerifyFindsEachChange(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		const inet = "inet lastbeat "
		const element = "external4 { 192.0.2.1 . tcp . 6443 "
		rule := func(chain string, n int) string { // its handle, in a command
			var handles []string
			for _, m := range regexp.MustCompile(`dport .* # handle (\d+)`).FindAllStringSubmatch(nftRun(t, "-a", "list", "chain", "inet", "lastbeat", chain), -1) {
				handles = append(handles, m[1])
			}
			require.Len(t, handles, 2)
			return inet + chain + " handle " + handles[n]
		}
		for name, test := range map[string]struct {
			damage func() string // an nft script
			says   string
		}{
			"port": {func() string {
				return "delete element " + inet + element + "}\nadd element " + inet + element + "timeout 6s : 192.0.2.1 . 9446 }\n"
			}, "element 192.0.2.1 . tcp . 6443 of map external4 is 192.0.2.1 . 9446, want 192.0.2.1 . 9445"},
			"VIP": {func() string {
				return "delete element " + inet + element + "}\nadd element " + inet + element + "timeout 6s : 192.0.2.9 . 9445 }\n"
			}, "element 192.0.2.1 . tcp . 6443 of map external4 is 192.0.2.9 . 9445, want 192.0.2.1 . 9445"},
			"VIP of a key": {func() string {
				return "delete element " + inet + "local6 { 2001:db8::1 . tcp . 6443 }\nadd element " + inet + "local6 { 2001:db8::2 . tcp . 6443 timeout 6s : 2001:db8::1 . 9445 }\n"
			}, "element 2001:db8::1 . tcp . 6443 of map local6 is missing, want 2001:db8::1 . 9445"},
			"element removed": {func() string { return "delete element " + inet + element + "}\n" },
				"element 192.0.2.1 . tcp . 6443 of map external4 is missing, want 192.0.2.1 . 9445"},
			"counter removed": {func() string { return "delete element " + inet + "local4_packets { 192.0.2.1 . tcp . 6443 }\n" },
				"element 192.0.2.1 . tcp . 6443 of set local4_packets is missing, want a counter"},
			"element added": {func() string {
				return "add element " + inet + "external4 { 192.0.2.1 . tcp . 22 timeout 6s : 192.0.2.1 . 23 }\n"
			}, "element 192.0.2.1 . tcp . 22 of map external4 should not be there: 192.0.2.1 . 23"},
			"lifetime": {func() string {
				return "delete element " + inet + element + "}\nadd element " + inet + element + "timeout 1h : 192.0.2.1 . 9445 }\n"
			}, "element 192.0.2.1 . tcp . 6443 of map external4 is timeout 1h0m0s, want timeout 6s or 6.6s"},
			"no lifetime": {func() string {
				return "delete element " + inet + element + "}\nadd element " + inet + element + ": 192.0.2.1 . 9445 }\n"
			}, "element 192.0.2.1 . tcp . 6443 of map external4 is timeout 0s, want timeout 6s or 6.6s"},
			"map flushed": {func() string { return "flush map " + inet + "local6\n" },
				"element 2001:db8::1 . tcp . 6443 of map local6 is missing, want 2001:db8::1 . 9445"},
			"rule removed": {func() string { return "delete rule " + rule("output", 1) + "\n" },
				"rule 2 of chain output is missing, want fib daddr type local dnat ip6 to ip6 daddr . meta l4proto . th dport map @local6"},
			"rule changed": {func() string {
				return "replace rule " + rule("prerouting", 0) + " dnat ip to ip daddr . meta l4proto . th dport map @external4\n"
			}, "rule 1 of chain prerouting is Meta{Key:"},
			"rule with another map": {func() string {
				return "replace rule " + rule("output", 0) + " fib daddr type local dnat ip to ip daddr . meta l4proto . th dport map @external4\n"
			}, "rule 1 of chain output is Fib{"},
			"rule with another target": {func() string {
				return "replace rule " + rule("output", 0) + " fib daddr type local dnat ip to 192.0.2.9\n"
			}, "rule 1 of chain output is Fib{"},
			"rule added": {func() string { return "insert rule " + inet + "prerouting accept\n" },
				"rule 1 of chain prerouting is Verdict{"},
			"rules swapped": {func() string {
				return "delete rule " + rule("output", 0) + "\nadd rule " + inet + "output fib daddr type local dnat ip to ip daddr . meta l4proto . th dport map @local4\n"
			}, "rule 1 of chain output is fib daddr type local dnat ip6"},
			"rules flushed": {func() string { return "flush chain " + inet + "prerouting_count\n" },
				"rule 1 of chain prerouting_count is missing"},
			"priority": {func() string {
				return "delete chain " + inet + "output\nadd chain " + inet + "output { type nat hook output priority -90; policy accept; }\n" +
					"add rule " + inet + "output fib daddr type local dnat ip to ip daddr . meta l4proto . th dport map @local4\n" +
					"add rule " + inet + "output fib daddr type local dnat ip6 to ip6 daddr . meta l4proto . th dport map @local6\n"
			}, "chain output is type nat hook output priority -90 policy accept, want type nat hook output priority -110 policy accept"},
			"policy": {func() string { return "chain " + inet + "output_count { policy drop; }\n" },
				"chain output_count is type filter hook output priority -150 policy drop"},
			"chain removed": {func() string { return "delete chain " + inet + "prerouting\n" }, "chain prerouting is missing"},
			"chain added":   {func() string { return "add chain " + inet + "more\n" }, "chain more should not be there: no base chain"},
			"set added":     {func() string { return "add set " + inet + "more { type ipv4_addr; }\n" }, "set more should not be there: ipv4_addr"},
			"switched off":  {func() string { return "add table " + inet + "{ flags dormant; }\n" }, "flags of the table is 0x"},
			"table removed": {func() string { return "delete table " + inet + "\n" }, "table is missing"},
			"all flushed":   {func() string { return "flush ruleset\n" }, "table is missing"},
		} {
			t.Run(name, func(t *testing.T) {
				tab := newTable(t, Options{})
				cfg := Config{Redirects: []Redirect{api4, api6}}
				_, err := tab.Apply(t.Context(), cfg)
				require.NoError(t, err)
				require.NoError(t, tab.Verify(t.Context()))

				nftScript(t, test.damage())
				err = tab.Verify(t.Context())
				mismatch, ok := err.(*MismatchError)
				require.True(t, ok, "%v", err)
				require.Contains(t, mismatch.Differences[0].String(), test.says)
				require.Equal(t, strings.HasPrefix(test.says, "table"), mismatch.Is(ErrNotInstalled))
				require.Equal(t, Faulty, tab.Status().State)

				_, err = tab.Apply(t.Context(), cfg)
				require.NoError(t, err, "Apply repairs it")
				require.NoError(t, tab.Verify(t.Context()))
				require.Equal(t, Installed, tab.Status().State)
				nftRun(t, "list", "ruleset")
			})
		}
	})
}

func TestKernelRenewedElementsOutliveTheirTimeout(t *testing.T) {
	nstest.Run(t, func(t *testing.T) { outlive(t, false) })
}

// As on kernels before 6.12, which extend no lifetime.
func TestKernelReplacedElementsOutliveTheirTimeout(t *testing.T) {
	nstest.Run(t, func(t *testing.T) { outlive(t, true) })
}

// outlive renews for more than three timeouts, in the time of the kernel's own
// countdown, under traffic. An element that vanished or a count that fell at any
// moment would show.
func outlive(t *testing.T, replaces bool) {
	tab := newTable(t, Options{Timeout: 2 * time.Second})
	tab.replaces = replaces
	udp, server := localUDP(t)
	_, err := tab.Apply(t.Context(), Config{Redirects: []Redirect{udp}})
	require.NoError(t, err)
	began := time.Now()
	key, m := udp.key(), setName{local: true}.String()
	var sent, renewals uint64
	for time.Since(began) < 7*time.Second {
		// A port used again would continue the old connection.
		sendFrom(t, 1024+int(sent), server, udp)
		sent++
		e, ok := kernelRead(t, tab).sets[m].elems[key]
		require.True(t, ok, "after %v and %d renewals", time.Since(began), renewals)
		got, err := tab.Counters(t.Context())
		require.NoError(t, err)
		require.Equal(t, sent, got[0].Local.Connections, "connections")
		require.Equal(t, sent, got[0].Local.Packets, "packets")
		if !replaces {
			require.Equal(t, sent, e.packets, "the kernel's own count")
		}
		if e.expires < tab.opts.Timeout-tab.RenewEvery() {
			require.NoError(t, tab.Renew(t.Context()))
			require.Equal(t, Installed, tab.Status().State)
			renewals++
		}
	}
	require.Equal(t, replaces, tab.replaces, "what this kernel can do was recognised")
	require.GreaterOrEqual(t, renewals, uint64(3))
}

// The trap that Renew avoids: repeating an element as it is extends nothing.
func TestKernelSameTimeoutExtendsNothing(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		tab := newTable(t, Options{Timeout: time.Minute})
		_, err := tab.Apply(t.Context(), Config{Redirects: []Redirect{api4}})
		require.NoError(t, err)
		left := func() time.Duration {
			return kernelRead(t, tab).sets[setName{}.String()].elems[api4.key()].expires
		}
		first := left()
		for left() > first-50*time.Millisecond {
			require.NoError(t, t.Context().Err())
		}
		before := left()
		require.NoError(t, tab.k.commit(t.Context(), tab.opts.Table, renewal(tab.opts, tab.want, state{})))
		require.LessOrEqual(t, left(), before)
		require.NoError(t, tab.Renew(t.Context()))
		require.Greater(t, left(), before)
	})
}

func TestKernelUnrenewedRedirectEnds(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		tab := newTable(t, Options{Timeout: 500 * time.Millisecond})
		_, err := tab.Apply(t.Context(), Config{Redirects: []Redirect{api4, api6}})
		require.NoError(t, err)
		require.Equal(t, Applied, tab.Status().Reason)
		for deadline := time.Now().Add(time.Minute); ; {
			have := kernelRead(t, tab)
			if _, any := have.firstExpiry(); !any {
				require.Empty(t, structureDiff(tab.want, have), "table and chains stay")
				break
			}
			require.True(t, time.Now().Before(deadline), "still there: %+v", have.sets)
		}
		require.Equal(t, Unknown, tab.Status().State)
		require.Equal(t, Expired, tab.Status().Reason)
		var mismatch *MismatchError
		require.ErrorAs(t, tab.Verify(t.Context()), &mismatch)
	})
}

func TestKernelLeavesOthersAlone(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		nftScript(t, `
table ip docker {
	chain pre { type nat hook prerouting priority -120; }
	chain same { type nat hook output priority -110; ip daddr 192.0.2.77 tcp dport 80 dnat to 10.0.0.1:8080; }
}
table ip lastbeat { set mine { type ipv4_addr; elements = { 10.0.0.1 } ; } 
}
table inet firewall {
	map verdicts { type inet_service : verdict; elements = { 22 : accept }; }
	chain in { type filter hook input priority 0; policy drop; ct state established accept; tcp dport vmap @verdicts; }
}
`)
		before := nftRun(t, "list", "ruleset")
		tab := newTable(t, Options{})
		res, err := tab.Apply(t.Context(), Config{Redirects: []Redirect{api4}})
		require.NoError(t, err)
		require.NoError(t, res.ConflictsErr)
		require.Equal(t, []Conflict{
			{"inet", "firewall", "in", "input", 0, Drops},
			{"ip", "docker", "pre", "prerouting", -120, RewritesFirst},
			{"ip", "docker", "same", "output", -110, SamePriority},
		}, res.Conflicts)
		require.NoError(t, tab.Renew(t.Context()))
		require.NoError(t, tab.Verify(t.Context()))
		_, err = tab.Apply(t.Context(), Config{})
		require.NoError(t, err)
		require.NoError(t, tab.Remove(t.Context()))
		require.NoError(t, tab.Remove(t.Context()), "twice")
		require.Equal(t, before, nftRun(t, "list", "ruleset"))

		nftScript(t, "table inet lastbeat { chain theirs { type filter hook input priority 7; } \n }\n")
		before = nftRun(t, "list", "ruleset")
		_, err = tab.Apply(t.Context(), Config{Redirects: []Redirect{api4}})
		require.ErrorIs(t, err, ErrForeign)
		require.ErrorIs(t, tab.Remove(t.Context()), ErrForeign)
		require.Equal(t, before, nftRun(t, "list", "ruleset"))
	})
}

// Many elements, each stored and read back. An attribute that is too long would
// lose most of them: https://github.com/google/nftables/pull/303. A batch beyond
// the socket's buffer would be refused with "message too long".
func TestKernelManyRedirects(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		const n = 5_000
		for _, limit := range []int{0, 212_992} {
			tab := newTable(t, Options{Timeout: time.Hour})
			tab.k = netlinkKernel{sendLimit: limit}
			cfg := Config{Redirects: manyRedirects(n)}
			capacity, err := tab.k.capacity(t.Context(), 100*1000*1000)
			require.NoError(t, err)
			res, err := tab.Apply(t.Context(), cfg)
			require.NoError(t, err)
			require.Equal(t, 4*n, res.Changed)
			require.Equal(t, capacity >= 4*n*96, res.Atomic, "capacity %d", capacity)
			t.Logf("limit %d: capacity %d, atomic %v", limit, capacity, res.Atomic)
			require.NoError(t, tab.Renew(t.Context()))
			require.NoError(t, tab.Verify(t.Context()))
			stored := 0
			for set := range maps.Values(kernelRead(t, tab).sets) {
				stored += len(set.elems)
			}
			require.Equal(t, 4*n, stored)
			require.Equal(t, 8, strings.Count(nftRun(t, "list", "ruleset"), "fib daddr type local"), "rules")

			res, err = tab.Apply(t.Context(), Config{Redirects: cfg.Redirects[1:]})
			require.NoError(t, err)
			require.Equal(t, 4, res.Changed)
			require.NoError(t, tab.Remove(t.Context()))
		}
	})
}

// The kernel commits, then cannot deliver its answers:
// https://github.com/google/nftables/issues/103,
// https://github.com/siderolabs/talos/issues/14001.
func TestKernelLostAnswersAreVerified(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		tab := newTable(t, Options{Timeout: time.Hour})
		small := netlinkKernel{receiveBuffer: 1}
		tab.k = small
		cfg := Config{Redirects: manyRedirects(8000)}
		_, err := tab.Apply(t.Context(), cfg)
		require.NoError(t, err)
		err = small.commit(t.Context(), tab.opts.Table, renewal(tab.opts, tab.want, tab.last))
		require.ErrorIs(t, err, errUncertain, "the buffer was small enough to lose answers")
		require.NoError(t, tab.Renew(t.Context()))
		tab.k = newKernel()
		require.NoError(t, tab.Verify(t.Context()))
	})
}

// Two connections share the library's counter of set ids:
// https://github.com/google/nftables/pull/307. The race detector watches.
func TestKernelTablesAreIndependent(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		var wg sync.WaitGroup
		errs := make(chan error, 100)
		for _, name := range []string{"a", "b", "c", "d"} {
			tab := newTable(t, Options{Table: name})
			wg.Go(func() {
				for range 5 {
					_, err := tab.Apply(context.Background(), Config{Redirects: []Redirect{api4, api6}})
					errs <- err
					errs <- tab.Verify(context.Background())
					errs <- tab.Remove(context.Background())
				}
			})
		}
		wg.Wait()
		close(errs)
		for err := range errs {
			require.NoError(t, err)
		}
		require.Empty(t, nftRun(t, "list", "ruleset"))
	})
}

func TestKernelWithoutPrivilege(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		runtime.LockOSThread() // and never unlock: the thread is spoilt
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		require.NoError(t, unix.Capset(&header, &caps[0]))
		tab := newTable(t, Options{})
		_, err := tab.Apply(t.Context(), Config{Redirects: []Redirect{api4}})
		require.ErrorIs(t, err, fs.ErrPermission)
		require.ErrorContains(t, err, "needs CAP_NET_ADMIN")
		require.Equal(t, Unknown, tab.Status().State)
	})
}

func TestKernelEndedContext(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		tab := newTable(t, Options{})
		_, err := tab.Apply(ctx, Config{})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, tab.Remove(ctx), context.Canceled)
		require.Empty(t, nftRun(t, "list", "ruleset"))
	})
}
