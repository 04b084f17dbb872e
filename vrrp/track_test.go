package vrrp_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastbeat/lastbeat/vrrp"
)

// The priorities of an OpenShift API instance as each of its causes fails alone.
func TestTrackWeights(t *testing.T) {
	r := started(t, func(c *vrrp.Config) {
		c.Priority = 40
		c.Tracks = []vrrp.Track{{"lb", 20}, {"both", 5}, {"mcs", 3}, {"disk", -10}}
	})
	report := func(name string, up bool) { require.NoError(t, r.Report(r.now, name, up, forever)) }
	priority := func() uint8 { return r.Status(r.now).Priority }
	require.EqualValues(t, 40, priority(), "nothing is granted or taken before the first report")
	report("lb", true)
	report("both", true)
	report("mcs", true)
	require.EqualValues(t, 68, priority())
	report("disk", true)
	require.EqualValues(t, 68, priority(), "a negative weight grants nothing")
	report("lb", false)
	require.EqualValues(t, 48, priority())
	report("both", false)
	require.EqualValues(t, 43, priority())
	report("lb", true)
	report("both", true)
	report("disk", false)
	require.EqualValues(t, 58, priority())
	require.ErrorIs(t, r.Report(r.now, "no such", true, forever), vrrp.ErrTrack)
	require.ErrorContains(t, r.Report(r.now, "no such", true, forever), `"no such"`)

	t.Run("clamped to 1 to 254", func(t *testing.T) {
		r := started(t, func(c *vrrp.Config) { c.Tracks = []vrrp.Track{{"a", 253}, {"b", -253}} })
		require.NoError(t, r.Report(r.now, "a", true, forever))
		require.EqualValues(t, 254, r.Status(r.now).Priority)
		require.NoError(t, r.Report(r.now, "a", false, forever))
		require.NoError(t, r.Report(r.now, "b", false, forever))
		require.EqualValues(t, 1, r.Status(r.now).Priority)
	})
	t.Run("never for an owner", func(t *testing.T) {
		r := started(t, func(c *vrrp.Config) { c.Priority, c.Tracks = 255, []vrrp.Track{{"b", -253}} })
		require.NoError(t, r.Report(r.now, "b", false, forever))
		require.EqualValues(t, 255, r.Status(r.now).Priority)
	})
}

// A report that nobody renews stops being true, without anybody sweeping.
func TestTrackNotRenewed(t *testing.T) {
	r := active(t, func(c *vrrp.Config) { c.Tracks = []vrrp.Track{{"bonus", 20}} })
	require.NoError(t, r.Report(r.now, "bonus", true, r.now.Add(500*ms)))
	require.EqualValues(t, 88, r.Status(r.now).Priority)
	require.Equal(t, r.now.Add(500*ms), r.Deadline(), "the machine asks to be called when the report ends")
	r.next()
	require.EqualValues(t, 68, r.Status(r.now).Priority)
}

// A packet that had arrived before a report ended, and is handed in after, does
// not bring the report back to life: an owner would take the addresses at once.
func TestTrackStaysExpired(t *testing.T) {
	r := started(t, func(c *vrrp.Config) { c.Priority, c.Tracks = 255, []vrrp.Track{{"vital", 0}} })
	require.NoError(t, r.Report(r.now, "vital", true, t0.Add(time.Second)))
	require.Equal(t, vrrp.Active, r.state())
	r.until(time.Second)
	require.Equal(t, vrrp.Fault, r.state())
	r.did()
	pkt := wrapIPv4(t, r.Machine.Advert(100), highAddr, ownAddr, 255)
	require.Equal(t, vrrp.Accepted, r.Receive(r.now.Add(-ms), pkt))
	require.Empty(t, r.did())
	require.Equal(t, vrrp.Fault, r.state())
}

// Of several reports the first to end is waited for.
func TestTrackDeadline(t *testing.T) {
	r := active(t, func(c *vrrp.Config) { c.Tracks = []vrrp.Track{{"a", 1}, {"b", 1}, {"c", 1}} })
	for name, d := range map[string]time.Duration{"a": 300 * ms, "b": 100 * ms, "c": 200 * ms} {
		require.NoError(t, r.Report(r.now, name, true, r.now.Add(d)))
	}
	for _, want := range []uint8{70, 69, 68} {
		from := r.now
		r.next()
		require.Equal(t, 100*ms, r.now.Sub(from))
		require.Equal(t, want, r.Status(r.now).Priority)
	}
}

