// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

func TestAPodThatHasBegunIsReadInTheModeItBeganIn(t *testing.T) {
	inv := node1()
	containers := []wire.ContainerRef{{Name: "main", Asks: true, Count: 1}}
	for name, c := range map[string]struct {
		device string
		begun  sharing.Mode
		want   sharing.Mode
		why    string
	}{
		"the device is in it still":         {idA, sharing.HAMiCore, sharing.HAMiCore, ""},
		"the device gets another one":       {idA, sharing.MPS, sharing.MPS, ""},
		"the device is going to be cut":     {idB, sharing.TimeSlicing, sharing.TimeSlicing, ""},
		"a partition, and it did not begin": {idB + "[group1-0]", sharing.MPS, "", "a partition of device " + idB + ", which is in mode mps"},
		"no partition, and it began in mig": {idA, sharing.MIG, "", "no partition of device " + idA + ", which is in mode mig"},
	} {
		t.Run(name, func(t *testing.T) {
			text := map[string]string{wire.PodNode: "node1", wire.PodAssigned: c.device + ",NVIDIA,1000,0:"}
			p, found, err := wire.ReadBegun(text, containers, &inv, c.begun, 1)
			if c.why != "" {
				refused(t, err, "", c.why)
				return
			}
			if err != nil || !found || p.Containers[0].Shares[0].Mode != c.want {
				t.Errorf("got %+v, %v, %v", p, found, err)
			}
		})
	}
	if inv.Devices[0].Mode != sharing.HAMiCore {
		t.Error("the inventory was changed")
	}
}
