package balancer

import (
	"errors"

	"github.com/lastbeat/lastbeat/health"
)

// Update changes backends, checks and OnEvent. Connections go on, also those to
// servers that are no longer listed; servers that stay keep their state, unless they
// have another address now, and what was wished of them. It returns the keys that differ and need a restart,
// which it leaves alone. On error, all faults joined, nothing changes.
func (b *B) Update(config Config) (restart []string, err error) {
	config, err = config.complete()
	if err != nil {
		return nil, err
	}
	targets := map[string]health.Target{} // by name
	for _, s := range config.Backends {
		if targets[s.Name], err = config.Check.target(s); err != nil {
			return nil, err
		}
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.config
	restart = needRestart(old, config)

	var faults []error
	stay, reprobe := map[string]bool{}, map[string]bool{}
	now := serversByName(config.Backends)
	for _, s := range old.Backends {
		if _, listed := now[s.Name]; !listed {
			delete(b.wishes, s.Name)
			delete(b.traffic, s.Name)
		}
		if stay[s.Name] = now[s.Name].Address == s.Address; !stay[s.Name] {
			b.monitor.Remove(s.Name)
		}
		reprobe[s.Name] = config.Check != old.Check || now[s.Name].SendProxy != s.SendProxy
	}
	for _, s := range config.Backends {
		switch {
		case !stay[s.Name]:
			faults = append(faults, b.monitor.Add(targets[s.Name]))
		case reprobe[s.Name]:
			faults = append(faults, b.monitor.Update(targets[s.Name]))
		}
	}
	b.config.Backends, b.config.Check, b.config.OnEvent = config.Backends, config.Check, config.OnEvent
	return restart, errors.Join(append(faults, b.publish())...)
}

func serversByName(list []Server) map[string]Server {
	all := make(map[string]Server, len(list))
	for _, s := range list {
		all[s.Name] = s
	}
	return all
}

// needRestart returns the keys that differ and that a running balancer can't change.
func needRestart(old, config Config) (keys []string) {
	for i, l := range config.addresses() {
		if l.address != old.addresses()[i].address {
			keys = append(keys, l.key)
		}
	}
	for _, k := range []struct {
		key     string
		differs bool
	}{
		{"maxconn", config.MaxConn != old.MaxConn},
		{"algorithm", config.Algorithm != old.Algorithm},
		{"slow_start", config.SlowStart != old.SlowStart},
		{"connect_timeout", config.ConnectTimeout != old.ConnectTimeout},
		{"queue", *config.Queue != *old.Queue},
		{"queue_timeout", config.QueueTimeout != old.QueueTimeout},
		{"grace", config.Grace != old.Grace},
	} {
		if k.differs {
			keys = append(keys, k.key)
		}
	}
	return keys
}
