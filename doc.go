// Package lastbeat is the root of a library of independent packages for high
// availability at layers 3 and 4. It holds no code; import what you need:
//
//   - [github.com/lastbeat/lastbeat/lb]: which backend gets the next connection
//   - [github.com/lastbeat/lastbeat/health]: is it alive, and until when do we know
//   - [github.com/lastbeat/lastbeat/vrrp]: who holds the address
//   - [github.com/lastbeat/lastbeat/nft]: where packets go
//
// The packages share one idea: nothing stays true unless it is renewed. Every
// verdict that a package hands out carries State, Since, ValidUntil and Reason.
// A reader that asks after ValidUntil gets "unknown", never a stale "online",
// and an observer that was itself starved doubts itself before it accuses
// anybody.
//
// The packages do not import each other. They meet only in the programs below
// examples/, of which examples/failover is the place to start:
//
//	go run ./examples/failover
package lastbeat
