package lb_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/lastbeat/lastbeat/lb"
)

// A balancer in front of three servers. One of them dies: the caller steps over
// it, reports it, and it gets no further connection.
func Example() {
	balancer, err := lb.New(lb.Config{Count: true},
		lb.Backend[string]{Key: "master1", Value: "192.0.2.21:6443", Weight: 1},
		lb.Backend[string]{Key: "master2", Value: "192.0.2.22:6443", Weight: 1},
		lb.Backend[string]{Key: "master3", Value: "192.0.2.23:6443", Weight: 1})
	if err != nil {
		fmt.Println(err)
		return
	}

	dial := func(address string) error {
		if address == "192.0.2.22:6443" {
			return errors.New("connection refused")
		}
		return nil
	}
	// connect gives one connection to the first backend that takes it.
	connect := func() error {
		err := lb.ErrEmpty
		for lease := range balancer.Walk(0) {
			if err = dial(lease.Value()); err == nil {
				lease.Done(time.Now(), lb.Result{}) // a real one serves first
				return nil
			}
			lease.Done(time.Now(), lb.Result{Failed: true})
		}
		return err
	}

	serve := func(n int) {
		for range n {
			if err := connect(); err != nil {
				fmt.Println(err)
			}
		}
		for _, b := range balancer.Backends() {
			c, _ := balancer.Counts(b.Key)
			fmt.Printf("  %s %-4v served %d, failed: %t\n", b.Key, b.State, c.Finished-c.Failed, c.Failed > 0)
		}
	}

	fmt.Println("20 connections:")
	serve(20)

	err = balancer.Update(func(backends []lb.Backend[string]) []lb.Backend[string] {
		backends[1].State = lb.Down
		return backends
	})
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println("20 more, master2 marked down:")
	serve(20)

	// Output:
	// 20 connections:
	//   master1 up   served 10, failed: false
	//   master2 up   served 0, failed: true
	//   master3 up   served 10, failed: false
	// 20 more, master2 marked down:
	//   master1 up   served 20, failed: false
	//   master2 down served 0, failed: true
	//   master3 up   served 20, failed: false
}

func ExampleBalancer_Pick() {
	balancer, err := lb.New(lb.Config{Algorithm: lb.WeightedRoundRobin{}},
		lb.Backend[string]{Key: "big", Value: "192.0.2.1:443", Weight: 3},
		lb.Backend[string]{Key: "small", Value: "192.0.2.2:443", Weight: 1},
		lb.Backend[string]{Key: "leaving", Value: "192.0.2.3:443", Weight: 3, State: lb.Drain})
	if err != nil {
		fmt.Println(err)
		return
	}
	given := map[string]int{}
	for range 400 {
		lease, err := balancer.Pick(0)
		if err != nil {
			fmt.Println(err)
			return
		}
		given[lease.Key()]++
		lease.Done(time.Now(), lb.Result{})
	}
	fmt.Println(given)
	// Output: map[big:300 small:100]
}

func ExamplePolicy() {
	dead := lb.Backend[string]{Key: "a", Value: "192.0.2.1:443", Weight: 1, State: lb.Down}
	for _, policy := range []lb.Policy{lb.PolicyEmpty, lb.PolicyPanic} {
		balancer, err := lb.New(lb.Config{Policy: policy}, dead)
		if err != nil {
			fmt.Println(err)
			return
		}
		lease, err := balancer.Pick(0)
		fmt.Printf("%v: %q, %v\n", balancer.Mode(), lease.Key(), err)
	}
	// Output:
	// empty: "", lb: no backend may take the connection: wait until one is up, or choose another policy
	// panic: "a", <nil>
}

func ExampleRoundRobin() {
	managers := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}
	for index, agent := range []string{"agent-1", "agent-2", "agent-3", "agent-4"} {
		fmt.Println(agent, lb.RoundRobin{}.Arrange(managers, index, agent))
	}
	// Output:
	// agent-1 [10.0.0.1 10.0.0.2 10.0.0.3]
	// agent-2 [10.0.0.2 10.0.0.3 10.0.0.1]
	// agent-3 [10.0.0.3 10.0.0.1 10.0.0.2]
	// agent-4 [10.0.0.1 10.0.0.2 10.0.0.3]
}

func ExampleShuffle() {
	managers := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}
	order := lb.Shuffle{Seed: 2026}
	first := order.Arrange(managers, 0, "agent-1")
	again := order.Arrange([]string{"10.0.0.3", "10.0.0.2", "10.0.0.1"}, 5, "agent-1")
	fmt.Println("same list again:", fmt.Sprint(first) == fmt.Sprint(again))
	fmt.Println("any order will do:", order.Diff(managers, first) == "")
	fmt.Println(order.Diff(managers, managers[:2]))
	// Output:
	// same list again: true
	// any order will do: true
	// missing "10.0.0.3"
}

// An agent keeps its list when others come and go, and a host that leaves moves
// only the agents that preferred it.
func ExampleRendezvous() {
	managers := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}
	for _, agent := range []string{"1", "10", "20"} {
		all := lb.Rendezvous{}.Arrange(managers, 0, agent)
		fmt.Println(agent, all, "without 10.0.0.3:", lb.Rendezvous{}.Arrange(managers[:2], 0, agent))
	}
	// Output:
	// 1 [10.0.0.3 10.0.0.1 10.0.0.2] without 10.0.0.3: [10.0.0.1 10.0.0.2]
	// 10 [10.0.0.2 10.0.0.3 10.0.0.1] without 10.0.0.3: [10.0.0.2 10.0.0.1]
	// 20 [10.0.0.1 10.0.0.3 10.0.0.2] without 10.0.0.3: [10.0.0.1 10.0.0.2]
}

