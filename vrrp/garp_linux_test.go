package vrrp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The frame that the arp package sends has the bytes of the captured ones.
func TestGratuitousARPPacketGolden(t *testing.T) {
	for _, tt := range garpGolden {
		t.Run(tt.name, func(t *testing.T) {
			p, err := tt.want.arpPacket()
			require.NoError(t, err)
			b, err := p.MarshalBinary()
			require.NoError(t, err)
			require.Equal(t, garpBytes(t, tt.frame)[garpOffARP:], b)
		})
	}
}
