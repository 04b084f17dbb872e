package lb

import "time"

// remember notes which backends are in use, as the last good set that there may
// come to be, and which ones have just ceased to be.
func (b *Balancer[T]) remember(s *snapshot[T], members []uint32) {
	for i := range s.entries {
		e := &s.entries[i]
		if len(members) > 0 && members[0] == uint32(i) {
			members = members[1:]
			e.good = true
			continue
		}
		if e.State == Down && e.good && e.mark == 0 && !b.now.IsZero() {
			e.mark = b.instant(b.now)
		}
		e.good = e.good && e.mark != 0 && e.State == Down
	}
}

// forget takes those out of the good set that ceased to be in use too long ago. It
// is called while the set is made, and no more when it is used: then the time at
// which the last backend went down is what counts.
func (b *Balancer[T]) forget(s *snapshot[T]) {
	for i := range s.entries {
		if e := &s.entries[i]; e.good && e.State == Down && e.mark != 0 {
			e.good = time.Duration(b.instant(b.now)-e.mark) < b.window
		}
	}
}
