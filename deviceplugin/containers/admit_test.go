// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

func partition(index int) sharing.Share {
	s := shareOf(index, 6144)
	s.Mode = sharing.MIG
	s.Partition = sharing.Partition{Profile: "1g.6gb", Start: 0, Size: 1, Geometry: "group1"}
	return s
}

// changes are what may become of a device between the placement and the start.
func TestWhatBecameOfTheDeviceSinceThePlacement(t *testing.T) {
	cases := map[string]struct {
		share   sharing.Share
		change  func(*sharing.Inventory)
		anew    string // the pod is placed anew because
		waits   string // the container is tried again because
		honours bool   // a container that ran before starts all the same
	}{
		"nothing":                                     {share: shareOf(0, 1000), change: func(*sharing.Inventory) {}, honours: true},
		"another mode, not there yet":                 {share: shareOf(0, 1000), change: into(sharing.MPS, "default/q holds it"), anew: "device GPU-0 is in mode mps now; the pod was placed in hami-core", honours: true},
		"another mode, and it is there":               {share: shareOf(0, 1000), change: into(sharing.TimeSlicing, ""), anew: "in mode time-slicing now", honours: true},
		"its mode again, not there yet":               {share: shareOf(0, 1000), change: into(sharing.HAMiCore, "it is being brought into mode hami-core"), waits: "being brought", honours: true},
		"other geometries":                            {share: partition(0), change: into(sharing.MIG, ""), anew: `chosen under geometries "before", the node applies "now" now`, honours: true},
		"other geometries do not concern other modes": {share: shareOf(0, 1000), change: func(i *sharing.Inventory) { i.GeometryHash = "later" }, honours: true},
		"another device of the pod changed":           {share: shareOf(0, 1000), change: func(i *sharing.Inventory) { i.Devices[1].Mode = sharing.MIG }, anew: "device GPU-1 is in mode mig now", honours: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inv := inventoryOf()
			pod := podOf(t, twoContainers(ourScheduler, shareOf(1, 1000)), c.share)
			running := managerOn(t, &inv)
			if _, err := running.admitContainer(t.Context(), pod, mainContainer(), slotsOf(1)); err != nil && c.share.Partition.IsZero() {
				t.Fatalf("before the change: %v", err)
			}
			c.change(&inv)
			_, err := managerOn(t, &inv).admitContainer(t.Context(), pod, mainContainer(), slotsOf(1))
			judge(t, err, c.anew, c.waits)
			if !c.share.Partition.IsZero() {
				_ = running.cfg.Store.Put(newRecord(claimOf(t, pod, &inv), slotsOf(1)))
			}
			if _, err := running.admitContainer(t.Context(), pod, mainContainer(), slotsOf(1)); (err == nil) != c.honours {
				t.Errorf("the container that ran before is told %v", err)
			}
		})
	}
}

func TestAPodThatHasBegunIsNotRefusedHalfWay(t *testing.T) {
	inv := inventoryOf()
	pod := podOf(t, twoContainers(ourScheduler, shareOf(1, 1000)), shareOf(0, 1000))
	k := managerOn(t, &inv)
	if _, err := k.admitContainer(t.Context(), pod, mainContainer(), slotsOf(1)); err != nil {
		t.Fatal(err)
	}
	inv.Devices[1].Mode, inv.GeometryHash = sharing.MPS, "later"
	c, err := k.admitContainer(t.Context(), pod, kubelet.Container{Name: "second", ID: "id-2"}, []string{"d"})
	if err != nil || c.Devices[0].Share.Mode != sharing.HAMiCore {
		t.Errorf("its second container is told %v, in mode %s", err, c.Devices[0].Share.Mode)
	}
}

func TestAPodOfTodaysSchedulerKeepsTheModeItBeganIn(t *testing.T) {
	inv := inventoryOf()
	pod := podOf(t, legacyScheduler, shareOf(0, 1000))
	k := managerOn(t, &inv)
	if _, err := k.admitContainer(t.Context(), pod, mainContainer(), slotsOf(1)); err != nil {
		t.Fatal(err)
	}
	into(sharing.MIG, "default/p holds it")(&inv)
	c, err := k.admitContainer(t.Context(), pod, mainContainer(), slotsOf(1))
	if err != nil || c.Devices[0].Share.Mode != sharing.HAMiCore {
		t.Errorf("told %v, in mode %v", err, c)
	}
}

func TestABrokenDeviceRefusesRestartsTooAndForNow(t *testing.T) {
	inv := inventoryOf()
	pod := podOf(t, ourScheduler, shareOf(0, 1000))
	k := managerOn(t, &inv)
	if _, err := k.admitContainer(t.Context(), pod, mainContainer(), slotsOf(1)); err != nil {
		t.Fatal(err)
	}
	inv.Devices[0].Healthy, inv.Devices[0].Reason = false, "XID 79"
	_, err := k.admitContainer(t.Context(), pod, mainContainer(), slotsOf(1))
	judge(t, err, "", "is broken (XID 79)")
}

// judge checks that an error says what it should, and that the right one of
// trying again and placing anew is asked for.
func judge(t *testing.T, err error, anew, waits string) {
	t.Helper()
	var misplaced *modes.Misplaced
	switch is := errors.As(err, &misplaced); {
	case anew == "" && waits == "":
		if err != nil {
			t.Errorf("refused: %v", err)
		}
	case err == nil:
		t.Error("accepted")
	case is != (anew != "") || !strings.Contains(err.Error(), anew+waits):
		t.Errorf("misplaced %v: %v; want %q", is, err, anew+waits)
	}
}

// into gives the first device a mode; it is ready for pods if why is empty.
func into(m sharing.Mode, why string) func(*sharing.Inventory) {
	return func(i *sharing.Inventory) {
		i.Devices[0].Mode, i.Devices[0].Healthy, i.Devices[0].Reason = m, why == "", why
	}
}

// twoContainers adds a second container with a share to the decision.
func twoContainers(annotate func(sharing.Placement) (map[string]string, error), share sharing.Share) func(sharing.Placement) (map[string]string, error) {
	return func(p sharing.Placement) (map[string]string, error) {
		p.Containers = append(p.Containers, sharing.ContainerShares{Container: "second", Shares: []sharing.Share{share}})
		return annotate(p)
	}
}

// claimOf is what a container of the pod was given, whether it is current or not.
func claimOf(t *testing.T, pod *corev1.Pod, inv *sharing.Inventory) *modes.Claim {
	t.Helper()
	state := nodeLike{inv}.State()
	placement, err := readPlacement(pod, *inv, nil, terms())
	if err != nil {
		t.Fatal(err)
	}
	given, no := node.ClaimOf(state, node.Ask{Container: "main", Slots: 1, Placement: placement})
	if no != nil {
		t.Fatal(no.Detail)
	}
	c := newClaim(pod, mainContainer(), &given, terms())
	return &c
}
