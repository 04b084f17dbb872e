package balancer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// control is the port by which people change what servers get:
//
//	GET  /servers              all of them, as JSON
//	GET  /servers/NAME         one of them
//	POST /servers/NAME/state   ready, drain or maint
//	POST /servers/NAME/weight  0 to 256, or configured
//
// There is no password. The port stands on a loopback address, where whoever can
// connect is a user of this machine, unless the file says otherwise.
func (b *B) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /servers", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, b.Status().Backends)
	})
	mux.HandleFunc("GET /servers/{name}", b.answerServer)
	mux.HandleFunc("POST /servers/{name}/state", b.change(func(name, value string) error {
		var state Admin
		if err := state.UnmarshalText([]byte(value)); err != nil {
			return err
		}
		return b.SetState(name, state)
	}))
	mux.HandleFunc("POST /servers/{name}/weight", b.change(func(name, value string) error {
		if value == "configured" {
			return b.SetWeight(name, nil)
		}
		n, err := strconv.Atoi(value)
		if err != nil {
			return &Error{"weight", fmt.Sprintf("%q", value), errors.New("no number"), "give 0 to 256, or configured"}
		}
		return b.SetWeight(name, &n)
	}))
	// A browser on this machine would pass on what any web page asks it to send.
	return http.NewCrossOriginProtection().Handler(b.knownHost(mux))
}

// knownHost refuses requests for a name that somebody else made point here, which
// is how a web page gets around the check of its origin.
func (b *B) knownHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err != nil && host != "localhost" {
			http.Error(w, fmt.Sprintf("host %q: ask by address, or as localhost", host), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// change answers a request that changes a server with how that one is now.
func (b *B) change(apply func(name, value string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		const longest = 64
		name := r.PathValue("name")
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longest))
		if err == nil {
			err = apply(name, strings.TrimSpace(string(body)))
		}
		b.mu.Lock()
		log := b.config.Log
		b.mu.Unlock()
		what := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		if err != nil {
			code := http.StatusBadRequest
			if errors.Is(err, ErrNoServer) {
				code = http.StatusNotFound
			}
			http.Error(w, strings.TrimPrefix(err.Error(), "balancer: "), code)
			return
		}
		log.Info("changed by hand", "backend", name, what, strings.TrimSpace(string(body)), "client", r.RemoteAddr)
		b.answerServer(w, r)
	}
}

func (b *B) answerServer(w http.ResponseWriter, r *http.Request) {
	for _, s := range b.Status().Backends {
		if s.Backend == r.PathValue("name") {
			answerJSON(w, s)
			return
		}
	}
	http.Error(w, fmt.Sprintf("server %q: no such server: name one that is listed", r.PathValue("name")), http.StatusNotFound)
}

func answerJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v) // fails only when nobody listens any more
}

// loopback tells whether an address to listen on is open to this machine alone. A
// name other than localhost may point anywhere.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
