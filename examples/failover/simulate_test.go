package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const seed = 7

func simulated(t *testing.T, fault string, advert time.Duration, until string) (*observation, []result) {
	t.Helper()
	s := options{fault: fault, advert: advert, simulate: true, seed: seed}.setup()
	o, err := simulate(s, until)
	require.NoError(t, err)
	out := judge(o)
	require.NoError(t, out.run().Validate())
	return o, out.Results
}

// lateness is what a takeover may be late: equals give each other precedence by
// two hundredths of an interval, and the network takes a moment.
const lateness = 50 * time.Millisecond

func requireTakeover(t *testing.T, r result) {
	t.Helper()
	require.True(t, r.Moved, r.VIP)
	require.Equal(t, firstHolder, r.OldHolder)
	require.True(t, isMaster(r.NewHolder), r.NewHolder)
	require.NotNil(t, r.Takeover)
	require.LessOrEqual(t, *r.Takeover, *r.Limit+ms(lateness), r.VIP)
	require.LessOrEqual(t, r.DarkGap, ms(darkGap), r.VIP)
	require.NotNil(t, r.FirstGARP)
	require.NotNil(t, r.FirstReply)
}

func TestSimulateSilent(t *testing.T) {
	for _, kind := range []string{"silent", "carrier"} {
		for _, interval := range []time.Duration{time.Second, 100 * time.Millisecond} {
			t.Run(kind+" "+interval.String(), func(t *testing.T) {
				_, results := simulated(t, kind, interval, "removed")
				for _, r := range results {
					requireTakeover(t, r)
					require.Greater(t, *r.Takeover, ms(3*interval), "it believes in the silence only then")
					require.Less(t, *r.FirstAdvert, *r.Takeover, "the silence began before the fault")
					require.Greater(t, r.Gap, ms(2*interval))
					require.Positive(t, r.Failed-r.FailedFlight)
					require.Nil(t, r.LastAnswer, "nothing of it gets through")
				}
				// Three probes that time out after 1 s, and 5 s between them; the first begins at any moment of 5 s.
				require.NotNil(t, results[0].Removed)
				require.GreaterOrEqual(t, *results[0].Removed, ms(13*time.Second-lateness))
				require.LessOrEqual(t, *results[0].Removed, ms(18*time.Second))
			})
		}
	}
}

func TestSimulateTerm(t *testing.T) {
	_, results := simulated(t, "term", time.Second, "takeover")
	for _, r := range results {
		requireTakeover(t, r)
		require.NotNil(t, r.Goodbye)
		require.Less(t, *r.Limit, ms(time.Second), "the skew alone")
		require.Less(t, r.Gap, ms(time.Second)+ms(lateness))
	}
}

func TestSimulateKill(t *testing.T) {
	o, results := simulated(t, "kill", time.Second, "takeover")
	for _, r := range results {
		requireTakeover(t, r)
		require.Less(t, r.Gap, ms(time.Second), "two kernels hold the address; none never does")
		require.NotNil(t, r.LastAnswer)
		require.Greater(t, *r.LastAnswer, *r.FirstAdvert)
		require.LessOrEqual(t, *r.LastAnswer, ms(o.Setup.Lifetime))
	}
}

// Nothing moves, and the balancers lead each new connection past the dead server.
func TestSimulateBackend(t *testing.T) {
	o, results := simulated(t, "backend", time.Second, "removed")
	require.Equal(t, "master0", o.Victim)
	for _, r := range results {
		require.False(t, r.Moved)
		require.Empty(t, r.Claimant)
		require.Equal(t, firstHolder, r.OldHolder)
		require.Greater(t, r.Requests, 300)
		require.Equal(t, r.FailedFlight, r.Failed, "only what was under way may fail")
		require.Less(t, r.Gap, ms(lateness))
	}
	require.NotNil(t, results[0].Removed)
	require.LessOrEqual(t, *results[0].Removed, ms(15*time.Second))
}

// A frozen holder comes back to a successor of the same priority, and yields.
func TestSimulateFreeze(t *testing.T) {
	o, results := simulated(t, "freeze", time.Second, "takeover")
	require.Greater(t, o.End.Sub(o.Fault), freezeFor+3*o.Setup.Interval, "the run goes on after the thaw")
	for _, r := range results {
		requireTakeover(t, r)
		for _, a := range o.Adverts {
			require.False(t, a.Node == firstHolder && a.At.After(o.Fault.Add(lateness)), "the thawed one advertises again: %v", a)
		}
	}
}

