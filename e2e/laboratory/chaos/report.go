// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"strings"
	"time"
)

// Report is what a run found.
type Report struct {
	Kills, Looks int
	// Took is how long the cluster was disturbed, Whole is with the time until all was settled.
	Took, Whole time.Duration
	Counts      string
	Evictions   Evictions
	Violations  []Violation
	// Last are the last events before the first violation, or before the end.
	Last string
}

// String is the report for people.
func (r Report) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d kills in %.0f s, all settled after %.0f s, looked %d times, %d violations\n%s%s\n",
		r.Kills, r.Took.Seconds(), r.Whole.Seconds(), r.Looks, len(r.Violations), r.Counts, r.Evictions)
	if len(r.Violations) == 0 {
		return out.String()
	}
	fmt.Fprintf(&out, "the last events before the first violation:\n%s\n", r.Last)
	for _, v := range r.Violations {
		fmt.Fprintln(&out, v)
	}
	return out.String()
}

func (r *run) report(kills int, took, whole time.Duration) Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.found) == 0 {
		r.last = r.history.Last()
	}
	return Report{Kills: kills, Looks: r.looks, Took: took, Whole: whole, Counts: r.history.Counts(), Evictions: r.observer.Evictions(),
		Violations: r.found, Last: r.last}
}
