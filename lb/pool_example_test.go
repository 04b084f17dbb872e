package lb_test

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/lastbeat/lastbeat/lb"
)

// An agent talks to one of several API servers: to its own node's as long as that
// is up, else to any. When health checks take the server down, the connection is
// closed, and the agent dials again.
func ExamplePool() {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == "192.0.2.2:6443" {
			return nil, errors.New("connection refused")
		}
		conn, _ := net.Pipe() // a real one leaves Dial unset
		return conn, nil
	}
	servers := []lb.Server{
		{Address: "192.0.2.1:6443", Preferred: true},
		{Address: "192.0.2.2:6443"},
		{Address: "192.0.2.3:6443"},
		{Address: "api.example.com:6443", LastResort: true},
	}
	pool, err := lb.NewPool(lb.PoolConfig{Dial: dial}, servers...)
	if err != nil {
		fmt.Println(err)
		return
	}
	connect := func() *lb.Conn {
		conn, err := pool.Dial(context.Background())
		if err != nil {
			fmt.Println(err)
			return nil
		}
		fmt.Println("connected to", conn.Address)
		return conn
	}

	conn := connect()
	servers[0].State = lb.Down
	if err := pool.Set(servers...); err != nil {
		fmt.Println(err)
		return
	}
	_, err = conn.Write([]byte("hello"))
	fmt.Println("closed:", err != nil)
	connect()
	servers[1].State, servers[2].State = lb.Down, lb.Down
	if err := pool.Set(servers...); err != nil {
		fmt.Println(err)
		return
	}
	connect()
	// Output:
	// connected to 192.0.2.1:6443
	// closed: true
	// connected to 192.0.2.3:6443
	// connected to api.example.com:6443
}
