package health_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/lastbeat/lastbeat/health"
)

// DNS servers answer over UDP: a query for the root's name servers, and an answer
// that carries its number.
func ExampleNewUDP() {
	server, err := net.ListenPacket("udp", "127.0.0.1:0") // stands for 192.0.2.53:53
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	go func() {
		b := make([]byte, 512)
		if n, from, err := server.ReadFrom(b); err == nil {
			server.WriteTo(b[:n], from)
		}
	}()

	probe, err := health.NewUDP(health.UDPConfig{
		Address: server.LocalAddr().String(),
		Send:    []byte("\xbe\xa7\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x01"),
		Expect:  []byte("\xbe\xa7"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(health.Classify(probe.Probe(context.Background())))
	// Output: good
}

// Without the privilege the outcome is a local error that says how to get it; here
// only the configuration is shown to be checked.
func ExampleNewICMP() {
	_, err := health.NewICMP(health.ICMPConfig{Address: netip.MustParseAddr("fe80::1")})
	fmt.Println(err)
	fmt.Println(errors.Is(err, health.ErrConfig))
	// Output:
	// health: Address is fe80::1: want a zone, such as %eth0, as it is link-local
	// true
}

func ExampleParseAgent() {
	report, err := health.ParseAgent("75%, maxconn:30, drain, up # going home\r\n")
	fmt.Println(report.State, report.Admin, report.Weight, report.MaxConn, report.Detail, err)
	_, err = health.ParseAgent("up and away")
	fmt.Println(err)
	// Output:
	// up drain 75 30 going home <nil>
	// health: bad agent line: "and" is no word of it: want up, down, fail, stopped, ready, drain, maint, 0% to 25600%, or maxconn:0 to maxconn:2147483647
}
