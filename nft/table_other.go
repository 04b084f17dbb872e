//go:build !linux

package nft

import (
	"context"
	"errors"
	"fmt"
	"runtime"
)

// errPlatform matches errors.ErrUnsupported.
var errPlatform = fmt.Errorf("nft: no nftables on %s, use Linux: %w", runtime.GOOS, errors.ErrUnsupported)

type noKernel struct{}

func newKernel() kernel { return noKernel{} }

func (noKernel) read(context.Context, layout) (state, error)         { return state{}, errPlatform }
func (noKernel) capacity(context.Context, int) (int, error)          { return 0, errPlatform }
func (noKernel) commit(context.Context, string, []op) error          { return errPlatform }
func (noKernel) chains(context.Context, string) ([]baseChain, error) { return nil, errPlatform }
