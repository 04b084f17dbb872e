package node

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/lastbeat/lastbeat/health"
)

// Reload changes checks, weights and backends to those of config, without an
// address moving for it. It returns the keys that differ and need a restart,
// which stay as they are. On error nothing has changed.
func (n *Node) Reload(config Config) (restart []string, err error) {
	if config, err = config.complete(); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	old := n.config
	instances := keepInstances(old.Instances, config.Instances)
	checks, kept := keepChecks(old.Checks, config.Checks, instances)
	change, err := n.planChecks(old.Checks, checks)
	if err != nil {
		return nil, err
	}
	restart = append(needRestart(old, config), kept...)

	// All that can be wrong is known to be right by now, but for the balancer's
	// part, which has the same promise: nothing changes on error.
	if n.balancer != nil && config.Balancer != nil {
		keys, err := n.balancer.Update(n.balancerConfig(config))
		if err != nil {
			return nil, balancerFaults(err)
		}
		for _, k := range keys {
			restart = append(restart, "balancer."+k)
		}
	}
	err = change()
	for _, i := range instances {
		err = errors.Join(err, n.routers[i.Name].SetTracks(i.tracks()))
	}
	n.config.Checks, n.config.Instances = checks, instances
	n.report()
	if err != nil { // can't be, after what was checked above
		n.log.Error("reloaded in part", "err", err)
	}
	return restart, nil
}

// keepInstances returns the instances that run, with the weights of their
// namesakes in the file.
func keepInstances(running, file []Instance) []Instance {
	out := slices.Clone(running)
	for k := range out {
		for _, i := range file {
			if i.Name == out[k].Name {
				out[k].Tracks = i.Tracks
			}
		}
	}
	return out
}

// keepChecks returns the checks of the file, and those that left it while an
// instance that runs on until a restart depends on them: without them it would go
// into Fault, or lose weight.
func keepChecks(running, file []Check, instances []Instance) (checks []Check, kept []string) {
	checks = slices.Clone(file)
	for _, c := range running {
		named := func(f Check) bool { return f.Name == c.Name }
		tracks := func(i Instance) bool { _, ok := i.Tracks[c.Name]; return ok }
		if !slices.ContainsFunc(file, named) && slices.ContainsFunc(instances, tracks) {
			checks = append(checks, c)
			kept = append(kept, "checks."+c.Name)
		}
	}
	return checks, kept
}

// planChecks returns what turns old into fresh, with everything that can go wrong
// behind it.
func (n *Node) planChecks(old, fresh []Check) (change func() error, err error) {
	gone := map[string]Check{}
	for _, c := range old {
		gone[c.Name] = c
	}
	var add, update []health.Target
	for _, c := range fresh {
		was, existed := gone[c.Name]
		delete(gone, c.Name)
		if existed && reflect.DeepEqual(was, c) {
			continue
		}
		if n.redirect == nil && c.usesRedirect() {
			return nil, fault("checks."+c.Name, "redirect", "the section redirect is new: restart to have both")
		}
		target, err := n.target(c)
		if err != nil {
			return nil, fmt.Errorf("checks.%s: %w", c.Name, err)
		}
		if existed {
			update = append(update, target)
		} else {
			add = append(add, target)
		}
	}
	return func() (err error) {
		for name := range gone {
			n.monitor.Remove(name)
		}
		for _, t := range update {
			err = errors.Join(err, n.monitor.Update(t))
		}
		for _, t := range add {
			err = errors.Join(err, n.monitor.Add(t))
		}
		return err
	}, nil
}

func (p Probe) usesRedirect() bool {
	return p.Redirect || slices.ContainsFunc(slices.Concat(p.All, p.Any), Probe.usesRedirect)
}

// needRestart lists what differs and cannot be changed at run time, but for what
// is inside of the balancer.
func needRestart(old, fresh Config) (keys []string) {
	differ := func(key string, a, b any) {
		if !reflect.DeepEqual(a, b) {
			keys = append(keys, key)
		}
	}
	differ("name", old.Name, fresh.Name)
	differ("status", old.Status, fresh.Status)
	differ("balancer", old.Balancer != nil, fresh.Balancer != nil)
	differ("redirect", old.Redirect, fresh.Redirect)
	added := map[string]Instance{}
	for _, i := range fresh.Instances {
		added[i.Name] = i
	}
	for _, i := range old.Instances {
		f, ok := added[i.Name]
		delete(added, i.Name)
		f.Tracks = i.Tracks
		if !ok || !reflect.DeepEqual(i, f) {
			keys = append(keys, i.key())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(added)) {
		keys = append(keys, added[name].key())
	}
	return keys
}
