package nft

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Registers. A concatenated key lies in consecutive 4-byte registers; the
// kernel's 16-byte register 1 is the 4-byte registers 8 to 11.
const (
	reg16   = unix.NFT_REG_1
	reg32   = unix.NFT_REG32_00
	loIndex = 1 // of the loopback interface, in every namespace
)

// ruleExprs returns the rule as the kernel's instructions, the same that nft
// makes of ruleSpec.text.
func ruleExprs(r ruleSpec, setID uint32) []expr.Any {
	// Interface indices and address types are kept in the machine's byte order.
	host := func(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

	family, addrOffset, addrLen := byte(unix.NFPROTO_IPV4), uint32(16), uint32(4)
	if r.set.v6 {
		family, addrOffset, addrLen = unix.NFPROTO_IPV6, 24, 16
	}
	afterAddr := reg32 + addrLen/4

	var e []expr.Any
	if r.hook == prerouting {
		e = append(e,
			&expr.Meta{Key: expr.MetaKeyIIF, Register: reg16},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: reg16, Data: host(loIndex)})
	}
	e = append(e,
		&expr.Fib{Register: reg16, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: reg16, Data: host(unix.RTN_LOCAL)},
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: reg16},
		&expr.Cmp{Op: expr.CmpOpEq, Register: reg16, Data: []byte{family}},
		&expr.Payload{DestRegister: reg16, Base: expr.PayloadBaseNetworkHeader, Offset: addrOffset, Len: addrLen},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: afterAddr},
		&expr.Payload{DestRegister: afterAddr + 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
	)
	lookup := &expr.Lookup{SourceRegister: reg16, SetName: r.set.String(), SetID: setID}
	if r.set.count {
		return append(e, lookup)
	}
	lookup.IsDestRegSet, lookup.DestRegister = true, reg16
	return append(e, lookup,
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(family), RegAddrMin: reg16, RegProtoMin: afterAddr})
}

// describe returns instructions as text that is equal for equal rules, whether
// they were built here or read from the kernel, which fills in some fields and
// names registers its own way. The library drops instructions that it does not
// know; none of them can replace one of ours.
func describe(exprs []expr.Any) string {
	parts := make([]string, len(exprs))
	for i, e := range exprs {
		switch x := e.(type) {
		case *expr.Lookup:
			c := *x
			c.SetID = 0
			c.SourceRegister, c.DestRegister = sameReg(c.SourceRegister), sameReg(c.DestRegister)
			e = &c
		case *expr.NAT:
			c := *x
			c.Specified = c.RegProtoMin != 0
			if c.RegAddrMax == 0 {
				c.RegAddrMax = c.RegAddrMin
			}
			if c.RegProtoMax == 0 {
				c.RegProtoMax = c.RegProtoMin
			}
			c.RegAddrMin, c.RegAddrMax = sameReg(c.RegAddrMin), sameReg(c.RegAddrMax)
			c.RegProtoMin, c.RegProtoMax = sameReg(c.RegProtoMin), sameReg(c.RegProtoMax)
			e = &c
		case *expr.Meta:
			c := *x
			c.Register = sameReg(c.Register)
			e = &c
		case *expr.Payload:
			c := *x
			c.DestRegister = sameReg(c.DestRegister)
			e = &c
		case *expr.Cmp:
			c := *x
			c.Register = sameReg(c.Register)
			e = &c
		case *expr.Fib:
			c := *x
			c.Register = sameReg(c.Register)
			e = &c
		}
		parts[i] = fmt.Sprintf("%T%+v", e, e)
	}
	return strings.NewReplacer("*expr.", "", "&{", "{").Replace(strings.Join(parts, " "))
}

// sameReg gives the two names of one place, 16-byte register n and 4-byte
// register 4n+4, one name.
func sameReg(r uint32) uint32 {
	if r >= unix.NFT_REG_1 && r <= unix.NFT_REG_4 {
		return reg32 + (r-unix.NFT_REG_1)*4
	}
	return r
}
