package nft

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// building is held while a transaction is put together: the library numbers sets
// with an unlocked counter that all its connections share. See
// https://github.com/google/nftables/pull/307.
var building sync.Mutex

// answerTimeout bounds the wait for the kernel when the context has no deadline.
// The kernel answers within the system call that sends, so this is only against
// an answer that was lost.
const answerTimeout = 30 * time.Second

// netlinkKernel talks to the kernel of the calling thread's network namespace.
// Every transaction and every listing has a socket of its own, so that neither a
// serialization error, which a library connection never forgets, nor an unread
// answer can reach the next one.
type netlinkKernel struct {
	// For tests, in bytes; 0: as much as a transaction needs and the kernel gives.
	sendLimit     int
	receiveBuffer int
}

func newKernel() kernel { return netlinkKernel{} }

// dial opens sockets with buffers for send and receive bytes, as far as the
// kernel lets us: beyond its limits only with CAP_NET_ADMIN in the initial user
// namespace.
func (k netlinkKernel) dial(ctx context.Context, send, receive int) (*nftables.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(answerTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	return nftables.New(nftables.WithSockOptions(func(c *netlink.Conn) error {
		err := setBuffers(c, send, receive)
		if err == nil {
			err = c.SetDeadline(deadline)
		}
		if err != nil {
			_ = c.Close() // the library does not
		}
		return err
	}))
}

// setBuffers never makes a buffer smaller than the system's default, but for a
// receive buffer that is asked for in so many bytes.
func setBuffers(c *netlink.Conn, send, receive int) error {
	if send > 0 {
		have, err := c.WriteBuffer()
		if err == nil && have < send {
			err = c.SetWriteBuffer(send)
		}
		if err != nil {
			return fmt.Errorf("nft: set send buffer: %w", err)
		}
	}
	if receive > 0 {
		if err := c.SetReadBuffer(receive); err != nil {
			return fmt.Errorf("nft: set receive buffer: %w", err)
		}
	}
	return nil
}

func (k netlinkKernel) capacity(ctx context.Context, size int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return 0, explain("open a netlink socket", err)
	}
	defer c.Close()
	if err := setBuffers(c, size+sendOverhead, 0); err != nil {
		return 0, err
	}
	have, err := c.WriteBuffer()
	if err != nil {
		return 0, fmt.Errorf("nft: read send buffer: %w", err)
	}
	if k.sendLimit > 0 {
		have = min(have, k.sendLimit)
	}
	return have - sendOverhead, nil
}

// sendOverhead is what the kernel keeps of a send buffer for itself (32 bytes), generously.
const sendOverhead = 4096

func (k netlinkKernel) commit(ctx context.Context, table string, ops []op) error {
	// Each message is answered, and a rule is answered with all of itself: at
	// most a kilobyte and a half of buffer each with what the kernel adds.
	receive := k.receiveBuffer
	if receive == 0 {
		receive = 64<<10 + 4096*len(ops)
	}
	building.Lock()
	defer building.Unlock()
	c, err := k.dial(ctx, sizeOf(ops)+sendOverhead, receive)
	if err != nil {
		return err
	}
	if err := build(c, table, ops); err != nil {
		return fmt.Errorf("nft: build transaction for table inet %s: %w", table, err)
	}
	switch err := c.Flush(); {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOBUFS):
		// The batch ran; only its answers did not fit. See
		// https://github.com/google/nftables/issues/103.
		return fmt.Errorf("nft: change table inet %s: %w: %w", table, errUncertain, err)
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return fmt.Errorf("nft: change table inet %s: %w: %w", table, errUncertain, err)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EEXIST), errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%w: %w", errStale, explain("change table inet "+table, err))
	default:
		return explain("change table inet "+table, err)
	}
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout()
}

// explain adds the remedy that an errno alone does not tell.
func explain(what string, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("nft: %s: needs CAP_NET_ADMIN in this network namespace: %w", what, err)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EAFNOSUPPORT):
		return fmt.Errorf("nft: %s: if it keeps failing the kernel lacks one of CONFIG_NF_TABLES, NF_TABLES_INET, NFT_NAT, NFT_FIB_INET, NF_CONNTRACK: %w", what, err)
	}
	return fmt.Errorf("nft: %s: %w", what, err)
}

// build appends the steps to the connection. The first error stops it, and then
// nothing is sent: the library would send what it has.
func build(c *nftables.Conn, table string, ops []op) error {
	t := &nftables.Table{Name: table, Family: nftables.TableFamilyINet}
	sets := map[setName]*nftables.Set{}
	set := func(n setName) *nftables.Set {
		if sets[n] == nil {
			sets[n] = newSet(t, n)
		}
		return sets[n]
	}
	var chain *nftables.Chain
	for _, o := range ops {
		switch {
		case o.addTable:
			c.AddTable(t)
		case o.delTable:
			c.DelTable(t)
		case o.addChain != nil:
			chain = c.AddChain(newChain(t, *o.addChain))
		case o.addSet != nil:
			if err := c.AddSet(set(*o.addSet), nil); err != nil {
				return err
			}
		case o.addRule != nil:
			c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: ruleExprs(*o.addRule, set(o.addRule.set).ID)})
		case o.elems != nil:
			if err := buildElems(c, set(o.elems.set), *o.elems); err != nil {
				return err
			}
		}
	}
	return nil
}

func buildElems(c *nftables.Conn, s *nftables.Set, o elemOp) error {
	list := make([]nftables.SetElement, len(o.elems))
	if o.kind != elemAdd {
		for i, e := range o.elems {
			list[i] = nftables.SetElement{Key: []byte(e.key)}
		}
		if err := c.SetDeleteElements(s, list); err != nil {
			return err
		}
	}
	if o.kind == elemDelete {
		return nil
	}
	for i, e := range o.elems {
		list[i] = nftables.SetElement{Key: []byte(e.key), Val: []byte(e.value), Timeout: e.timeout}
	}
	return c.SetAddElements(s, list)
}

func newChain(t *nftables.Table, c chainSpec) *nftables.Chain {
	accept := nftables.ChainPolicyAccept
	chain := &nftables.Chain{
		Name: c.name, Table: t, Policy: &accept, Type: nftables.ChainTypeFilter,
		Hooknum:  nftables.ChainHookPrerouting,
		Priority: new(nftables.ChainPriority(c.priority)),
	}
	if c.kind == "nat" {
		chain.Type = nftables.ChainTypeNAT
	}
	if c.hook == output {
		chain.Hooknum = nftables.ChainHookOutput
	}
	return chain
}

func newSet(t *nftables.Table, n setName) *nftables.Set {
	addr := nftables.TypeIPAddr
	if n.v6 {
		addr = nftables.TypeIP6Addr
	}
	s := &nftables.Set{
		Table: t, Name: n.String(), HasTimeout: true, Counter: true, Concatenation: true,
		KeyType:      nftables.MustConcatSetType(addr, nftables.TypeInetProto, nftables.TypeInetService),
		KeyByteOrder: binaryutil.BigEndian,
	}
	if !n.count {
		s.IsMap = true
		s.DataType = nftables.MustConcatSetType(addr, nftables.TypeInetService)
	}
	return s
}
