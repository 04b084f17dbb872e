package vrrp

import (
	"fmt"
	"net"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/packet"
)

// announceSendTimeout bounds the wait for room in the interface's queue. A
// frame that cannot leave now is worth less than the lock held meanwhile.
const announceSendTimeout = 50 * time.Millisecond

// announcerLink is a socket bound to an interface.
type announcerLink struct {
	ifi  net.Interface
	mac  [6]byte
	conn *packet.Conn
	// client is nil until the interface has an IPv4 address, without which
	// the arp package makes none.
	client *arp.Client
}

// openAnnouncerLink returns old if it still belongs to the interface of that
// name, with the hardware address brought up to date, else a new socket. On
// error old is closed.
func openAnnouncerLink(name string, old *announcerLink) (*announcerLink, error) {
	link, err := addrLink(name)
	if err != nil {
		return old.close(), err
	}
	at := link.Attrs()
	if len(at.HardwareAddr) != 6 {
		return old.close(), fmt.Errorf("has no Ethernet address: gratuitous ARP needs an Ethernet interface")
	}
	l := old
	if l == nil || l.ifi.Index != at.Index {
		old.close()
		l = &announcerLink{ifi: net.Interface{Index: at.Index, Name: at.Name, MTU: at.MTU}}
		// Protocol 0 receives nothing: we only send, and nobody would drain
		// the socket.
		if l.conn, err = packet.Listen(&l.ifi, packet.Raw, 0, nil); err != nil {
			return nil, err
		}
	}
	l.mac = [6]byte(at.HardwareAddr)
	if l.client == nil {
		// Its failure is reported by send: before the first address is there,
		// opening is still good for finding out about the privilege.
		l.client, _ = arp.New(&l.ifi, l.conn)
	}
	return l, nil
}

// send puts one frame on the wire, padded to the 60 bytes that Ethernet asks
// for.
func (l *announcerLink) send(g GratuitousARP) (err error) {
	if l.client == nil {
		if l.client, err = arp.New(&l.ifi, l.conn); err != nil {
			return err
		}
	}
	p, err := g.arpPacket()
	if err != nil {
		return err
	}
	if err := l.conn.SetWriteDeadline(time.Now().Add(announceSendTimeout)); err != nil {
		return err
	}
	return l.client.WriteTo(p, garpBroadcast[:])
}

func (l *announcerLink) close() *announcerLink {
	if l != nil {
		_ = l.conn.Close() // nothing is buffered that could be lost
	}
	return nil
}

// arpPacket is the ARP part of the frame for the arp package.
func (g GratuitousARP) arpPacket() (*arp.Packet, error) {
	if err := g.validate(); err != nil {
		return nil, err
	}
	op := arp.OperationRequest
	if g.Reply {
		op = arp.OperationReply
	}
	target := g.targetMAC()
	return arp.NewPacket(op, g.MAC[:], g.Addr, target[:], g.Addr)
}
