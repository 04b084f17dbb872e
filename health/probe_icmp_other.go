//go:build !linux

package health

import (
	"context"
	"errors"
	"fmt"
)

const echoSupported = false

// Probe returns an error, as no [ICMP] can be made here.
func (p *ICMP) Probe(context.Context) error {
	return fmt.Errorf("health: %w: ICMP echo: %w", ErrLocal, errors.ErrUnsupported)
}
