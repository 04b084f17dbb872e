package balancer

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lastbeat/lastbeat/examples/internal/proxyproto"
	"github.com/lastbeat/lastbeat/examples/internal/tcpproxy"
	"github.com/lastbeat/lastbeat/lb"
)

// Server is one backend. In YAML it may also be the address alone.
type Server struct {
	// Name identifies the server in logs, on pages and over reloads: up to 64
	// letters, digits and any of . _ - : [ ]. Default: its address.
	Name string `yaml:"name,omitempty"`
	// Address is host:port. Required.
	Address string `yaml:"address"`
	// Weight is the server's share of new connections, 0 to 256. 0 means none.
	// Algorithms without weights know only 0 and more. Default 1.
	Weight *int `yaml:"weight,omitempty"`
	// Tier is 0 for a server in regular use. Those of a higher tier are backups,
	// used while none of a lower one is alive. Range 0 to 255.
	Tier int `yaml:"tier,omitempty"`
	// MaxConn is how many connections the server may have at once. Default 0, no
	// limit.
	MaxConn int `yaml:"maxconn,omitempty"`
	// SendProxy tells the server by a PROXY header, v1 or v2, who its client is.
	// Health checks then send one too. Default: none.
	SendProxy proxyproto.Version `yaml:"send_proxy,omitempty"`
}

// Servers returns servers that have an address and nothing else.
func Servers(addresses ...string) []Server {
	list := make([]Server, 0, len(addresses))
	for _, a := range addresses {
		list = append(list, Server{Address: a})
	}
	return list
}

// UnmarshalYAML reads an address, or keys and values. It has this form, not that
// with a *yaml.Node, because only so the decoder still refuses unknown keys.
func (s *Server) UnmarshalYAML(decode func(any) error) error {
	var address string
	if decode(&address) == nil {
		*s = Server{Address: address}
		return nil
	}
	type keys Server // has no UnmarshalYAML
	return decode((*keys)(s))
}

// backend is what lb is told about the server, but for its state.
func (s Server) backend() lb.Backend[tcpproxy.Server] {
	to := tcpproxy.Server{Address: s.Address, Header: s.SendProxy}
	return lb.Backend[tcpproxy.Server]{Key: s.Name, Value: to, Weight: *s.Weight, Tier: uint8(s.Tier), MaxConns: s.MaxConn}
}

// maxServers is the largest number of servers: what is far above it does not fit the
// algorithms' tables.
const maxServers = 10_000

// completeServers returns a copy with the defaults filled in, or all faults joined.
func completeServers(list []Server) ([]Server, error) {
	if len(list) > maxServers {
		return nil, &Error{"backends", len(list), errors.New("too many"), fmt.Sprintf("list %d at most", maxServers)}
	}
	out := make([]Server, 0, len(list))
	var faults []error
	names, addresses := map[string]bool{}, map[string]bool{}
	for i, s := range list {
		key := fmt.Sprintf("backends[%d]", i)
		refuse := func(field string, value any, what, remedy string) {
			faults = append(faults, &Error{key + field, value, errors.New(what), remedy})
		}
		switch {
		case addresses[s.Address]:
			refuse("", s.Address, "it is listed twice", "remove one of the two")
		case !dialable(s.Address):
			refuse("", fmt.Sprintf("%q", s.Address), "no address to connect to", "write host:port, such as 192.0.2.1:6443 or [2001:db8::1]:6443")
		case s.Name == "":
			s.Name = s.Address
			fallthrough
		default:
			if strings.ContainsFunc(s.Name, notInName) || len(s.Name) > 64 {
				refuse(".name", fmt.Sprintf("%q", s.Name), "no name", "use up to 64 letters, digits and any of . _ - : [ ]")
			} else if names[s.Name] {
				refuse(".name", s.Name, "another server has it", "give each its own")
			}
		}
		addresses[s.Address], names[s.Name] = true, true

		weight := 1
		if s.Weight != nil {
			weight = *s.Weight
		}
		s.Weight = &weight // ours from here on
		between := func(field string, n, most int) {
			if n < 0 || n > most {
				refuse(field, n, "out of range", fmt.Sprintf("give 0 to %d", most))
			}
		}
		between(".weight", weight, lb.MaxWeight)
		between(".tier", s.Tier, 255)
		between(".maxconn", s.MaxConn, 1_000_000)
		out = append(out, s)
	}
	return out, errors.Join(faults...)
}

func notInName(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._-:[]", r))
}
