// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"deviceshare/deviceplugin/driver/drivertest"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// No live edit ends a pod, neither its own nor another one, whenever the kubelet starts again; and
// each pod that holds more than is offered by now is told so.
func TestNoEditEndsAPodThatRuns(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 11))
	e := settle(t, r, 12)
	for i := range e.cards {
		e.fill(i, 10)
	}
	if len(e.tenants) < 80 {
		t.Fatalf("only %d pods: the test shows little", len(e.tenants))
	}
	pods, starts, reboots := len(e.tenants), 0, 0
	edits := rounds(t, "DEVICESHARE_EDITS", 40)
	for n := range edits {
		before := e.concerned()
		e.edit()
		what := fmt.Sprintf("edit %d: split %d, memory %g, compute %g, unit %d, %d hidden", n, e.split, e.memory, e.cores, e.unit, len(e.hidden))
		e.requireTold(before)
		if r.IntN(4) == 0 && len(e.tenants) > 50 {
			e.leave(r.IntN(len(e.tenants)))
		}
		rebooted := n%12 == 11 // before so much is told that client-go drops events
		switch {
		case rebooted:
			e.reboot(func() {})
			reboots++
		case r.IntN(3) == 0:
			e.restartKubelet()
			starts++
		default:
			continue
		}
		if failed := e.readmit(rebooted); len(failed) > 0 {
			t.Fatalf("%s: the kubelet ends %d of %d pods (rebooted: %v), such as %s", what, len(failed), len(e.tenants), rebooted, failed[0])
		}
	}
	if starts < edits/10 || reboots < edits/20 {
		t.Errorf("%d starts of the kubelet and %d reboots: the test shows little", starts, reboots)
	}
	t.Logf("%d edits over %d pods, %d starts of the kubelet, %d reboots", edits, pods, starts, reboots)
}

// change takes cards out, puts others in, breaks and mends some, and hides some, at random.
func (e *estate) change(original []node.Facts) {
	for i := range e.cards {
		switch e.r.IntN(20) {
		case 0:
			e.lost[i] = true
			e.driver.Lose(i)
		case 1, 2, 3, 4, 5:
			e.lost[i] = false
			e.driver.Restore(i)
		case 10:
			e.count++
			other := drivertest.A100(i)
			other.UUID = sharing.DeviceID(fmt.Sprintf("GPU-11111111-0000-0000-0000-%012d", e.count))
			e.cards[i] = other
			e.driver.Swap(i, other)
		case 11, 12, 13, 14:
			e.cards[i] = original[i]
			e.driver.Swap(i, original[i])
		case 15:
			e.hidden[original[i].UUID] = true
		case 16, 17, 18, 19:
			delete(e.hidden, original[i].UUID)
		}
	}
	e.split = 5 + e.r.IntN(6)
	e.write()
}

// Whatever became of some devices while a machine was off: the kubelet takes every pod back, and
// those on devices that work start again.
func TestAfterAnyRebootPodsOnHealthyDevicesComeBack(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	e := settle(t, r, 8)
	for i := range e.cards {
		e.fill(i, 10)
	}
	for _, x := range e.tenants {
		if e.modes[x.device] != sharing.HAMiCore {
			continue
		}
		if _, err := e.kubelet.Begin(t.Context(), x.pod, "main"); err != nil {
			t.Fatal(err)
		}
	}
	original, back, away := slices.Clone(e.cards), 0, 0
	reboots := rounds(t, "DEVICESHARE_REBOOTS", 20)
	for n := range reboots {
		e.reboot(func() { e.change(original) })
		if failed := e.readmit(true); len(failed) > 0 {
			t.Fatalf("reboot %d: the kubelet ends %d of %d pods, such as %s", n, len(failed), len(e.tenants), failed[0])
		}
		e.requireTold(nil)
		for range 4 {
			x := e.tenants[r.IntN(len(e.tenants))]
			switch {
			case !e.isThere(x.device):
				away++
			case !e.hidden[x.device] && e.modes[x.device] == sharing.HAMiCore:
				if _, err := e.kubelet.BeginAgain(t.Context(), x.pod, "main"); err != nil {
					t.Fatalf("reboot %d: pod %s on a device that works: %v", n, x.pod.Name, err)
				}
				back++
			}
		}
	}
	if back < reboots/5 || away < reboots/5 {
		t.Errorf("%d starts on healthy devices and %d pods on others were looked at: the test shows little", back, away)
	}
}
