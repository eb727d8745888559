// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

func TestAPodIsBoundWithItsPlacementOnTheBinding(t *testing.T) {
	w := newWorld(t, nodeOf(t, devices("n1", 2, 10000)), groupOf("g", 1), podOf("p", "g", asks{number: 1, memory: 3000, cores: 30}))
	w.schedule()
	b := w.bound("p")
	if b.Target.Name != "n1" {
		t.Errorf("bound to %q", b.Target.Name)
	}
	p, err := wire.DecodePlacement(b.Annotations[wire.PodPlacement])
	if err != nil {
		t.Fatal(err)
	}
	c, ok := p.Container("c0")
	if !ok || len(c.Shares) != 1 || c.Shares[0].Memory != sharing.MiBs(3000) || c.Shares[0].Cores != 30 || p.Node != "n1" {
		t.Errorf("placement %+v", p)
	}
	for _, key := range []string{wire.PodNode, wire.PodTime, wire.PodAssigned, wire.PodToAllocate, wire.PodBindPhase, wire.PodBindTime} {
		if b.Annotations[key] == "" {
			t.Errorf("annotation %s is missing: today's device plugin needs it", key)
		}
	}
}

func TestARefusalTellsThePodWhatItsDevicesLack(t *testing.T) {
	inv := devices("n1", 3, 10000)
	inv.Devices[2].Healthy = false
	w := newWorld(t, nodeOf(t, inv), groupOf("g", 1), podOf("p", "g", asks{number: 1, memory: 12000}))
	w.schedule()
	got := w.status.message("p")
	for _, want := range []string{"0/3 devices fit", "2 NotEnoughMemory", "1 Unhealthy"} {
		if !strings.Contains(got, want) {
			t.Errorf("the pod was told %q, want it to say %q", got, want)
		}
	}
}
