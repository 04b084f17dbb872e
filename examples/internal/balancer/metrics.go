package balancer

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metricsHandler answers in Prometheus's format. It has a registry of its own: several
// balancers in a process do not know of each other.
func metricsHandler(status func() Status) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector(status))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

// collector makes the metrics of one Status, so that they fit together.
type collector func() Status

type metric[T any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(T) float64
}

func counter[T any](name, help string, labels []string, value func(T) float64) metric[T] {
	return metric[T]{prometheus.NewDesc("tcplb_"+name, help, labels, nil), prometheus.CounterValue, value}
}

func gauge[T any](name, help string, labels []string, value func(T) float64) metric[T] {
	return metric[T]{prometheus.NewDesc("tcplb_"+name, help, labels, nil), prometheus.GaugeValue, value}
}

var processMetrics = []metric[Status]{
	gauge("ready", "1 while this process takes connections.", nil, func(s Status) float64 { return truth(s.Ready) }),
	gauge("servers_usable", "Servers that get new connections.", nil, func(s Status) float64 { return float64(s.Live) }),
	gauge("max_connections", "Connections served at once at most.", nil, func(s Status) float64 { return float64(s.MaxConn) }),
	gauge("open_connections", "Connections at present, waiting ones included.", nil, func(s Status) float64 { return float64(s.Conns.Open) }),
	gauge("queued_connections", "Connections that wait for a server with room.", nil, func(s Status) float64 { return float64(s.Conns.Queued) }),
	counter("accepted_connections_total", "Connections taken from clients.", nil, func(s Status) float64 { return float64(s.Conns.Accepted) }),
	counter("served_connections_total", "Connections that got a server.", nil, func(s Status) float64 { return float64(s.Conns.Served) }),
	counter("retries_total", "Attempts after a failed one for the same connection.", nil, func(s Status) float64 { return float64(s.Conns.Retried) }),
	counter("unserved_connections_total", "Connections for which no server was found.", nil, func(s Status) float64 { return float64(s.Conns.Unserved) }),
	counter("broken_connections_total", "Served connections that did not end in order on both sides.", nil, func(s Status) float64 { return float64(s.Conns.BrokenOff) }),
	counter("waited_connections_total", "Connections that ever waited for a server with room.", nil, func(s Status) float64 { return float64(s.Conns.Waited) }),
	counter("queue_full_total", "Connections reset as the queue was full.", nil, func(s Status) float64 { return float64(s.Conns.QueueFull) }),
	counter("queue_timeouts_total", "Connections reset after waiting in vain.", nil, func(s Status) float64 { return float64(s.Conns.QueueTimeout) }),
	counter("rebuilds_total", "Changes of the set of servers that took effect.", nil, func(s Status) float64 { return float64(s.Rebuilds) }),
}

var byServer = []string{"server"}

var serverMetrics = []metric[BackendStatus]{
	gauge("server_up", "1 while the server is known to be alive; 0 also if nothing is known.", byServer, func(s BackendStatus) float64 { return truth(s.State == "online") }),
	gauge("server_usable", "1 while the server gets new connections.", byServer, func(s BackendStatus) float64 { return truth(s.Usable) }),
	gauge("server_since_seconds", "Unix time at which the server's state began; 0 if it was never known.", byServer, func(s BackendStatus) float64 { return unix(s.Since) }),
	gauge("server_valid_until_seconds", "Unix time until which the verdict holds; 0 if nothing is known.", byServer, func(s BackendStatus) float64 { return unix(s.ValidUntil) }),
	gauge("server_weight", "Share of new connections.", byServer, func(s BackendStatus) float64 { return float64(s.Weight) }),
	gauge("server_open_connections", "Connections at present.", byServer, func(s BackendStatus) float64 { return float64(s.Open) }),
	counter("server_ended_connections_total", "Connections that ended, failed attempts included.", byServer, func(s BackendStatus) float64 { return float64(s.Ended) }),
	counter("server_connect_failures_total", "Attempts that were refused or timed out.", byServer, func(s BackendStatus) float64 { return float64(s.Failed) }),
	counter("server_bytes_in_total", "Bytes from clients.", byServer, func(s BackendStatus) float64 { return float64(s.In) }),
	counter("server_bytes_out_total", "Bytes to clients.", byServer, func(s BackendStatus) float64 { return float64(s.Out) }),
}

// stateDesc has one series for each state that there is, so that none is missing.
var (
	stateDesc = prometheus.NewDesc("tcplb_server_state", "1 for the state that the health checks found.", []string{"server", "state"}, nil)
	adminDesc = prometheus.NewDesc("tcplb_server_admin", "1 for the state that a person wants.", []string{"server", "state"}, nil)
	states    = []string{"unknown", "online", "offline", "error"}
)

// Describe implements [prometheus.Collector].
func (collector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range processMetrics {
		out <- m.desc
	}
	for _, m := range serverMetrics {
		out <- m.desc
	}
	out <- stateDesc
	out <- adminDesc
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(out chan<- prometheus.Metric) {
	status := c()
	for _, m := range processMetrics {
		out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(status))
	}
	for _, s := range status.Backends {
		for _, m := range serverMetrics {
			out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(s), s.Backend)
		}
		for _, state := range states {
			out <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, truth(s.State == state), s.Backend, state)
		}
		for _, state := range adminNames {
			out <- prometheus.MustNewConstMetric(adminDesc, prometheus.GaugeValue, truth(s.Admin == state), s.Backend, state)
		}
	}
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
