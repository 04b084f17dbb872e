package balancer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/lastbeat/lastbeat/examples/internal/proxyproto"
	"github.com/lastbeat/lastbeat/health"
)

// target returns what to probe of a server. c is complete.
func (c Check) target(s Server) (health.Target, error) {
	t := health.Target{Key: s.Name, Config: c.health()}
	var err error
	switch {
	case s.SendProxy != proxyproto.None:
		t.Prober = c.behindHeader(s)
	case c.Kind == "tcp":
		t.Prober, err = health.NewTCP(health.TCPConfig{Address: s.Address})
	default:
		t.Prober, err = health.NewHTTP(health.HTTPConfig{URL: c.Kind + "://" + s.Address + c.Path, SkipVerify: true})
	}
	return t, err
}

// behindHeader probes a server that expects a PROXY header, and would take the probe
// for a broken one without. The header says that nobody is behind it.
func (c Check) behindHeader(s Server) health.Prober {
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, s.Address)
		if err != nil {
			return nil, err
		}
		if _, err := conn.Write(s.SendProxy.AppendLocal(nil)); err != nil {
			conn.Close()
			return nil, err
		}
		return conn, nil
	}
	if c.Kind == "tcp" {
		return health.Func(func(ctx context.Context) error {
			conn, err := dial(ctx, "tcp", s.Address)
			if err == nil {
				conn.Close()
			}
			return err
		})
	}
	client := &http.Client{
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true, DisableCompression: true,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return health.Func(func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Kind+"://"+s.Address+c.Path, nil)
		if err != nil {
			return errors.Join(health.ErrLocal, err)
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode < 200 || response.StatusCode > 299 {
			return fmt.Errorf("status %d", response.StatusCode)
		}
		_, err = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<16))
		return err
	})
}
