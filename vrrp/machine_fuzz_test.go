package vrrp_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/vrrp"
)

// The bytes are a script: each three choose an input and its arguments. Whatever
// comes, the addresses are held exactly while the machine is active, and nothing
// is announced otherwise.
func FuzzMachine(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 200, 0, 2, 10, 68, 1, 50, 0, 3, 1, 0})
	f.Add([]byte{1, 255, 255, 2, 1, 0, 1, 10, 0, 2, 0, 255})
	f.Fuzz(func(t *testing.T, script []byte) {
		cfg := baseConfig()
		cfg.Tracks = []vrrp.Track{{"vital", 0}, {"bonus", 20}}
		m, err := vrrp.NewMachine(cfg)
		require.NoError(t, err)
		now := t0
		state, held := vrrp.Initialize, false
		for ; len(script) >= 3; script = script[3:] {
			a, b := script[1], script[2]
			switch script[0] % 7 {
			case 0:
				m.Start(now)
			case 1:
				now = now.Add(time.Duration(a)*10*ms + time.Duration(b)*time.Second/8)
				m.Advance(now)
				if at := m.Deadline(); state != vrrp.Initialize {
					require.True(t, at.After(now), "what is due is done: a loop would spin")
				}
			case 2:
				src := []netip.Addr{lowAddr, highAddr, ownAddr}[a%3]
				arrival := now.Add(-time.Duration(a) * 10 * ms)
				m.Receive(arrival, wrapIPv4(t, m.Advert(b), src, ownAddr, 255))
			case 3:
				name := []string{"vital", "bonus", "none"}[a%3]
				_ = m.Report(now, name, b%2 == 0, now.Add(time.Duration(b)*100*ms))
			case 4:
				if a == 1 {
					m.Shutdown(now)
				}
			case 5:
				m.Receive(now, script)
			case 6:
				if at := m.Deadline(); !at.IsZero() && at.After(now) {
					now = at
					m.Advance(now)
				}
			}
			for _, act := range m.AppendActions(nil) {
				switch act.Kind {
				case vrrp.Changed:
					require.Equal(t, state, act.From)
					state = act.To
				case vrrp.Hold:
					require.Equal(t, vrrp.Active, state)
					require.True(t, act.Until.After(now))
					held = true
				case vrrp.LetGo:
					held = false
				case vrrp.Announce:
					require.True(t, held)
				}
			}
			require.Equal(t, state == vrrp.Active, held)
			if at := m.Deadline(); state != vrrp.Initialize {
				require.False(t, at.IsZero())
				require.False(t, at.After(now.Add(time.Second)), "never later than an interval")
			}
		}
	})
}
