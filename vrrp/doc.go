// Package vrrp decides who holds a virtual address, and holds it: VRRP versions
// 2 and 3 for IPv4, addresses with a lifetime, and gratuitous ARP.
//
// The parts can be used alone:
//
//   - [ParsePacket] and [Advert] read and write adverts.
//   - [Machine] is the protocol without clock, socket or goroutine, for a program
//     with a loop of its own, or a simulation.
package vrrp
