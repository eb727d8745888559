// SPDX-License-Identifier: Apache-2.0

package holds

const (
	// Rounds is how often a job may fail before it has to wait.
	Rounds = 2
	// FirstWait and LongestWait bound the wait, in seconds. It doubles with each failure.
	FirstWait   = 60
	LongestWait = 1800
)

// failures are the holds of one job that failed one after the other.
type failures struct {
	count int
	// next is when the job may evict again.
	next int64
}

// addFailure returns the failures after one more.
func (f failures) addFailure(now int64) failures {
	f.count++
	f.next = now
	if f.count >= Rounds {
		f.next += min(LongestWait, int64(FirstWait)<<min(f.count-Rounds, 10))
	}
	return f
}

// MayEvict reports whether pods may be evicted for a job now, or else when. They may not be for one
// of which pods move.
func (b *Book) MayEvict(j Job, now int64) (next int64, may bool) {
	f := b.failures[j]
	if h := b.holds[j]; h != nil && h.IsMove() {
		return now, false
	}
	return f.next, now >= f.next
}
