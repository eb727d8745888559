// SPDX-License-Identifier: Apache-2.0

package mig_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"deviceshare/deviceplugin/driver"
	"deviceshare/sharing"
)

func enter(m *machine, id sharing.DeviceID) error {
	return m.plugin().Enter(context.Background(), sharing.Device{ID: id})
}

func leave(m *machine, id sharing.DeviceID) error {
	return m.plugin().Leave(context.Background(), sharing.Device{ID: id})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAnAmpereCardIsSwitchedByItsAdministrator(t *testing.T) {
	m := newMachine(t)
	m.cards.Switch(a100, false)
	told := manual(t, enter(m, a100))
	for _, want := range []string{"nvidia-smi -i GPU-a100 -mig 1", "nvidia-smi -i GPU-a100 --gpu-reset", "reboot the node"} {
		if !strings.Contains(told.Do, want) {
			t.Errorf("it says %q, want %q in it", told.Do, want)
		}
	}
	if _, next, _ := m.cards.MIGMode(a100); next {
		t.Error("the driver was asked, and may reset the device by itself")
	}
	if err := m.cards.SetMIGMode(a100, true); !errors.Is(err, driver.ErrResetRequired) { // nvidia-smi -mig 1
		t.Fatal(err)
	}
	if in, err := m.plugin().Entered(context.Background(), sharing.Device{ID: a100}); !in || err != nil {
		t.Errorf("a device that will be partitioned after its reset counts as left: %v, %v", in, err)
	}
	manual(t, enter(m, a100))
	m.cards.Reset(a100)
	if err := enter(m, a100); err != nil {
		t.Errorf("after the reset: %v", err)
	}
	told = manual(t, leave(m, a100))
	if !strings.Contains(told.Do, "nvidia-smi -i GPU-a100 -mig 0") {
		t.Errorf("it says %q", told.Do)
	}
	_ = m.cards.SetMIGMode(a100, false)
	m.cards.Reset(a100)
	if err := leave(m, a100); err != nil {
		t.Errorf("after the reset: %v", err)
	}
}

func TestAChangeOfMindBeforeTheResetIsTakenBack(t *testing.T) {
	m := newMachine(t)
	m.cards.Switch(a100, false)
	_ = m.cards.SetMIGMode(a100, true)
	if err := leave(m, a100); err != nil {
		t.Fatal(err)
	}
	m.cards.Reset(a100)
	if now, _, _ := m.cards.MIGMode(a100); now {
		t.Error("the reset switched partitioning on")
	}
}

func TestWhatKeepsADeviceFromChangingIsTold(t *testing.T) {
	cases := map[string]struct {
		spoil func(*machine)
		do    func(*machine, sharing.DeviceID) error
		want  []string
	}{
		"a process uses the device": {func(m *machine) {
			m.cards.Switch(h100, false)
			m.cards.UseWhole(h100, 7)
		}, enter, []string{"while something uses the device; the device is open in program-7 (process 7)", "nvidia-smi -i GPU-h100 -mig 1"}},
		"many processes use it": {func(m *machine) {
			m.cards.Switch(h100, false)
			m.cards.UseWhole(h100, 1, 2, 3, 4, 5, 6)
		}, enter, []string{"program-4 (process 4), 2 more"}},
		"something that only monitors it keeps an instance": {func(m *machine) {
			m.byHand(place{h100, "2g.20gb", 0}, false)
			m.cards.UseWhole(h100, 8)
			m.cards.Fail("DestroyGPUInstance", slices.Repeat([]error{driver.ErrInUse}, 6)...)
		}, leave, []string{"by something that the driver does not name; the device is open in program-8 (process 8)"}},
		"the plugin may not": {func(m *machine) {
			m.cards.Switch(h100, false)
			m.cards.Fail("SetMIGMode", driver.ErrNoPermission)
		}, enter, []string{"privileged", "as root"}},
		"a process uses an instance": {func(m *machine) {
			m.cards.Use(h100, m.byHand(place{h100, "2g.20gb", 0}, true), 99)
		}, leave, []string{"2g.20gb at slices 0 to 1", "program-99 (process 99)", "end what"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			tc.spoil(m)
			told := manual(t, tc.do(m, h100))
			for _, want := range tc.want {
				if !strings.Contains(told.Error(), want) {
					t.Errorf("it says %q, want %q in it", told.Error(), want)
				}
			}
		})
	}
}

func TestADeviceIsNotLeftWhileSomebodyHoldsAPartOfIt(t *testing.T) {
	m := newMachine(t)
	uuid := m.give(claim("uid", "main", place{h100, "1g.10gb", 0}))[0]
	err := leave(m, h100)
	if err == nil || !strings.Contains(err.Error(), "container main of pod uid") {
		t.Errorf("the error is %v", err)
	}
	if got := m.at(uuid); got != "GPU-h100 1g.10gb at 0" {
		t.Errorf("the container now has %s", got)
	}
	m.release("uid")
	if err := leave(m, h100); err != nil {
		t.Error(err)
	}
}

func TestLeavingACardThatWantsAResetDestroysNothing(t *testing.T) {
	m := newMachine(t)
	m.byHand(place{a100, "3g.40gb", 4}, true)
	before := m.cards.String()
	told := manual(t, leave(m, a100))
	for _, want := range []string{"nvidia-smi mig -i GPU-a100 -dci, then nvidia-smi mig -i GPU-a100 -dgi, then nvidia-smi -i GPU-a100 -mig 0", "--gpu-reset"} {
		if !strings.Contains(told.Do, want) {
			t.Errorf("it says %q, want %q in it", told.Do, want)
		}
	}
	if now := m.cards.String(); now != before || len(m.notes) > 0 {
		t.Errorf("the card is\n%s\nbefore\n%s", now, before)
	}
}

func TestInstancesOfSomebodyElseAreGivenUpByAnAdministratorOnly(t *testing.T) {
	cases := map[string]struct {
		first     func(*machine)
		byDefault bool
		kept      bool
	}{
		"a fresh node without an entry":               {func(*machine) {}, true, true},
		"a fresh node with an entry":                  {func(*machine) {}, false, false},
		"the device was in the mode by an entry once": {func(m *machine) { must(m.t, enter(m, h100)) }, true, false},
		"a container of ours had a partition, from before that was noted": {func(m *machine) {
			m.cards.Switch(h100, true)
			m.give(claim("uid", "main", place{h100, "1g.10gb", 0}))
			m.release("uid")
		}, true, false},
		"it was, and left it since": {func(m *machine) {
			must(m.t, enter(m, h100))
			must(m.t, leave(m, h100))
			m.cards.Switch(h100, true)
		}, true, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			tc.first(m)
			m.byDefault = tc.byDefault
			m.byHand(place{h100, "3g.40gb", 4}, true)
			before := m.cards.String()
			err := leave(m, h100)
			if !tc.kept {
				if on, _, _ := m.cards.MIGMode(h100); err != nil || on {
					t.Errorf("partitioning is on: %v, %v", on, err)
				}
				return
			}
			told := manual(t, err)
			for _, want := range []string{"3g.40gb at slices 4 to 7", "gives it no mode", "filterdevices", "nvidia-smi mig -i GPU-h100 -dci"} {
				if !strings.Contains(told.Error(), want) {
					t.Errorf("it says %q, want %q in it", told.Error(), want)
				}
			}
			if now := m.cards.String(); now != before {
				t.Errorf("the card is\n%s\nbefore\n%s", now, before)
			}
		})
	}
	m := newMachine(t)
	m.byDefault = true
	if err := leave(m, h100); err != nil {
		t.Errorf("a device without instances: %v", err)
	}
}

