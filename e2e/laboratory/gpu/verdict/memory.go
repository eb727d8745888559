// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"math"
	"strings"
)

// Compared is one thing as seen bare and with the library.
type Compared struct{ What, Bare, Ours string }

// Identity wants the same answers with the library as without.
func Identity(pairs []Compared) Finding {
	f := Finding{Criterion: "equal to the bare driver's"}
	var names []string
	for _, p := range pairs {
		names = append(names, p.What)
		if p.Bare != p.Ours {
			f.miss("%s: %.80q bare, %.80q with the library", p.What, p.Bare, p.Ours)
		}
	}
	f.Measured = "compared " + strings.Join(names, ", ")
	if len(pairs) == 0 {
		f.miss("nothing was compared")
	}
	return f
}

// Amount is a number of bytes by name.
type Amount struct {
	Name  string
	Bytes int64
}

// Sees wants every amount to be the limit.
func Sees(limit int64, amounts []Amount) Finding {
	f := Finding{Criterion: "each is the limit, " + mib(limit)}
	var seen []string
	for _, a := range amounts {
		seen = append(seen, a.Name+" "+mib(a.Bytes))
		if a.Bytes != limit {
			f.miss("%s is %s", a.Name, mib(a.Bytes))
		}
	}
	f.Measured = strings.Join(seen, ", ")
	if len(amounts) == 0 {
		f.Measured = "nothing"
		f.miss("nothing was seen")
	}
	return f
}

// Filled is a tenant's memory after it allocated until refused.
type Filled struct {
	Limit, Overhead int64 // before the first allocation: the context
	Got             int64 // by allocations
	Late            int64 // by which the overhead has grown meanwhile, by code that was loaded
	Code            int64 // of the refusal; 2 is CUDA_ERROR_OUT_OF_MEMORY
	Really          int64 // taken from the card, by the card's own account
}

const outOfMemory = 2

// Fill wants allocating to stop just below limit less overhead, and never above.
func Fill(b Bounds, m Filled) Finding {
	room := m.Limit - m.Overhead
	f := Finding{
		Criterion: fmt.Sprintf("stops within %s below limit less overhead, never above, with CUDA_ERROR_OUT_OF_MEMORY", mib(b.FillSlack)),
		Measured: fmt.Sprintf("%s of %s less %s for the context; the card says %s taken",
			mib(m.Got), mib(m.Limit), mib(m.Overhead), mib(m.Really)),
	}
	if m.Got > room {
		f.miss("%s above the limit", mib(m.Got-room))
	}
	if m.Late > 0 {
		f.Measured += fmt.Sprintf(", %s of code since", mib(m.Late))
	}
	if m.Got < room-b.FillSlack-max(m.Late, 0) {
		f.miss("stopped %s below", mib(room-m.Got))
	}
	if m.Code != outOfMemory {
		f.miss("refused with CUDA error %d", m.Code)
	}
	if over := m.Really - m.Limit; m.Really > 0 && over > b.CountSlack+share(b, m.Limit) {
		f.miss("the card gave %s more than the limit", mib(over))
	}
	return f
}

func share(b Bounds, bytes int64) int64 { return int64(b.CountShare * float64(bytes)) }

// Count is a growth of use as the library counts it and as the card does.
type Count struct {
	What       string
	Own, Truth int64
}

// Counts wants both accounts to agree.
func Counts(b Bounds, counts []Count) Finding {
	f := Finding{Criterion: fmt.Sprintf("own count within %s + %.0f %% of the card's", mib(b.CountSlack), b.CountShare*100)}
	worst, where := int64(-1), ""
	for _, c := range counts {
		off := c.Own - c.Truth
		if off < 0 {
			off = -off
		}
		if off > worst {
			worst, where = off, c.What
		}
		if off > b.CountSlack+share(b, max(c.Truth, 0)) {
			f.miss("%s: own %s, card %s", c.What, mib(c.Own), mib(c.Truth))
		}
	}
	f.Measured = fmt.Sprintf("%d cases, worst difference %s (%s)", len(counts), mib(worst), where)
	if len(counts) == 0 {
		f.Measured = "nothing"
		f.miss("nothing was counted")
	}
	return f
}

// Tried is one way of doing a thing and what went wrong with it.
type Tried struct {
	Name string
	Err  error
}

// Each wants every way to have ended as it should.
func Each(criterion string, ways []Tried) Finding {
	f := Finding{Criterion: criterion}
	var names []string
	for _, w := range ways {
		names = append(names, w.Name)
		if w.Err != nil {
			f.miss("%s: %v", w.Name, w.Err)
		}
	}
	f.Measured = fmt.Sprintf("%d of %d: %s", len(ways)-len(f.Misses), len(ways), strings.Join(names, ", "))
	if len(ways) == 0 {
		f.miss("nothing was tried")
	}
	return f
}

// Pool is a pool's life: before, filled until refused, after everything went back.
type Pool struct {
	Limit, Before, Full, After int64 // in use, as the program is told
	CardBefore, CardAfter      int64 // the same by the card's account
	Got, Code                  int64
}

