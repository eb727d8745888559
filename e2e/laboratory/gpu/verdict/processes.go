// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"slices"
	"time"
)

// Viewed is what a program is told of the device and of who runs there.
type Viewed struct {
	Total, Used int64
	Rows        map[int]int64 // bytes by PID
	Rounding    int64         // bytes by which the program rounds each figure
}

// View wants the limit as the total, our own processes and no others, and their bytes
// to add up. least is what each process holds at the least.
func View(limit int64, least map[int]int64, v Viewed) Finding {
	f := Finding{Criterion: "total is the limit, used is the sum, one row for each process of the tenant and no other"}
	var sum int64
	for _, bytes := range v.Rows {
		sum += bytes
	}
	f.Measured = fmt.Sprintf("total %s, used %s, %d rows of %s together", mib(v.Total), mib(v.Used), len(v.Rows), mib(sum))
	if v.Total != limit {
		f.miss("total is %s", mib(v.Total))
	}
	if off := v.Used - sum; off > v.Rounding*int64(len(v.Rows)+1) || -off > v.Rounding*int64(len(v.Rows)+1) {
		f.miss("used differs from the sum by %s", mib(off))
	}
	for _, pid := range sortedKeys(least) {
		if got, ok := v.Rows[pid]; !ok {
			f.miss("process %d is not listed", pid)
		} else if got+v.Rounding < least[pid] {
			f.miss("process %d has %s, want %s or more", pid, mib(got), mib(least[pid]))
		}
	}
	for _, pid := range sortedKeys(v.Rows) {
		if _, ok := least[pid]; !ok {
			f.miss("process %d is listed and not the tenant's", pid)
		}
	}
	return f
}

func sortedKeys(m map[int]int64) []int {
	keys := make([]int, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Raced is many processes that took all they could at once, of which some were killed.
type Raced struct {
	Limit, Peak     int64 // Peak: most in use, by the card's account while they raced
	Processes, Dead int
	Left            int64         // room below the limit when all were refused
	Granule         int64         // each asked for
	Freed           time.Duration // until the ledger had the memory of the dead
	Again, Want     int64         // taken afterwards by a survivor, and what the dead had
}

// Race wants the sum never above the limit and the memory of the dead given out again.
func Race(b Bounds, m Raced) Finding {
	f := Finding{
		Criterion: fmt.Sprintf("never above the limit; what the killed held is free within %d ms and can be taken", b.Freed.Milliseconds()),
		Measured: fmt.Sprintf("%d processes, at most %s of %s in use, %s left; after SIGKILL of %d free in %.1f ms, %s taken again",
			m.Processes, mib(m.Peak), mib(m.Limit), mib(m.Left), m.Dead, float64(m.Freed.Microseconds())/1000, mib(m.Again)),
	}
	if m.Peak > m.Limit+b.CountSlack+share(b, m.Limit) {
		f.miss("%s above the limit", mib(m.Peak-m.Limit))
	}
	if m.Left < 0 || m.Left >= 2*m.Granule {
		f.miss("all were refused with %s left", mib(m.Left))
	}
	if m.Freed > b.Freed {
		f.miss("free only after %d ms", m.Freed.Milliseconds())
	}
	if m.Again < m.Want-2*m.Granule {
		f.miss("only %s of the %s of the killed were given again", mib(m.Again), mib(m.Want))
	}
	return f
}

// Starts wants programs beside many others to start nearly as fast as bare. Seconds.
func Starts(b Bounds, bare, ours []float64) Finding {
	p99, bare99 := Quantile(ours, 0.99), Quantile(bare, 0.99)
	bound := b.StartFactor*bare99 + b.StartExtra.Seconds()
	f := Finding{
		Criterion: fmt.Sprintf("p99 below %.1f × bare + %d ms", b.StartFactor, b.StartExtra.Milliseconds()),
		Measured: fmt.Sprintf("p99 %.0f ms, bare %.0f ms; medians %.0f and %.0f ms; %d starts each", p99*1000, bare99*1000,
			Median(ours)*1000, Median(bare)*1000, len(ours)),
	}
	if !(p99 < bound) {
		f.miss("the bound is %.0f ms", bound*1000)
	}
	return f
}
