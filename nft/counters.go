package nft

// Counters of one redirect. They only grow while the redirect stays configured,
// also when the table is rebuilt or an element expired and came back. What the
// kernel counted between our last look and such an event is lost.
type Counters struct {
	Redirect Redirect
	// External is what came in from other machines, Local what this machine sent
	// to the VIP while it had it. Neither contains the other.
	External, Local Traffic
}

// Traffic of one direction: from the clients to the VIP.
type Traffic struct {
	// Connections that were redirected.
	Connections uint64
	// Packets and Bytes (with IP headers) that were sent to the VIP's From port
	// while this machine had the address. They include the packets of
	// connections that were open before the redirect stood. Packets that grow
	// while Connections do not are a sign that another table rewrites first.
	Packets, Bytes uint64
}

// tally makes the kernel's counters monotonic. It is pure.
type tally map[tallyKey]*tallied

type tallyKey struct {
	set setName
	key string
}

type tallied struct{ packets, bytes count }

// count is a counter that may start again at zero.
type count struct{ base, last uint64 }

func (c *count) observe(now uint64) {
	if now < c.last {
		c.base += c.last
	}
	c.last = now
}

func (c count) total() uint64 { return c.base + c.last }

// observe takes what was read from the kernel. An element that is missing keeps
// what it had: should it come back lower, it had started again.
func (t tally) observe(have state) {
	for k, v := range t {
		if e, ok := have.sets[k.set.String()].elems[k.key]; ok {
			v.packets.observe(e.packets)
			v.bytes.observe(e.bytes)
		}
	}
}

// restarted takes what was committed: counters of replaced elements are at zero.
func (t tally) restarted(ops []op) {
	for _, o := range ops {
		switch {
		case o.delTable:
			for _, v := range t {
				v.restart()
			}
		case o.elems != nil && o.elems.kind == elemReplace:
			for _, e := range o.elems.elems {
				if v := t[tallyKey{o.elems.set, e.key}]; v != nil {
					v.restart()
				}
			}
		}
	}
}

func (v *tallied) restart() {
	v.packets.observe(0)
	v.bytes.observe(0)
}

// add starts to follow the elements of a layout.
func (t tally) add(l layout) {
	for _, s := range l.sets {
		for k := range s.elems {
			if t[tallyKey{s.setName, k}] == nil {
				t[tallyKey{s.setName, k}] = new(tallied)
			}
		}
	}
}

// keep forgets the elements that are not in the layout.
func (t tally) keep(l layout) {
	wanted := make(tally)
	wanted.add(l)
	for k := range t {
		if wanted[k] == nil {
			delete(t, k)
		}
	}
}

func (t tally) counters(redirects []Redirect) []Counters {
	out := make([]Counters, len(redirects))
	for i, r := range redirects {
		traffic := func(local bool) Traffic {
			n := setName{local: local, v6: r.VIP.Is6()}
			var sum Traffic
			if v := t[tallyKey{n, r.key()}]; v != nil {
				sum.Connections = v.packets.total() // a nat chain sees the first packet only
			}
			n.count = true
			if v := t[tallyKey{n, r.key()}]; v != nil {
				sum.Packets, sum.Bytes = v.packets.total(), v.bytes.total()
			}
			return sum
		}
		out[i] = Counters{Redirect: r, External: traffic(false), Local: traffic(true)}
	}
	return out
}