func TestSimulateRefresh(t *testing.T) {
	_, results := simulated(t, "silent", time.Second, "refresh")
	for _, r := range results {
		require.NotNil(t, r.Refreshed)
		// 60 s after the opening round, which lasts 5 s.
		require.InDelta(t, float64(65*time.Second), float64(*r.Refreshed-*r.FirstGARP), float64(time.Second))
	}
}

// runs is the program's output for arguments.
func runs(t *testing.T, binary string, args ...string) string {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Run(), "%v: %s", args, &stderr)
	require.Empty(t, stderr.String())
	return stdout.String()
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	return path
}

// Two processes, so that no order of a map, no address and no clock can be in it.
func TestSimulateSameSeedSameBytes(t *testing.T) {
	dir := t.TempDir()
	out := func(seed, name string) (stdout, figures, picture string) {
		js, svg := filepath.Join(dir, name+".json"), filepath.Join(dir, name+".svg")
		stdout = runs(t, self(t), "-simulate", "-seed", seed, "-runs", "2", "-json", js, "-svg", svg)
		stdout = strings.NewReplacer(js, "JSON", svg, "SVG").Replace(stdout)
		j, err := os.ReadFile(js)
		require.NoError(t, err)
		s, err := os.ReadFile(svg)
		require.NoError(t, err)
		return stdout, string(j), string(s)
	}
	text, figures, picture := out("7", "one")
	again, figures2, picture2 := out("7", "two")
	require.Equal(t, text, again)
	require.Equal(t, figures, figures2)
	require.Equal(t, picture, picture2)
	require.Contains(t, picture, "simulated")

	other, figures3, _ := out("8000", "three")
	require.NotEqual(t, text, other)
	require.NotEqual(t, figures, figures3)
}

func TestSimulateSaysSoOnEachLine(t *testing.T) {
	for _, kind := range faults {
		if kind == "none" {
			continue
		}
		out := runs(t, self(t), "-simulate", "-fault", kind, "-until", "takeover", "-runs", "2", "-svg", filepath.Join(t.TempDir(), "a.svg"))
		lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		require.Greater(t, len(lines), 10)
		for _, line := range lines {
			require.True(t, strings.HasPrefix(line, "simulated"), "%s: %q", kind, line)
		}
	}
}

// The simulation runs the machine itself: a fault planted in vrrp shows in its
// timeline.
func TestSimulateSeesFaultPlantedInTheMachine(t *testing.T) {
	const file = "vrrp/timing.go"
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	source, err := os.ReadFile(filepath.Join(root, file))
	require.NoError(t, err, "the test needs the module's source")
	const signature = "func skew(version, priority uint8, interval time.Duration) time.Duration {"
	const twice = signature + "\n\treturn 2 * right(version, priority, interval)\n}\n\n" +
		"func right(version, priority uint8, interval time.Duration) time.Duration {"
	require.Equal(t, 1, strings.Count(string(source), signature), "skew has changed: plant the fault elsewhere in %s", file)

	dir := t.TempDir()
	planted := filepath.Join(dir, "timing.go")
	require.NoError(t, os.WriteFile(planted, []byte(strings.Replace(string(source), signature, twice, 1)), 0o600))
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, file): planted}})
	require.NoError(t, err)
	overlayFile := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(overlayFile, overlay, 0o600))
	faulty := filepath.Join(dir, "faulty")
	build := exec.Command("go", "build", "-overlay", overlayFile, "-o", faulty, ".")
	text, err := build.CombinedOutput()
	require.NoError(t, err, string(text))

	takeover := func(binary string) time.Duration {
		figures := filepath.Join(dir, "figures.json")
		runs(t, binary, "-simulate", "-seed", "7", "-until", "takeover", "-svg", "", "-json", figures)
		f := readFigures(t, figures)
		return milliseconds(*f.Runs[0].Results[0].Takeover)
	}
	sound, late := takeover(self(t)), takeover(faulty)
	// Priority 68 of 256: a skew of 0.734 s, and as much again.
	require.LessOrEqual(t, sound, 3734*time.Millisecond+lateness)
	require.InDelta(t, float64(734*time.Millisecond), float64(late-sound), float64(lateness))
}
