// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"deviceshare/deviceplugin/driver/drivertest"
	"deviceshare/sharing"
)

// begins has the kubelet start a pod's container, as it does again and again, until done.
func (p *program) begins(name string, d sharing.Device, controlled bool, done func(err error) bool) {
	p.t.Helper()
	pod := p.place(name, d, controlled)
	p.await("the end of pod "+name, func() bool {
		_, err := p.kubelet.Begin(p.t.Context(), pod, "main")
		if err == nil {
			p.t.Fatalf("pod %s starts on device %s", name, d.ID)
		}
		return done(err)
	})
}

func (p *program) evicted(name string) bool {
	return strings.Contains(","+p.evictions()+",", ","+name+",")
}

func TestAPodWhoseDeviceIsNotOnTheNodeIsPlacedAnew(t *testing.T) {
	for name, c := range map[string]struct {
		vanishes func(p *program)
		why      string
	}{
		"swapped while the plugin was away": {func(p *program) {
			p.end()
			p.driver = drivertest.New(drivertest.A100(1), drivertest.A100(2))
			p.start()
			p.await("the new devices", func() bool { return p.offered() == 2 && p.inventory().Devices[0].ID == drivertest.A100(1).UUID })
		}, "is not on this node"},
		"hidden": {func(p *program) {
			p.configure(`{"nodeconfig":[{"name":"n","filterdevices":{"uuid":["` + string(drivertest.A100(0).UUID) + `"]}}]}`)
			p.await("one device less", func() bool { return p.offered() == 1 })
		}, "the node configuration hides it"},
	} {
		t.Run(name, func(t *testing.T) {
			p := launch(t)
			p.awaitOffer()
			gone := p.inventory().Devices[0]
			c.vanishes(p)
			p.kubelet.Await(t, "slots", func(healthy, _, _ int) bool { return healthy > 0 })
			p.begins("owned", gone, true, func(error) bool { return p.evicted("owned") })
			p.event("DevicePlacedAnew", c.why)
			seen := false
			p.begins("bare", gone, false, func(error) bool { defer func() { seen = true }(); return seen })
			p.event("DevicePlacementRefused", "kubectl delete pod -n ns bare")
			if p.evicted("bare") {
				t.Error("a pod that nobody would make again was evicted")
			}
		})
	}
}

func TestAPodWhoseDeviceIsBrokenIsPlacedAnewOnlyAfterAWait(t *testing.T) {
	wait := never
	p := launch(t, func(p *program) {
		p.tune = func(o *options) { o.health.Quiet, o.health.Wait = never, wait }
	})
	p.awaitOffer()
	broken := p.inventory().Devices[0]
	p.driver.Raise(0, 79)
	p.await("the device to break", func() bool { return p.offered() == 1 })
	p.begins("patient", broken, true, func(err error) bool { return strings.Contains(err.Error(), "the container starts when it works again") })
	if p.evicted("patient") {
		t.Error("it was evicted at once")
	}
	p.end()
	wait = time.Millisecond
	p.start()
	p.awaitOffer()
	p.driver.Raise(0, 79)
	p.await("the device to break again", func() bool { return p.offered() == 1 })
	p.begins("impatient", broken, true, func(error) bool { return p.evicted("impatient") })
	p.event("DevicePlacedAnew", "critical error XID 79")
}

// The kubelet knows the slots of the plugin before, and binds and starts pods meanwhile.
func TestAPluginThatCannotReadTheDriverTellsSchedulersAndPods(t *testing.T) {
	p := launch(t, withKeeper)
	p.awaitOffer()
	device := p.inventory().Devices[0]
	p.end()
	p.driver.Miss(errors.New("NVML: Driver/library version mismatch"))
	bare := p.place("bare", device, false)
	p.place("owned", device, true)
	tune := p.tune
	p.tune = func(o *options) { tune(o); o.health.Wait = time.Millisecond }
	p.start()
	p.await("nothing to be offered, and why", func() bool {
		inv := p.inventory()
		return p.offered() == 0 && len(inv.Devices) == 2 && strings.Contains(inv.Devices[0].Reason, "version mismatch")
	})
	p.event("DevicePrepareFailed", "version mismatch")
	p.await("the eviction of the pod that is made again", func() bool { return p.evicted("owned") })
	p.event("DevicePlacementRefused", "kubectl delete pod -n ns bare")
	if p.evicted("bare") {
		t.Error("a pod that nobody would make again was evicted")
	}
	if _, err := p.kubelet.Begin(t.Context(), bare, "main"); err == nil || !strings.Contains(err.Error(), "version mismatch") {
		t.Errorf("the container is told %v", err)
	}
	p.kubelet.Await(t, "the slots, which stay", func(healthy, all, _ int) bool { return healthy == 20 && all == 20 })
	p.driver.Miss(nil)
	p.awaitOffer()
	p.await("the start, which the kubelet tries again and again", func() bool {
		_, err := p.kubelet.BeginAgain(t.Context(), bare, "main")
		return err == nil
	})
}
