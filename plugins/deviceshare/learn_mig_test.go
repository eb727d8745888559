// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"deviceshare/sharing"
	"deviceshare/sharing/sharingtest"
)

// cutNode is a node with one A100 that is cut by best fit, and pods that have so many 1g.
func cutNode(t *testing.T, node string, ones int) []runtime.Object {
	t.Helper()
	d := sharingtest.BestFit(sharingtest.Free(sharingtest.Device(0, "A100-80", sharing.MIG)))
	d.ID = sharing.DeviceID("GPU-" + node + "-0")
	out := []runtime.Object{nodeOf(t, sharing.Inventory{Node: node, Devices: []sharing.Device{d}})}
	small := d.MIG.Profiles[0]
	// The fixed table puts the first five 1g at the slices 6, 4, 5, 2 and 3, in this or like order.
	for i, start := range []int{6, 4, 5, 2, 3}[:ones] {
		s := sharing.Share{Device: d.ID, Mode: sharing.MIG, Memory: small.Memory, Cores: 14}
		s.Partition = sharing.Partition{Profile: small.Name, Start: start, Size: 1}
		out = append(out, runningOn(t, podOf(fmt.Sprintf("%s-%d", node, i), "g", asks{number: 1, memory: 9000}), node, s))
	}
	return out
}

// history is pods that have arrived: so many that ask for a 1g, and for a 7g.
func history(t *testing.T, small, large int) []runtime.Object {
	t.Helper()
	gone := nodeOf(t, devices("n4", 0, 10000))
	gone.Annotations, gone.Spec.Unschedulable = nil, true
	out := []runtime.Object{gone}
	for i := range small + large {
		memory := int64(9000)
		if i >= small {
			memory = 80000
		}
		pod := podOf(fmt.Sprintf("done-%d", i), "g", asks{number: 1, memory: memory})
		pod.Status.Phase = corev1.PodRunning
		out = append(out, boundTo(pod, "n4"))
	}
	return out
}

// two is a node with a 1g and one with five, a pod that asks for a 1g, and what has arrived.
func two(t *testing.T, policy string, small, large int) *world {
	t.Helper()
	objects := append(history(t, small, large), cutNode(t, "n1", 1)...)
	bare := nodeOf(t, devices("n3", 0, 10000))
	bare.Annotations = nil
	objects = append(append(objects, cutNode(t, "n2", 5)...), bare, groupOf("g", 1), podOf("p", "g", asks{number: 1, memory: 9000}))
	w := newWorld(t, objects...)
	w.args[argPolicy] = policy
	return w
}

// Where nobody asks for 2g and 3g, a 1g goes beside other 1g; before that is known, the rest of
// that device is kept for them. The pod is placed by whole cycles.
func TestPartitionsArePlacedByWhatWasAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		small, large int
		want         string
	}{
		"nothing learned":      {0, 0, "n1"},
		"nine 1g to one of 7g": {180, 20, "n2"},
	} {
		t.Run(name, func(t *testing.T) {
			w := two(t, "fragmentation", c.small, c.large)
			w.schedule()
			if got := w.bound("p").Target.Name; got != c.want {
				t.Errorf("placed on %s, want %s", got, c.want)
			}
		})
	}
}

func TestOtherPoliciesKeepTheFixedTable(t *testing.T) {
	for _, policy := range []string{"binpack", "spread"} {
		before, after := two(t, policy, 0, 0).scores("p"), two(t, policy, 180, 20).scores("p")
		if fmt.Sprint(before) != fmt.Sprint(after) {
			t.Errorf("%s: scores %v, and %v after pods have arrived", policy, before, after)
		}
	}
}