func TestADeviceThatCannotBePartitionedIsInNoMode(t *testing.T) {
	m := newMachine(t)
	const t4 = sharing.DeviceID("GPU-t4")
	if in, err := m.plugin().Entered(context.Background(), sharing.Device{ID: t4}); in || err != nil {
		t.Errorf("entered %v, %v", in, err)
	}
	if err := leave(m, t4); err != nil {
		t.Error(err)
	}
	if err := enter(m, t4); err == nil || !strings.Contains(err.Error(), "give it another mode") {
		t.Errorf("the error is %v", err)
	}
}

func TestABrokenDriverIsNoManualWork(t *testing.T) {
	broken := errors.New("the driver is confused")
	for _, call := range []string{"MIGMode", "SetMIGMode", "Instances", "Resetless"} {
		m := newMachine(t)
		m.cards.Fail(call, broken)
		if err := leave(m, h100); !errors.Is(err, broken) {
			t.Errorf("%s: the error is %v", call, err)
		}
	}
}

func TestAPodOfAHopperNodeThatRebootedSwitchesTheModeOnAgain(t *testing.T) {
	m := newMachine(t)
	c := claim("uid", "main", place{h100, "1g.10gb", 0})
	m.give(c)
	m.cards.Reboot()
	if now, _, _ := m.cards.MIGMode(h100); now {
		t.Fatal("the mode survived the reboot; the test shows nothing")
	}
	if got := m.at(m.give(c)[0]); got != "GPU-h100 1g.10gb at 0" {
		t.Errorf("the container has %s", got)
	}
}
