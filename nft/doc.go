// Package nft redirects connections for virtual addresses in the Linux kernel
// and lets that end by itself when its owner does.
//
// A node that holds 192.0.2.1 and runs a load balancer on port 9445 redirects
// what clients send to 192.0.2.1:6443:
//
//	t, err := nft.New(nft.Options{})
//	...
//	_, err = t.Apply(ctx, nft.Config{Redirects: []nft.Redirect{
//		{VIP: netip.MustParseAddr("192.0.2.1"), From: 6443, To: 9445},
//	}})
//	...
//	for range time.Tick(t.RenewEvery()) {
//		err = t.Renew(ctx)
//	}
//
// # The rules
//
// One table of family inet holds four chains with eight rules and eight maps and
// sets, for one redirect as for thousands; only their elements differ.
// [Table.Render] shows them as nft text. A rule of the prerouting chain rewrites
// what comes from other machines, one of the output chain what this machine
// sends. Both act only where the VIP is an address of the machine itself: on a
// standby node the same table stands idle, its own connections to the VIP leave
// on the wire to the holder, and after a takeover it works without any change.
// Only the port is rewritten, so the listener sees the client's address, and is
// bound to the VIP or to any address.
//
// The nat chains have priority -110 unless [Options.Priority] says otherwise,
// because the first chain that rewrites a connection wins and most others sit at
// -100. A nat chain sees the first packet of a connection only, so it counts
// connections; two filter chains at priority -150, before any rewriting, count
// packets.
//
// # Lifetime
//
// Every element has a timeout. The owner calls [Table.Renew] at a third of it
// ([Table.RenewEvery]); when the owner is killed or frozen, the kernel stops
// redirecting by itself within [Options.Timeout] and a tenth, while table and
// chains stay. [Table.Status] follows the same rule: read after its ValidUntil
// it says [Unknown].
//
// The kernel does not extend a lifetime when an element is repeated with the
// timeout that it has, but does when the timeout differs. Renewals therefore
// change between Timeout and a tenth more (at least 50 ms), which also keeps the
// counters. Kernels before about 6.12 extend nothing; Renew sees that when it
// reads back, and from then on replaces the elements in one transaction and adds
// up the counters itself.
//
// # Reading back
//
// Apply, Renew and Verify judge by the content of the kernel, never by a comment
// or by the success of a call: a port, address, rule, priority or element that
// somebody changed is reported as a [MismatchError] that names it, and the next
// Apply repairs it. What others keep in tables of their own is never touched;
// [Result] reports chains that may get in the way.
//
// # What it needs
//
// Linux 5.11 or later with nf_tables, its inet family, nat and fib expressions
// and connection tracking, and CAP_NET_ADMIN in the user namespace that owns the
// network namespace. No program is run; nft 1.0.6 or later lists the result.
// Outside the initial user namespace net.core.wmem_max limits the socket's
// buffer: with the usual 212,992 a change of more than about 1,000 redirects
// takes several transactions; see [Result.Atomic].
//
// # Not implemented
//
//   - Balancing over several backends, SCTP, port ranges, source NAT.
//   - Watching for changes by others: call Verify as often as it matters.
//   - Cleaning up connection tracking: open connections stay with the listener
//     that they have.
//   - Redirecting to 127.0.0.1 or ::1, which the kernel refuses for packets from
//     other machines. No sysctl is ever written.
//   - A table that lasts without renewal.
package nft
