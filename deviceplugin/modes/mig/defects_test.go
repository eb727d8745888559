// SPDX-License-Identifier: Apache-2.0

package mig_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"deviceshare/deviceplugin/driver"
	"deviceshare/sharing"
)

// These are the defects of the legacy device plugin in mode mig, each as a test that
// it is not ours.

func TestDefectThePositionInAGeometryIsNotTheDriversIndex(t *testing.T) {
	// 2g.20gb three times, then 1g.10gb: there position 3 is the fourth device that
	// the driver lists, whichever that is. Here the 1g is made first.
	m := newMachine(t)
	small := claim("small", "main", place{a100, "1g.10gb", 6})
	small.Devices[0].Share.Partition.Position = 3
	if got := m.at(m.give(small)[0]); got != "GPU-a100 1g.10gb at 6" {
		t.Errorf("position 3 is %s", got)
	}
	for position := range 3 {
		c := claim(sharing.Owner(fmt.Sprintf("large-%d", position)), "main", place{a100, "2g.20gb", 2 * position})
		c.Devices[0].Share.Partition.Position = position
		if got, want := m.at(m.give(c)[0]), fmt.Sprintf("GPU-a100 2g.20gb at %d", 2*position); got != want {
			t.Errorf("position %d is %s, want %s", position, got, want)
		}
	}
	if got := m.at(m.give(small)[0]); got != "GPU-a100 1g.10gb at 6" {
		t.Errorf("position 3 became %s", got)
	}
}

func TestDefectADeviceThatIsCutIntoMoreThanWantedIsNotTakenAsItIs(t *testing.T) {
	// There a device with the wanted instances and others beside them counts as
	// cut, and positions then mean other instances.
	m := newMachine(t)
	m.byHand(place{a100, "1g.10gb", 0}, true)
	m.byHand(place{a100, "2g.20gb", 2}, true)
	m.byHand(place{a100, "2g.20gb", 4}, true)
	if got := m.at(m.give(claim("uid", "main", place{a100, "2g.20gb", 0}))[0]); got != "GPU-a100 2g.20gb at 0" {
		t.Errorf("the container has %s", got)
	}
}

func TestDefectMakingOnePartitionDoesNotRemakeTheWholeDevice(t *testing.T) {
	// There another geometry means that all instances go, used or not.
	m := newMachine(t)
	neighbour := claim("neighbour", "main", place{a100, "3g.40gb", 4})
	uuid := m.give(neighbour)[0]
	m.byHand(place{a100, "2g.20gb", 0}, true)
	m.cards.Calls()
	m.give(claim("uid", "main", place{a100, "1g.10gb", 1}))
	if got := m.give(neighbour)[0]; got != uuid {
		t.Errorf("the neighbour's %s became %s", uuid, got)
	}
	for _, call := range m.cards.Calls() {
		if call == "SetMIGMode" {
			t.Error("the mode of the device was set")
		}
	}
}

func TestDefectTheSpaceOfPodsThatAreGoneIsUsedAgain(t *testing.T) {
	// There nothing is destroyed when a pod ends.
	m := newMachine(t)
	for round, p := range []place{{a100, "7g.80gb", 0}, {a100, "1g.10gb", 3}, {a100, "4g.40gb", 0}, {a100, "3g.40gb", 4}, {a100, "7g.80gb", 0}} {
		owner := sharing.Owner(fmt.Sprintf("uid-%d", round))
		if got, want := m.at(m.give(claim(owner, "main", p))[0]), fmt.Sprintf("%s %s at %d", p.device, p.profile, p.start); got != want {
			t.Errorf("round %d: got %s, want %s", round, got, want)
		}
		m.release(owner)
	}
}

func TestDefectTheSameInstanceIsNeverGivenToTwoPods(t *testing.T) {
	// The legacy scheduler gives one place twice (research on Volcano's MigUsage), and
	// the device plugin believes it.
	m := newMachine(t)
	m.give(claim("first", "main", place{a100, "2g.20gb", 2}))
	m.refuse(claim("second", "main", place{a100, "2g.20gb", 2}), "container main of pod first")
	m.release("first")
	m.give(claim("second", "main", place{a100, "2g.20gb", 2}))
}

