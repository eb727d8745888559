// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"math"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/policy"
)

// inMode is a device with this many GiB of 80 in use, in a mode.
func inMode(m sharing.Mode, gib int) sharing.View {
	v := used(0, "A100-80", 0, gib)
	d := *v.Device
	d.Mode = m
	held := append([]sharing.Held{}, v.Held()...)
	for i := range held {
		held[i].Share.Mode = m
	}
	return sharing.NewView(&d, held, factory.New())
}

func TestAWeightOutweighsAsManyPercentOfADevice(t *testing.T) {
	for name, c := range map[string]struct {
		weights policy.Weights
		mps     int // GiB of the mps device in use, 80 are 50 points
		better  sharing.Mode
	}{
		"nothing said, the fuller one":    {nil, 40, sharing.MPS},
		"an equal weight changes nothing": {policy.Weights{sharing.MIG: 10, sharing.MPS: 10}, 40, sharing.MPS},
		"less than the difference":        {policy.Weights{sharing.MIG: 24}, 40, sharing.MPS},
		"more than the difference":        {policy.Weights{sharing.MIG: 26}, 40, sharing.MIG},
		"more than any difference":        {policy.Weights{sharing.MIG: 100}, 80, sharing.MIG},
		"zero is no weight":               {policy.Weights{sharing.MIG: 0}, 1, sharing.MPS},
		"below zero neither":              {policy.Weights{sharing.MIG: -5, sharing.MPS: math.Inf(-1)}, 1, sharing.MPS},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy.WithModes(named(t, "binpack"), c.weights)
			mig, mps := inMode(sharing.MIG, 0), inMode(sharing.MPS, c.mps)
			got := sharing.MPS
			if p.Device(&mig, sharing.Cost{}) > p.Device(&mps, sharing.Cost{}) {
				got = sharing.MIG
			}
			if got != c.better {
				t.Errorf("%s is preferred, want %s", got, c.better)
			}
		})
	}
}

func TestWeightsKeepTheNameTheBoundsAndTheScoresOfNodes(t *testing.T) {
	for _, name := range policy.Names() {
		bare := named(t, name)
		p := policy.WithModes(bare, policy.Weights{sharing.MIG: math.Inf(1), sharing.MPS: 3})
		v := inMode(sharing.MIG, 80)
		if s := p.Device(&v, sharing.Cost{Memory: sharing.MaxBytes}); s > policy.MaxScore || s < -policy.MaxScore {
			t.Errorf("%s scores %d", name, s)
		}
		views := []sharing.View{v}
		if p.Name() != name || node(p, views, &sharing.PodRequest{}) != node(bare, views, &sharing.PodRequest{}) {
			t.Errorf("%s became %s, or scores nodes in another way", name, p.Name())
		}
		if n := testing.AllocsPerRun(100, func() { p.Device(&v, sharing.Cost{}) }); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func TestWeightsThatAreNotPositiveAddNothing(t *testing.T) {
	bare, v := named(t, "binpack"), inMode(sharing.MIG, 40)
	for _, w := range []policy.Weights{nil, {}, {sharing.MIG: 0}, {sharing.MIG: -1, sharing.MPS: 0}} {
		if got, want := policy.WithModes(bare, w).Device(&v, sharing.Cost{}), bare.Device(&v, sharing.Cost{}); got != want {
			t.Errorf("%v: a device scores %d, want %d", w, got, want)
		}
	}
}
