package health

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
)

// HTTPConfig configures an [HTTP] prober.
type HTTPConfig struct {
	// URL is what to ask for; its scheme is http or https.
	URL string
	// Method is the request's method. Default GET.
	Method string
	// Address is the host:port to connect to when it is not the URL's. So one
	// server out of many behind a name is asked as if by that name.
	Address string
	// Host is the request's Host header. Default: the host of URL.
	Host string
	// ServerName is the name sent in the TLS handshake (SNI) and verified. Default:
	// the host of Host or URL, without port.
	ServerName string
	// SkipVerify accepts any certificate. The answer then proves that something
	// serves there, not that it is the right one. Default: verify.
	SkipVerify bool
	// RootCAs verify the certificate. Default: the system's.
	RootCAs *x509.CertPool
	// MinStatus and MaxStatus are the range of good status codes. Default 200 to
	// 299. Redirects are answers like others; they are not followed.
	MinStatus, MaxStatus int
	// MaxBody is how many bytes of the answer's body are read and thrown away.
	// A body that breaks off before is bad, a longer one is left unread. Default
	// 65,536, range 1 to 2^30.
	MaxBody int64
	// Source is the address to probe from. Default: the system chooses.
	Source netip.Addr
}

// HTTP probes by one HTTP/1.1 request over a connection of its own, with TLS for
// https. Connections are not reused: an old one would work long after the server
// stopped accepting new ones. Proxy settings of the environment are ignored. It
// needs no privilege and may be used by many goroutines at once. Make one with
// [NewHTTP].
type HTTP struct {
	config HTTPConfig
	client *http.Client
}

// NewHTTP returns a prober. Its error joins a *[ConfigError] for each bad field.
func NewHTTP(config HTTPConfig) (*HTTP, error) {
	var faults []error
	refuse := func(field string, value any, want string) {
		faults = append(faults, &ConfigError{"", field, value, want})
	}
	u, err := url.Parse(config.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		refuse("URL", fmt.Sprintf("%q", config.URL), "http://host/path or https://host/path")
		u = &url.URL{}
	}
	if config.Method == "" {
		config.Method = http.MethodGet
	}
	if _, err := http.NewRequest(config.Method, "http://host/", nil); err != nil {
		refuse("Method", fmt.Sprintf("%q", config.Method), "a token such as GET")
	}
	if config.Address != "" {
		if err := checkAddress("Address", config.Address); err != nil {
			faults = append(faults, err)
		}
	}
	if config.Host == "" {
		config.Host = u.Host
	}
	if config.ServerName == "" {
		config.ServerName = (&url.URL{Host: config.Host}).Hostname()
	}
	if config.MinStatus == 0 {
		config.MinStatus = 200
	}
	if config.MaxStatus == 0 {
		config.MaxStatus = max(299, config.MinStatus)
	}
	if config.MinStatus < 100 || config.MaxStatus > 999 || config.MinStatus > config.MaxStatus {
		refuse("MinStatus, MaxStatus", fmt.Sprintf("%d, %d", config.MinStatus, config.MaxStatus), "100 to 999, in this order")
	}
	if config.MaxBody == 0 {
		config.MaxBody = 64 << 10
	}
	if config.MaxBody < 1 || config.MaxBody > 1<<30 {
		refuse("MaxBody", config.MaxBody, "1 to 2^30")
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}

	d := dialer(config.Source)
	return &HTTP{config: config, client: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				if config.Address != "" {
					address = config.Address
				}
				return d.DialContext(ctx, network, address)
			},
			TLSClientConfig: &tls.Config{
				ServerName:         config.ServerName,
				RootCAs:            config.RootCAs,
				InsecureSkipVerify: config.SkipVerify,
			},
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: 64 << 10,
		},
	}}, nil
}

// Probe sends the request and judges the answer; it implements [Prober].
func (p *HTTP) Probe(ctx context.Context) error {
	if err := begun(ctx); err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, p.config.Method, p.config.URL, nil)
	if err != nil {
		return fmt.Errorf("health: %w: %w", ErrLocal, err)
	}
	request.Host = p.config.Host
	response, err := p.client.Do(request)
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	defer response.Body.Close()
	if c := response.StatusCode; c < p.config.MinStatus || c > p.config.MaxStatus {
		return fmt.Errorf("health: %s %s: status %d: want %d to %d",
			p.config.Method, p.config.URL, c, p.config.MinStatus, p.config.MaxStatus)
	}
	if _, err := io.CopyN(io.Discard, response.Body, p.config.MaxBody); err != nil && err != io.EOF {
		return fmt.Errorf("health: %s %s: body: %w", p.config.Method, p.config.URL, err)
	}
	return nil
}
