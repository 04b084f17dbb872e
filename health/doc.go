// Package health finds out whether something is alive, and says until when that
// is known.
//
// The smallest useful program is a [Monitor] with one [Target]:
//
//	probe, err := health.NewHTTP(health.HTTPConfig{URL: "https://192.0.2.1:6443/readyz", SkipVerify: true})
//	...
//	m, err := health.NewMonitor(health.MonitorConfig{OnEvent: func(e health.Event) { log.Print(e) }},
//		health.Target{Key: "master1", Prober: probe})
//	...
//	go m.Run(ctx)
//	...
//	status, _ := m.Status("master1")
//
// # Nothing stays true unless it is renewed
//
// A [Status] is a lease: State, Since, ValidUntil and Reason. Only a completed
// probe renews it. When probes stop completing, because the prober hangs, the
// Monitor has ended or the process was frozen, the state reads [Unknown] from
// ValidUntil on. The expiry is computed by the reader, so it does not depend on a
// goroutine that is still alive; the Monitor's events only announce it. Between
// the last probe of an observer that died and the end of its last verdict lies
// exactly [Config].Lease.
//
// # States
//
// A [Machine] judges the probes of one target:
//
//	 start      +-------------+   Rise good probes    +-----------+
//	----------> |             | --------------------> |           |
//	            |             |     ValidUntil        |  Online   |
//	            |             | <-------------------- |           |
//	            |             |                       +-----------+
//	            |   Unknown   |              Fall bad   |       ^  Rise good
//	            |             |              probes     v       |  probes
//	            |             |                       +-----------+
//	            |             |   Fall bad probes     |           |
//	            |             | --------------------> |  Offline  |
//	            |             |     ValidUntil        |           |
//	            |             | <-------------------- |           |
//	            +-------------+                       +-----------+
//	  no lease     |       ^
//	  and a local  |       |  a good or a bad probe,
//	  failure      v       |  or a Lease without another attempt
//	            +-------------+
//	            |    Error    |
//	            +-------------+
//
// All counts are of probes in a row: while a target is online one good probe
// forgives the bad ones before it; while it is offline one bad probe forgets the
// good ones. [Accumulating] counts both kinds side by side instead. [InitialFirst]
// sets the number for the very first verdict to 1. When knowledge has expired the
// counts begin again, whatever Initial says.
//
// A local failure is one of the observer: no descriptor, no route, no permission,
// no CPU time. It says nothing about the target, so it neither counts nor renews.
// The verdict in force stays until its own lease ends; from then on, or at once
// when there is none, the state is [Error] as long as attempts go on. [Classify]
// tells local failures apart.
//
// [Machine.Deadline] tells how long it takes to find a dead target.
//
// # Probers
//
// [TCP], [TLS], [HTTP], [UDP], [ICMP], [Exec] and [Agent] make one probe each time,
// with a connection, socket or process of its own that they close or kill with the
// time of the probe; [Func] is whatever you write. Take the one that comes nearest to
// what users of the target need: an answer to ICMP shows a living kernel, an accepted
// connection a listening one, only a request shows a server that serves.
//
// # Concurrency, clocks, privileges
//
// A Machine is pure: no clock, no goroutine, no lock. A Monitor is safe for use by
// many goroutines; only its Run starts any. All arithmetic is on the monotonic
// clock, so a step of the wall clock has no effect. Only [ICMP] needs a privilege,
// and Linux. All else works on all platforms, but the errors of Windows' sockets
// are not told apart: there every failure to connect is the target's.
//
// # Beyond one observer
//
// These parts are pure like a Machine, and independent of the Monitor:
//
//   - [Leases] keeps what many owners report about their subjects: fenced by epoch
//     and term, ended by the lease of the subject or of the owner.
//   - [Quorum] counts the votes of several observers: down needs more than half of
//     all that are entitled, and time to settle.
//   - [Local] is an observer's doubt about itself; [FailStatic] keeps it from believing
//     that everybody died at once; [Flap] damps what changes too often.
//   - [Suspicion] gives the accused time to answer; [Phi] judges heartbeats by how
//     they usually come.
//   - [Combination] makes one verdict of several causes by a stated rule; [Admin] is
//     what a person wants, apart from both.
//   - [SuspendWatch] finds out that the machine slept, which Go's clock does not tell;
//     a Monitor has one.
//
// # Not implemented
//
//   - gRPC's health protocol; passive observation of real traffic (outliers)
//   - jitter by chance: it follows from the target's key and the probe's number
//   - a driver for what is beyond one observer: no reports are sent or received, and
//     a Monitor consults none of it; so it does not notice either that the machine
//     was suspended, and its leases last longer by that time
package health
