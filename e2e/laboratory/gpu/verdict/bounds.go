// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"time"
)

// Range is how far below and above what was asked a figure may be.
type Range struct{ Below, Above float64 }

func (r Range) has(difference float64) bool { return -r.Below <= difference && difference <= r.Above }

// points writes the range in points of a hundred.
func (r Range) points() string {
	if r.Below == r.Above {
		return fmt.Sprintf("±%.0f", r.Above*100)
	}
	return fmt.Sprintf("−%.0f +%.0f", r.Below*100, r.Above*100)
}

// Bounds are the numbers in the criteria.
type Bounds struct {
	FillSlack    int64 // bytes below the limit where allocating may stop
	CountSlack   int64 // bytes by which counts may differ, beside CountShare
	CountShare   float64
	PoolGranule  int64 // bytes that a pool takes at a time, at most
	ReturnSlack  int64 // bytes by which use may differ after everything was given back
	TorchOver    int64 // bytes above the limit that PyTorch may come to hold
	Freed        time.Duration
	StartFactor  float64 // start with the library, times the bare start
	StartExtra   time.Duration
	Ratio        Range   // throughput's difference from the limit, median
	Window       Range   // the same for each window
	Busy         float64 // difference of NVML's utilisation from the limit
	PairRatio    float64 // difference of two tenants' ratio from what was asked
	PairTotal    float64 // both together, of one alone
	BorrowAlone  float64
	BorrowBack   time.Duration
	BorrowShare  float64 // difference from the share after the rival came
	UnlimitedNS  float64 // more per launch without a limit
	LimitedNS    float64 // more per launch with one
	PairNS       float64 // more per allocation and free
	Overhead     float64 // loss of throughput without a limit
	Agreement    float64 // of the rounds of a decoder with their median
	Fake         bool    // numbers mean nothing
	MinimumOfCap float64 // of the limit that PyTorch must get
}

// OnCard are the bounds for a real card, those of the plan.
func OnCard() Bounds {
	return Bounds{
		FillSlack: 2 * MiB, CountSlack: 2 * MiB, CountShare: 0.01, PoolGranule: 64 * MiB, ReturnSlack: 2 * MiB,
		TorchOver: 32 * MiB, MinimumOfCap: 0.8, Freed: 100 * time.Millisecond, StartFactor: 1.2, StartExtra: 50 * time.Millisecond,
		Ratio: Range{0.03, 0.03}, Window: Range{0.05, 0.05}, Busy: 0.05, PairRatio: 0.05, PairTotal: 0.9,
		BorrowAlone: 0.95, BorrowBack: 500 * time.Millisecond, BorrowShare: 0.05,
		UnlimitedNS: 20, LimitedNS: 60, PairNS: 1000, Overhead: 0.01, Agreement: 0.01,
	}
}

// OnFake are the bounds for the fake driver on a machine that does other things at
// the same time: memory is judged as on a card, time only roughly.
func OnFake() Bounds {
	b := OnCard()
	b.Fake = true
	b.Freed, b.StartFactor, b.StartExtra = 2*time.Second, 5, 2*time.Second
	b.Ratio, b.Window, b.PairRatio, b.PairTotal = Range{0.5, 0.25}, Range{1, 0.4}, 0.6, 0.3
	b.BorrowAlone, b.BorrowBack, b.BorrowShare = 0.4, 2*time.Second, 0.29
	b.UnlimitedNS, b.LimitedNS, b.PairNS = 2000, 20000, 50000
	return b
}