// Pooled wants a pool to stop within one granule of the limit and to give all back.
func Pooled(b Bounds, m Pool) Finding {
	f := Finding{
		Criterion: fmt.Sprintf("stops within %s below the limit, never above; use returns to the start ±%s", mib(b.PoolGranule), mib(b.ReturnSlack)),
		Measured: fmt.Sprintf("%s in pieces, %s in use of %s; afterwards %+d bytes, by the card %+d",
			mib(m.Got), mib(m.Full), mib(m.Limit), m.After-m.Before, m.CardAfter-m.CardBefore),
	}
	if m.Full > m.Limit {
		f.miss("%s above the limit", mib(m.Full-m.Limit))
	}
	if m.Before+m.Got < m.Limit-b.PoolGranule {
		f.miss("stopped %s below the limit", mib(m.Limit-m.Before-m.Got))
	}
	if m.Code != outOfMemory {
		f.miss("refused with CUDA error %d", m.Code)
	}
	for _, back := range []Amount{{"the program's account", m.After - m.Before}, {"the card's account", m.CardAfter - m.CardBefore}} {
		if math.Abs(float64(back.Bytes)) > float64(b.ReturnSlack) {
			f.miss("%s differs by %s afterwards", back.Name, mib(back.Bytes))
		}
	}
	return f
}

// Physical is a handle's life: bytes in use after each step.
type Physical struct {
	Bytes, Before, Created, Mapped, Released, Unmapped int64
}

// Handles wants a handle charged while it or a mapping of it exists, to the byte.
func Handles(m Physical) Finding {
	f := Finding{Criterion: "charged exactly, no credit before the last mapping is gone"}
	f.Measured = fmt.Sprintf("%s: made %+d, mapped %+d, released early %+d, unmapped %+d bytes", mib(m.Bytes),
		m.Created-m.Before-m.Bytes, m.Mapped-m.Before-m.Bytes, m.Released-m.Before-m.Bytes, m.Unmapped-m.Before)
	for _, s := range []struct {
		step      string
		got, want int64
	}{
		{"made", m.Created - m.Before, m.Bytes}, {"mapped", m.Mapped - m.Before, m.Bytes},
		{"released early", m.Released - m.Before, m.Bytes}, {"unmapped", m.Unmapped - m.Before, 0},
	} {
		if s.got != s.want {
			f.miss("%s: %d bytes in use, want %d", s.step, s.got, s.want)
		}
	}
	return f
}

// Torch is a PyTorch program that filled its device, caught the error and went on.
type Torch struct {
	Limit, Total, Got, Card int64 // Card: bytes the card says it took when full
	Caught, Backend, Wanted string
	Recovered               bool
}

// TorchFills wants PyTorch's own exception, near the limit, and work afterwards.
func TorchFills(b Bounds, m Torch) Finding {
	f := Finding{
		Criterion: fmt.Sprintf("torch.OutOfMemoryError, at most %s over the limit, goes on; mem_get_info's total is the limit", mib(b.TorchOver)),
		Measured:  fmt.Sprintf("%s given of %s, the card says %s taken, caught %s, went on: %t", mib(m.Got), mib(m.Limit), mib(m.Card), m.Caught, m.Recovered),
	}
	if m.Caught != "OutOfMemoryError" {
		f.miss("caught %s", m.Caught)
	}
	if m.Wanted != "" && m.Backend != m.Wanted {
		f.miss("the allocator is %s, not %s", m.Backend, m.Wanted)
	}
	if m.Total != m.Limit {
		f.miss("mem_get_info says %s", mib(m.Total))
	}
	if m.Card > m.Limit+b.TorchOver {
		f.miss("%s over the limit", mib(m.Card-m.Limit))
	}
	if float64(m.Got) < b.MinimumOfCap*float64(m.Limit) {
		f.miss("less than %.0f %% of the limit were given", b.MinimumOfCap*100)
	}
	if !m.Recovered {
		f.miss("it did not go on")
	}
	return f
}

// Offered is what the device plugin would publish of the device: bytes, -1 when the
// device is missing; device nodes and driver files that a container would get.
type Offered struct {
	Bytes, Total int64
	Nodes, Files int
}

// Inventory wants no more memory offered than programs can have, and a driver.
func Inventory(m Offered) Finding {
	f := Finding{
		Criterion: "the device, no more memory than programs can have, device nodes and driver files",
		Measured:  fmt.Sprintf("%d of %d bytes offered, %d device nodes, %d driver files", m.Bytes, m.Total, m.Nodes, m.Files),
	}
	if m.Bytes < 0 {
		f.miss("the device is not in the inventory")
	}
	if m.Bytes > m.Total {
		f.miss("%d bytes too many are offered", m.Bytes-m.Total)
	}
	if m.Nodes == 0 || m.Files == 0 {
		f.miss("a container would get no driver")
	}
	return f
}
