package vrrp_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/vrrp"
)

// A program whose users write other names for the settings can tell which is meant.
func TestConfigErrorNamesField(t *testing.T) {
	_, err := vrrp.NewInstance(vrrp.InstanceConfig{
		Config: vrrp.Config{Lifetime: time.Second, Tracks: []vrrp.Track{{Name: "a", Weight: 300}}},
		Label:  "longer than fifteen",
	})
	fields := map[string]bool{}
	for _, fault := range flatten(err) {
		config, ok := errors.AsType[*vrrp.ConfigError](fault)
		require.True(t, ok, fault)
		fields[config.Field] = true
	}
	for _, field := range []string{"VRID", "Source", "Addrs", "Peers", "Lifetime", "Tracks", "Interface", "Prefixes", "Label"} {
		require.Contains(t, fields, field)
	}
}

// flatten takes joined errors apart.
func flatten(err error) (out []error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	for _, e := range joined.Unwrap() {
		out = append(out, flatten(e)...)
	}
	return out
}