func ExampleNewWeightedRendezvous() {
	order, err := lb.NewWeightedRendezvous(map[string]int{"big": 3, "small": 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	first := map[string]int{}
	for agent := range 1000 {
		first[order.Arrange([]string{"big", "small"}, 0, fmt.Sprint(agent))[0]]++
	}
	fmt.Println("about three of four prefer big:", first["big"] > 700 && first["big"] < 800)
	// Output: about three of four prefer big: true
}

// A fourth manager joins a fleet of twelve: it gets three agents, one from each.
func ExampleBalanced() {
	held := map[string]string{}
	for agent := range 12 {
		held[fmt.Sprint(agent)] = []string{"a", "b", "c"}[agent%3]
	}
	now := lb.Balanced{}.Assign([]string{"a", "b", "c", "d"}, held)
	moves := 0
	load := map[string]int{}
	for agent, host := range now {
		load[host]++
		if held[agent] != host {
			moves++
		}
	}
	fmt.Println(load, "moves:", moves)
	// Output: map[a:3 b:3 c:3 d:3] moves: 3
}

// The same client goes to the same server, and when that one is gone to another
// one, without any table of clients.
func ExampleMaglev() {
	balancer, err := lb.New(lb.Config{Algorithm: lb.Maglev{}, HashSeed: 2026},
		lb.Backend[string]{Key: "a", Value: "192.0.2.1:443", Weight: 1},
		lb.Backend[string]{Key: "b", Value: "192.0.2.2:443", Weight: 1},
		lb.Backend[string]{Key: "c", Value: "192.0.2.3:443", Weight: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	// Any hash of the client's address will do. A fleet that is to agree needs one
	// that is the same everywhere, unlike those of hash/maphash.
	address := netip.MustParseAddr("198.51.100.7").As16()
	client := binary.BigEndian.Uint64(address[8:])
	first, _ := balancer.Pick(client)
	again, _ := balancer.Pick(client)
	fmt.Println("same again:", first.Key() == again.Key())
	tried := 0
	for range balancer.Walk(client) {
		tried++
	}
	fmt.Println("to try, in this client's order:", tried)
	// Output:
	// same again: true
	// to try, in this client's order: 3
}

func ExampleLeastConn() {
	balancer, err := lb.New(lb.Config{Algorithm: lb.LeastConn{}},
		lb.Backend[string]{Key: "a", Value: "192.0.2.1:443", Weight: 1, MaxConns: 2},
		lb.Backend[string]{Key: "b", Value: "192.0.2.2:443", Weight: 1, MaxConns: 2},
		lb.Backend[string]{Key: "spare", Value: "192.0.2.3:443", Weight: 1, Tier: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	open := map[string][]*lb.Lease[string]{}
	connect := func() {
		lease, err := balancer.Pick(0)
		if err != nil {
			fmt.Println(err)
			return
		}
		open[lease.Key()] = append(open[lease.Key()], &lease)
	}
	for range 4 {
		connect()
	}
	fmt.Println("a:", len(open["a"]), "b:", len(open["b"]))
	connect()
	open["b"][0].Done(time.Now(), lb.Result{})
	lease, _ := balancer.Pick(0)
	fmt.Println("room at:", lease.Key())
	// Output:
	// a: 2 b: 2
	// lb: every backend is full: wait until a connection ends, or raise MaxConns
	// room at: b
}

// A server that was down returns slowly. The program tells the balancer the time,
// and is told when to do so again.
func ExampleBalancer_Advance() {
	backends := []lb.Backend[string]{
		{Key: "a", Value: "192.0.2.1:443", Weight: 1},
		{Key: "b", Value: "192.0.2.2:443", Weight: 1, State: lb.Down},
	}
	balancer, err := lb.New(lb.Config{SlowStart: 30 * time.Second}, backends...)
	if err != nil {
		fmt.Println(err)
		return
	}
	shares := func() map[string]int {
		given := map[string]int{}
		for range 110 {
			lease, _ := balancer.Pick(0)
			given[lease.Key()]++
		}
		return given
	}

	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) // a program has time.Now()
	balancer.Advance(now)
	backends[1].State = lb.Up
	if err := balancer.Set(backends...); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(now.Format(time.TimeOnly), shares(), "next at", balancer.Deadline().Format(time.TimeOnly))
	now = now.Add(30 * time.Second)
	balancer.Advance(now)
	fmt.Println(now.Format(time.TimeOnly), shares())
	// Output:
	// 12:00:00 map[a:100 b:10] next at 12:00:06
	// 12:00:30 map[a:55 b:55]
}

// Clients stay with their backend while it drains; new ones go elsewhere.
func ExampleSticky() {
	backends := []lb.Backend[string]{
		{Key: "a", Value: "192.0.2.1:443", Weight: 1},
		{Key: "b", Value: "192.0.2.2:443", Weight: 1},
	}
	balancer, err := lb.New(lb.Config{}, backends...)
	if err != nil {
		fmt.Println(err)
		return
	}
	sticky, err := lb.NewSticky(balancer, 10_000)
	if err != nil {
		fmt.Println(err)
		return
	}
	const alice, bob = 1, 2 // hashes of their addresses
	first, _ := sticky.Pick(alice)
	for i := range backends {
		if backends[i].Key == first.Key() {
			backends[i].State = lb.Drain
		}
	}
	if err := balancer.Set(backends...); err != nil {
		fmt.Println(err)
		return
	}
	again, _ := sticky.Pick(alice)
	other, _ := sticky.Pick(bob)
	fmt.Println(again.Key() == first.Key(), other.Key() == first.Key())
	// Output: true false
}