func TestFault(t *testing.T) {
	vital := func(c *vrrp.Config) { c.Tracks = []vrrp.Track{{"vital", 0}} }
	t.Run("until the first report", func(t *testing.T) {
		r := started(t, vital)
		require.Equal(t, "Initialize>Fault (waiting for the first result of vital)", r.did())
		r.until(time.Minute)
		require.Equal(t, vrrp.Fault, r.state(), "Fault is renewed while the machine is called")
		require.NoError(t, r.Report(r.now, "vital", true, forever))
		require.Equal(t, "Fault>Backup (all required tracks are up)", r.did())
		from := r.now
		for r.state() == vrrp.Backup {
			r.next()
		}
		require.Equal(t, 3734375*time.Microsecond, r.now.Sub(from), "a whole down interval")
	})
	t.Run("a failing holder says goodbye", func(t *testing.T) {
		r := started(t, vital)
		require.NoError(t, r.Report(r.now, "vital", true, forever))
		for r.state() != vrrp.Active {
			r.next()
		}
		r.did()
		require.NoError(t, r.Report(r.now, "vital", false, forever))
		require.Equal(t, "advert 0, let go, Active>Fault (vital is down)", r.did())
		r.hear(highAddr, 0)
		r.until(time.Minute)
		require.Empty(t, r.did(), "in Fault nothing is taken over")
	})
	t.Run("a holder whose check stopped renewing says goodbye", func(t *testing.T) {
		r := started(t, vital)
		require.NoError(t, r.Report(r.now, "vital", true, t0.Add(10*time.Second)))
		r.until(9999 * ms)
		require.Equal(t, vrrp.Active, r.state())
		r.did()
		r.until(10 * time.Second)
		require.Equal(t, "advert 0, let go, Active>Fault (vital was not renewed)", r.did())
	})
	t.Run("a failing backup leaves in silence", func(t *testing.T) {
		r := started(t, vital)
		require.NoError(t, r.Report(r.now, "vital", true, forever))
		r.did()
		require.NoError(t, r.Report(r.now, "vital", false, forever))
		require.Equal(t, "Backup>Fault (vital is down)", r.did())
	})
	t.Run("the reason follows the cause", func(t *testing.T) {
		r := started(t, func(c *vrrp.Config) { c.Tracks = []vrrp.Track{{"a", 0}, {"b", 0}} })
		require.Equal(t, "waiting for the first result of a", r.Status(r.now).Reason.String())
		require.NoError(t, r.Report(r.now, "a", true, forever))
		require.Equal(t, "waiting for the first result of b", r.Status(r.now).Reason.String())
		require.NoError(t, r.Report(r.now, "b", false, forever))
		require.Equal(t, "b is down", r.Status(r.now).Reason.String())
	})
	t.Run("an owner that recovers is active at once", func(t *testing.T) {
		r := started(t, func(c *vrrp.Config) { vital(c); c.Priority = 255 })
		r.did()
		require.NoError(t, r.Report(r.now, "vital", true, forever))
		require.Contains(t, r.did(), "Fault>Active (owns the addresses)")
	})
}

// https://github.com/openshift/machine-config-operator/issues/4057: checks and
// weights change at run time without moving the address.
func TestSetTracks(t *testing.T) {
	r := active(t, func(c *vrrp.Config) { c.Tracks = []vrrp.Track{{"a", 20}} })
	require.NoError(t, r.Report(r.now, "a", true, forever))
	require.NoError(t, r.SetTracks(r.now, []vrrp.Track{{"a", 30}, {"vital", 0}}))
	require.Equal(t, vrrp.Active, r.state(), "a required track that has not reported yet stops nobody who runs")
	require.EqualValues(t, 98, r.Status(r.now).Priority, "a kept track keeps its report")
	require.Empty(t, r.did())
	require.NoError(t, r.Report(r.now, "vital", false, forever))
	require.Equal(t, vrrp.Fault, r.state())

	backup := started(t, nil)
	require.NoError(t, backup.SetTracks(backup.now, []vrrp.Track{{"vital", 0}}))
	require.Equal(t, vrrp.Backup, backup.state())

	require.ErrorContains(t, r.SetTracks(r.now, []vrrp.Track{{"a", 1}, {"a", 2}}), `track "a": named twice`)
	require.NoError(t, r.Report(r.now, "vital", true, forever), "nothing changed by the fault")
	require.EqualValues(t, 98, r.Status(r.now).Priority)
}

// A change of priority counts for the election that is under way.
func TestPriorityShiftsTheDownTimer(t *testing.T) {
	r := started(t, func(c *vrrp.Config) { c.Tracks = []vrrp.Track{{"a", 64}} })
	r.until(2 * time.Second)
	require.NoError(t, r.Report(r.now, "a", true, forever))
	for r.state() == vrrp.Backup {
		r.next()
	}
	require.Equal(t, 3734375*time.Microsecond-250*ms, r.now.Sub(t0))
}
