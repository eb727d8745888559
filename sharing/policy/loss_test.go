// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
)

func TestDevicesWeighedByWhatIsLost(t *testing.T) {
	first := sharingtest.Device(0, "A100-80", sharing.MIG)
	best, plain := sharingtest.BestFit(first), sharingtest.BestFit(sharingtest.Device(0, "A100-80", sharing.HAMiCore))
	uncut := first
	uncut.MIG = nil
	for says, c := range map[string]struct {
		d      sharing.Device
		policy string
		want   bool
	}{
		"best fit, filled":            {best, "binpack", true},
		"best fit, spread":            {best, "spread", false},
		"first match":                 {first, "binpack", false},
		"in another mode":             {plain, "binpack", false},
		"a device that cannot be cut": {uncut, "binpack", false},
	} {
		v := sharing.NewView(&c.d, nil, factory.New())
		bare := named(t, c.policy)
		if _, got := policy.ByLoss(bare, &v); got != c.want {
			t.Errorf("%s: %v", says, got)
		}
		if _, got := policy.ByLoss(policy.WithModes(bare, policy.Weights{sharing.MPS: 3}), &v); got != c.want {
			t.Errorf("%s, with a mode that is worth something: %v", says, got)
		}
	}
}

func TestBinpackPrefersTheDeviceThatLosesLess(t *testing.T) {
	d := sharingtest.BestFit(sharingtest.Device(0, "A100-80", sharing.MIG))
	v := sharing.NewView(&d, nil, factory.New())
	last := policy.MaxScore
	for _, loss := range []int64{0, 1, 80, 1500, 4000, 8000, 12_000, 16_000} {
		score := named(t, "binpack").Device(&v, sharing.Cost{Memory: sharing.GiB, Loss: loss})
		if score >= last {
			t.Errorf("losing %d scores %d, losing less %d", loss, score, last)
		}
		if p := percent(t, named(t, "binpack"), &v, score); p < 0 || p > 100 || (p == 100) != (loss == 0) || (p == 0) != (loss >= 8000) {
			t.Errorf("losing %d is %d percent", loss, p)
		}
		last = score
	}
}

// Whatever is on the devices, one that would give more than was asked for comes
// after one that would not.
func TestBinpackGivesLargerPartitionsThanAskedForLast(t *testing.T) {
	d := sharingtest.Device(0, "A100-80", sharing.MIG)
	full := sharing.NewView(&d, []sharing.Held{{Owner: "a", Share: sharing.Share{Device: d.ID, Mode: sharing.MIG, Memory: 70 * sharing.GiB, Cores: 86}}}, factory.New())
	empty := sharing.NewView(&d, nil, factory.New())
	binpack := named(t, "binpack")
	right := binpack.Device(&empty, sharing.Cost{Memory: sharing.GiB})
	if wrong := binpack.Device(&full, sharing.Cost{Memory: 10 * sharing.GiB, Cores: 14, Loss: 1000}); wrong >= right {
		t.Errorf("a larger one scores %d, the right one %d", wrong, right)
	}
	if a, b := binpack.Device(&full, sharing.Cost{Loss: 1000}), binpack.Device(&empty, sharing.Cost{Loss: 1000}); a <= b {
		t.Errorf("of two that are too large the one on the fuller device scores %d, the other %d", a, b)
	}
}

func percent(t *testing.T, p policy.Policy, v *sharing.View, score int64) int64 {
	t.Helper()
	s, ok := policy.ByLoss(p, v)
	if !ok {
		t.Fatalf("%s does not score the device by loss", p.Name())
	}
	return s.Percent(v, score)
}

// The weight of a mode is added to the score of a node by the scheduler, so the score
// of a device by loss gives the same percentage with it and without.
func TestThePercentageOfANodeLeavesTheWeightOfItsModeOut(t *testing.T) {
	d := sharingtest.BestFit(sharingtest.Device(0, "A100-80", sharing.MIG))
	v := sharing.NewView(&d, nil, factory.New())
	bare := named(t, "binpack")
	weighted := policy.WithModes(bare, policy.Weights{sharing.MIG: 30, sharing.MPS: 70})
	for _, loss := range []int64{0, 100, 4000, 7999, 8000, 20_000} {
		c := sharing.Cost{Memory: sharing.GiB, Loss: loss}
		want := percent(t, bare, &v, bare.Device(&v, c))
		if got := percent(t, weighted, &v, weighted.Device(&v, c)); got != want {
			t.Errorf("losing %d is %d percent, want %d", loss, got, want)
		}
		if weighted.Device(&v, c)-bare.Device(&v, c) != 600_000 {
			t.Errorf("losing %d: a weight of 30 percent adds %d", loss, weighted.Device(&v, c)-bare.Device(&v, c))
		}
	}
	if _, ok := policy.ByLoss(policy.WithModes(named(t, "spread"), policy.Weights{sharing.MIG: 1}), &v); ok {
		t.Error("a weight makes spread score by loss")
	}
}