func TestDefectALeftoverOfAFailedDestroyIsToldAndTriedAgain(t *testing.T) {
	// NVIDIA/go-nvml#146, instaslice#140: a GPU instance stays after its compute
	// instance is gone, or after the driver said that it was destroyed.
	cases := map[string]func(m *machine, times int){
		"the driver says in use": func(m *machine, times int) {
			for range times {
				m.cards.Fail("DestroyGPUInstance", driver.ErrInUse)
			}
		},
		"the driver says success and keeps it": func(m *machine, times int) { m.cards.Linger(a100, times) },
	}
	for name, spoil := range cases {
		t.Run(name+" for a moment", func(t *testing.T) {
			m := newMachine(t)
			m.byHand(place{a100, "1g.10gb", 5}, true)
			spoil(m, 3)
			m.give(claim("uid", "main", place{a100, "3g.40gb", 4}))
		})
		t.Run(name+" for long", func(t *testing.T) {
			m := newMachine(t)
			m.byHand(place{a100, "1g.10gb", 5}, true)
			spoil(m, 6)
			c := claim("uid", "main", place{a100, "3g.40gb", 4})
			err := m.refuse(c, "1g.10gb at slice 5", "tried again")
			if !errors.Is(err, driver.ErrInUse) {
				t.Errorf("the error is %v", err)
			}
			m.give(c)
		})
	}
}

func TestAnInstanceInUseInTheWayIsNamedAndKept(t *testing.T) {
	m := newMachine(t)
	gi := m.byHand(place{a100, "2g.20gb", 4}, true)
	m.cards.Use(a100, gi, 12, 345)
	before := m.cards.String()
	err := m.refuse(claim("uid", "main", place{a100, "3g.40gb", 4}),
		"3g.40gb at slices 4 to 7 cannot be made", "2g.20gb at slices 4 to 5", fmt.Sprintf("GPU instance %d", gi), "program-12 (process 12), program-345 (process 345)")
	if got := m.cards.String(); got != before || !errors.Is(err, driver.ErrInUse) {
		t.Errorf("the device is\n%s\nwant\n%s", got, before)
	}
}

func TestMediaEnginesThatNobodyHoldsAreFreedForWhoNeedsThem(t *testing.T) {
	// Only one +me instance may exist, wherever it is.
	m := newMachine(t)
	m.byHand(place{a100, "1g.10gb+me", 0}, true)
	if got := m.at(m.give(claim("uid", "main", place{a100, "1g.10gb+me", 6}))[0]); got != "GPU-a100 1g.10gb+me at 6" {
		t.Errorf("the container has %s", got)
	}
	err := m.refuse(claim("two", "main", place{a100, "1g.10gb+me", 0}), "the device has 1g.10gb+me at slice 6")
	if !errors.Is(err, driver.ErrInsufficient) {
		t.Errorf("the error is %v", err)
	}
}

func TestAfterARebootThePodsOfTheNodeGetTheirPartitionsAgain(t *testing.T) {
	m := newMachine(t)
	claims := []place{{a100, "3g.40gb", 4}, {a100, "1g.10gb", 0}, {h100, "7g.80gb", 0}}
	before := map[int]sharing.DeviceID{}
	for i, p := range claims {
		before[i] = m.give(claim(sharing.Owner(fmt.Sprintf("uid-%d", i)), "main", p))[0]
	}
	m.cards.Reboot()
	for i, p := range claims {
		uuid := m.give(claim(sharing.Owner(fmt.Sprintf("uid-%d", i)), "main", p))[0]
		if got, want := m.at(uuid), fmt.Sprintf("%s %s at %d", p.device, p.profile, p.start); got != want || uuid == before[i] {
			t.Errorf("pod %d has %s (%s), want %s under another UUID than %s", i, got, uuid, want, before[i])
		}
		if !strings.Contains(m.files(), string(uuid)) {
			t.Errorf("the new UUID %s is not written down", uuid)
		}
	}
}
