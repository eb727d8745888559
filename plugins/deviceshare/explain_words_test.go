// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"deviceshare/sharing/wire"
)

func TestAPodIsToldInWordsWhyDevicesRefuseItAndWhatHelps(t *testing.T) {
	w := newWorld(t, small(t, "n1", 2), groupOf("g", 1), podOf("p", "g", asks{number: 1, memory: 20000}))
	w.explained()
	const want = "1 wanted: 2 short of free memory (NotEnoughMemory). What helps: ask for less memory, or wait until pods end."
	if got := w.status.message("p"); !strings.HasSuffix(got, want) {
		t.Errorf("got %q, want it to end with %q", got, want)
	}
}

func TestAmountsOfDevicesHaveUnitsInWhatAPodIsTold(t *testing.T) {
	group := heldGroup("g", 1, 1)
	(*group.Spec.MinResources)[wire.ResourceMemory] = resource.MustParse("20000")
	(*group.Spec.MinResources)[wire.ResourceCores] = resource.MustParse("300")
	node := small(t, "n1", 1)
	node.Status.Allocatable[wire.ResourceMemory], node.Status.Allocatable[wire.ResourceCores] = resource.MustParse("10000"), resource.MustParse("100")
	w := newWorld(t, node, group, podOf("p", "g", asks{number: 1, memory: 20000}))
	w.with("overcommit")
	w.explained()
	got := w.status.message("p")
	for _, want := range []string{"asks for 20000MiB of " + wire.ResourceMemory + ", 0 of 12000MiB are", "asks for 300 percent of " + wire.ResourceCores + ", 0 percent of 120 percent are"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want it to say %q", got, want)
		}
	}
}
