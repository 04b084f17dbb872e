package node

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lastbeat/lastbeat/examples/internal/balancer"
	"github.com/lastbeat/lastbeat/health"
	"github.com/lastbeat/lastbeat/vrrp"
)

// StartError is a fault that kept a node from starting: nothing was left behind.
type StartError struct{ Err error }

// Error returns the fault.
func (e *StartError) Error() string { return e.Err.Error() }

// Unwrap returns the fault.
func (e *StartError) Unwrap() error { return e.Err }

// Lines takes joined errors apart: one line for each fault.
func Lines(err error) []error {
	if start, ok := err.(*StartError); ok {
		return Lines(start.Err)
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, Lines(e)...)
	}
	return out
}

// fault is what is wrong with a key of the file: what, and what to do.
func fault(key string, value any, text string) error {
	return fmt.Errorf("%s %v: %s", key, value, text)
}

// faults collects what is wrong.
type faults []error

func (f *faults) refuse(key string, value any, text string) { *f = append(*f, fault(key, value, text)) }

func (f *faults) add(err error) {
	if err != nil {
		*f = append(*f, err)
	}
}

func (f faults) err() error { return errors.Join(f...) }

// balancerFaults tells the balancer's faults by their keys in our file.
func balancerFaults(err error) error {
	if err == nil {
		return nil
	}
	var out faults
	for _, e := range Lines(err) {
		if b, ok := errors.AsType[*balancer.Error](e); ok {
			e = fault("balancer."+b.Key, b.Value, fmt.Sprintf("%v: %s", b.Err, b.Remedy))
		}
		out.add(e)
	}
	return out.err()
}

// healthFaults tells health's faults by the keys below key in our file.
func healthFaults(key string, err error) error {
	if err == nil {
		return nil
	}
	var out faults
	for _, e := range Lines(err) {
		if c, ok := errors.AsType[*health.ConfigError](e); ok {
			e = fault(key+"."+strings.ToLower(c.Field), c.Value, "out of range: give "+c.Want)
		}
		out.add(e)
	}
	return out.err()
}

// instanceKeys are the keys of the file by the names of vrrp's fields.
var instanceKeys = map[string]string{
	"VRID": "vrid", "Version": "version", "Interval": "interval", "Source": "source",
	"Addrs": "addresses", "Prefixes": "addresses", "Peers": "peers", "Multicast": "multicast",
	"Password": "password", "PreemptDelay": "preempt_delay", "Lifetime": "lifetime",
	"Tracks": "tracks", "Interface": "interface", "Label": "label",
}

// vrrpFaults tells vrrp's faults by the keys below key in our file. A key has one
// fault at a time: several parts of vrrp look at the same settings.
func vrrpFaults(key string, err error) error {
	if err == nil {
		return nil
	}
	var out faults
	told := map[string]bool{}
	for _, e := range Lines(err) {
		if c, ok := errors.AsType[*vrrp.ConfigError](e); ok {
			field := instanceKeys[c.Field]
			if told[field] {
				continue
			}
			told[field] = true
			e = fmt.Errorf("%s.%s: %w", key, field, c.Err)
		}
		out.add(e)
	}
	return out.err()
}
