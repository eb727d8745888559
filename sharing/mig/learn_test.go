// SPDX-License-Identifier: Apache-2.0

package mig_test

import (
	"fmt"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/mig"
	"deviceshare/sharing/sharingtest"
)

// asked is how many pods ask for 1g, 2g, 3g and 7g of an A100 with 80 GB.
func asked(counts ...int) []sharing.Asked {
	var all []sharing.Asked
	for k, n := range counts {
		if n > 0 {
			memory := []int64{9000, 19000, 40000, 80000}[k]
			all = append(all, sharing.Asked{Request: sharingtest.Ask("", memory, 0), Count: n})
		}
	}
	return all
}

// learned is a backend that learned of devices like this one.
func learned(d *sharing.Device, all []sharing.Asked) sharing.Backend {
	return mig.New().(sharing.Learner).Learn([]sharing.Demand{{Device: d, Asked: all}})
}

func bestFitFree() sharing.Device {
	return sharingtest.BestFit(sharingtest.Free(sharingtest.Device(0, "A100-80", sharing.MIG)))
}

// cutInto is a device with this many 3g and 1g, placed by what is assumed.
func cutInto(t *testing.T, d sharing.Device, three, one int) *sharing.View {
	t.Helper()
	b := mig.New()
	ledger := sharing.NewLedger(sharingtest.Node("n", d), sharing.Backends{b})
	for i := range three + one {
		req := sharingtest.Ask("c", 9000, 0)
		if i < three {
			req = sharingtest.Ask("c", 40000, 0)
		}
		if _, why := b.Fit(&ledger.Views()[0], &req); why != sharing.Fits {
			t.Fatalf("%d x 3g and %d x 1g do not fit", three, one)
		}
		share := b.Share(&ledger.Views()[0], &req)
		if err := ledger.Reserve(sharing.Owner(fmt.Sprint(i)), sharingtest.Give("c", share)); err != nil {
			t.Fatal(err)
		}
	}
	return &ledger.Views()[0]
}

func lossOf(t *testing.T, b sharing.Backend, v *sharing.View, memory int64) int64 {
	t.Helper()
	req := sharingtest.Ask("c", memory, 0)
	cost, why := b.Fit(v, &req)
	if why != sharing.Fits {
		t.Fatalf("%d MiB do not fit", memory)
	}
	return cost.Loss
}

// If nobody asks for 2g and 3g, a 1g belongs beside other 1g, whatever halves and pairs it breaks.
func TestWhatIsLostFollowsWhatIsAskedFor(t *testing.T) {
	d := bestFitFree()
	one, five := cutInto(t, d, 0, 1), cutInto(t, d, 0, 5)
	if fixed := mig.New(); lossOf(t, fixed, one, 9000) >= lossOf(t, fixed, five, 9000) {
		t.Error("what is assumed keeps no room for 2g")
	}
	if l := learned(&d, asked(900, 0, 0, 100)); lossOf(t, l, one, 9000) <= lossOf(t, l, five, 9000) {
		t.Error("a device that is nearly empty is broken for a 1g")
	}
}

// What fits, and where there is one place only, is the same whatever was learned.
func TestWhatFitsDoesNotDependOnWhatWasLearned(t *testing.T) {
	d := bestFitFree()
	for _, mix := range [][]int{{900, 0, 0, 100}, {1, 1, 1, 1000}, {1000}, {0, 0, 0, 1000}, {1 << 40, 0, 0, 1}} {
		l := learned(&d, asked(mix...))
		for three := range 3 {
			for one := range 7 - 3*three {
				v := cutInto(t, d, three, one)
				for _, memory := range []int64{1, 9000, 19000, 40000, 80000, 1 << 40} {
					req := sharingtest.Ask("c", memory, 0)
					_, fixed := mig.New().Fit(v, &req)
					cost, why := l.Fit(v, &req)
					if why != fixed || cost.Loss < 0 || cost.Loss > 9000 {
						t.Fatalf("%v: %d MiB on %d x 3g, %d x 1g: %v with loss %d, want %v", mix, memory, three, one, why, cost.Loss, fixed)
					}
				}
			}
		}
	}
}

// The same demands teach the same, in whatever order they come; too few, and those that no
// partition meets, teach nothing.
func TestLearningIsPure(t *testing.T) {
	d := bestFitFree()
	all := asked(40, 30, 20, 10)
	turned := []sharing.Asked{all[3], all[2], all[1], all[0]}
	a, b := learned(&d, all), learned(&d, turned)
	for one := range 6 {
		v := cutInto(t, d, 0, one)
		if x, y := lossOf(t, a, v, 9000), lossOf(t, b, v, 9000); x != y {
			t.Errorf("loss %d, and %d in another order", x, y)
		}
	}
	few := append(asked(99), sharing.Asked{Request: sharingtest.Ask("", 1<<40, 0), Count: 1000}, sharing.Asked{Request: all[0].Request, Count: -1000})
	v := cutInto(t, d, 0, 5)
	if x, y := lossOf(t, learned(&d, few), v, 9000), lossOf(t, mig.New(), v, 9000); x != y {
		t.Errorf("loss %d after 99 shares that mean something, want %d as before", x, y)
	}
}

// A device of another model does not lose what was learned of this one.
func TestWhatWasLearnedIsOfOneKindOfDevice(t *testing.T) {
	d := bestFitFree()
	other := d
	other.Model = "another"
	v := cutInto(t, other, 0, 5)
	if x, y := lossOf(t, learned(&d, asked(900, 0, 0, 100)), v, 9000), lossOf(t, mig.New(), v, 9000); x != y {
		t.Errorf("loss %d, want %d", x, y)
	}
}

// A backend that has learned keeps what every backend promises.
func TestABackendThatHasLearnedKeepsThePromises(t *testing.T) {
	d := bestFitFree()
	sharingtest.Backend(t, learned(&d, asked(900, 0, 0, 100)))
}

// BenchmarkLearn works out what later requests lose on a device of 8 slices.
func BenchmarkLearn(b *testing.B) {
	d := bestFitFree()
	demands := []sharing.Demand{{Device: &d, Asked: asked(500, 250, 150, 100)}}
	learner := mig.New().(sharing.Learner)
	for b.Loop() {
		_ = learner.Learn(demands)
	}
}
