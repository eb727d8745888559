// SPDX-License-Identifier: Apache-2.0

package sharing_test

import (
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/sharingtest"
)

func TestDividingADevice(t *testing.T) {
	d := sharingtest.Device(0, "A100-80", sharing.HAMiCore)
	all := int64(d.Memory / sharing.MiB)
	none := amounts(0, 0) // somebody wrote down a share without memory
	cases := []struct {
		says  string
		held  []sharing.Held
		req   sharing.Request
		want  sharing.Reason
		whole bool
	}{
		{"all memory of an empty device", nil, sharingtest.Ask("c", 0, 0), sharing.Fits, true},
		{"all memory and compute", nil, sharingtest.Ask("c", 0, 100), sharing.Fits, true},
		{"all memory, part of the compute", nil, sharingtest.Ask("c", 0, 99), sharing.Fits, false},
		{"all memory in MiB", nil, sharingtest.Ask("c", all, 0), sharing.Fits, true},
		{"all memory but one MiB", nil, sharingtest.Ask("c", all-1, 100), sharing.Fits, false},
		{"one MiB more than there is", nil, sharingtest.Ask("c", all+1, 0), sharing.NotEnoughMemory, false},
		{"all memory beside somebody", []sharing.Held{by("a", sharing.App, amounts(1, 0))}, sharingtest.Ask("c", 0, 0), sharing.NotEmpty, false},
		{"all memory beside a share without memory", []sharing.Held{by("a", sharing.App, none)}, sharingtest.Ask("c", all, 0), sharing.Fits, false},
		{"all compute beside somebody", []sharing.Held{by("a", sharing.App, amounts(1, 0))}, sharingtest.Ask("c", 1, 100), sharing.NotEmpty, false},
		{"the rest of the memory", []sharing.Held{by("a", sharing.App, amounts(79, 0))}, sharingtest.Ask("c", 1024, 0), sharing.Fits, false},
		{"more than the rest", []sharing.Held{by("a", sharing.App, amounts(79, 0))}, sharingtest.Ask("c", 1025, 0), sharing.NotEnoughMemory, false},
		{"the rest of the compute", []sharing.Held{by("a", sharing.App, amounts(1, 70))}, sharingtest.Ask("c", 1, 30), sharing.Fits, false},
		{"more than the rest of it", []sharing.Held{by("a", sharing.App, amounts(1, 70))}, sharingtest.Ask("c", 1, 31), sharing.NotEnoughCores, false},
		{"no compute where none is left", []sharing.Held{by("a", sharing.App, amounts(1, 60)), by("b", sharing.App, amounts(1, 40))}, sharingtest.Ask("c", 1, 0), sharing.Fits, false},
		{"compute beyond the device", nil, sharingtest.Ask("c", 1, 101), sharing.NotEnoughCores, false},
		{"negative compute", nil, sharingtest.Ask("c", 1, -1), sharing.NotEnoughCores, false},
	}
	for _, c := range cases {
		t.Run(c.says, func(t *testing.T) {
			v := sharing.NewView(&d, c.held, factory.New())
			cost, reason := v.Divide(&c.req)
			if reason != c.want {
				t.Fatalf("%v, want %v", reason, c.want)
			}
			if reason != sharing.Fits {
				if cost != (sharing.Cost{}) {
					t.Errorf("refused, and costs %+v", cost)
				}
				return
			}
			s := v.Portion(&c.req)
			if s.Cost() != cost || s.Whole != c.whole || s.Device != d.ID || s.Mode != d.Mode {
				t.Errorf("%+v for %+v; want whole %v", s, cost, c.whole)
			}
		})
	}
}

// On the node memory of 0 means unlimited, so nobody may be given it.
func TestAPercentageThatComesToNothingDoesNotFit(t *testing.T) {
	d := sharingtest.Device(0, "T4", sharing.HAMiCore)
	d.Memory = 50 * sharing.MiB
	v := sharing.NewView(&d, nil, factory.New())
	for percent, want := range map[sharing.Percent]sharing.Reason{1: sharing.NotEnoughMemory, 2: sharing.Fits} {
		if cost, got := v.Divide(&sharing.Request{Count: 1, Memory: sharing.PercentMemory(percent)}); got != want {
			t.Errorf("%d%%: %v for %+v, want %v", percent, got, cost, want)
		}
	}
}

func TestOnlyTheBackendKnowsWhatADeviceOfPartitionsLacks(t *testing.T) {
	huge := sharingtest.Ask("c", 1<<30, 0)
	divided, cut := sharingtest.Device(0, "A30", sharing.HAMiCore), sharingtest.Device(1, "A30", sharing.MIG)
	v, w := sharing.NewView(&divided, nil, factory.New()), sharing.NewView(&cut, nil, factory.New())
	if got := v.Lacks(&huge); got != sharing.NotEnoughMemory {
		t.Errorf("a device that is divided by amounts: %v", got)
	}
	if got := w.Lacks(&huge); got != sharing.Fits {
		t.Errorf("a device of partitions: %v", got)
	}
	left, empty := v.Most()
	if left != (sharing.Cost{}) || empty != left || v.Worth() != 0 {
		t.Errorf("a device that is divided by amounts could give %+v of %+v, worth %d", left, empty, v.Worth())
	}
	if left, empty := w.Most(); left.Memory == 0 || left != empty {
		t.Errorf("an empty device of partitions could give %+v of %+v", left, empty)
	}
	best := sharingtest.BestFit(sharingtest.Free(cut))
	if x := sharing.NewView(&best, nil, factory.New()); x.Worth() == 0 {
		t.Error("where the best fit is looked for, a device is worth nothing")
	}
}
