// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/worth"
)

// Only binpack scores a node by what a partition loses, and only where that is forecast; the empty
// device is 0 percent full otherwise. The weight of a mode does not change it.
func TestNodesWeighedByWhatIsLost(t *testing.T) {
	first := sharingtest.Device(0, "A100-80", sharing.MIG)
	best, plain := sharingtest.BestFit(first), sharingtest.BestFit(sharingtest.Device(0, "A100-80", sharing.HAMiCore))
	uncut := first
	uncut.MIG = nil
	for says, c := range map[string]struct {
		d      sharing.Device
		policy string
		want   float64
	}{
		"best fit, filled":            {best, "binpack", 75},
		"best fit, spread":            {best, "spread", 100},
		"first match":                 {first, "binpack", 0},
		"in another mode":             {plain, "binpack", 0},
		"a device that cannot be cut": {uncut, "binpack", 0},
	} {
		v := sharing.NewView(&c.d, nil, factory.New())
		bare := named(t, c.policy)
		if got := percent(bare, &v, 2000); got != c.want {
			t.Errorf("%s: %v, want %v", says, got, c.want)
		}
		if got := percent(policy.WithModes(bare, policy.Weights{sharing.MPS: 3, sharing.MIG: 30}), &v, 2000); got != c.want {
			t.Errorf("%s, with modes that are worth something: %v, want %v", says, got, c.want)
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
		if p := percent(named(t, "binpack"), &v, loss); p < 0 || p > 100 || (p == 100) != (loss == 0) || (p == 0) != (loss >= 8000) {
			t.Errorf("losing %d is %v percent", loss, p)
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

// percent is the score of a node with one device of which a pod takes a partition with this loss.
func percent(p policy.Policy, v *sharing.View, loss int64) float64 {
	taken := []worth.Taken{{Cost: sharing.Cost{Memory: sharing.GiB, Loss: loss}, Shares: 1}}
	return p.Node(worth.Host{Views: []sharing.View{*v}}, &sharing.PodRequest{}, taken, worth.Amounts{})
}

// What a mode is worth is added to the score of a device, whatever is lost.
func TestTheWeightOfAModeAddsToTheScoreByLoss(t *testing.T) {
	d := sharingtest.BestFit(sharingtest.Device(0, "A100-80", sharing.MIG))
	v := sharing.NewView(&d, nil, factory.New())
	bare := named(t, "binpack")
	weighted := policy.WithModes(bare, policy.Weights{sharing.MIG: 30, sharing.MPS: 70})
	for _, loss := range []int64{0, 100, 4000, 7999, 8000, 20_000} {
		c := sharing.Cost{Memory: sharing.GiB, Loss: loss}
		if weighted.Device(&v, c)-bare.Device(&v, c) != 600_000 {
			t.Errorf("losing %d: a weight of 30 percent adds %d", loss, weighted.Device(&v, c)-bare.Device(&v, c))
		}
	}
}
