// SPDX-License-Identifier: Apache-2.0

package timeslicing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/modes/modestest"
	"deviceshare/sharing"
)

// sliced is a machine whose devices have slices, and a preparer that may die.
type sliced struct {
	root   string
	latest *modestest.Crashing
	slices map[sharing.DeviceID]Slice
	refuse error
}

func newSliced(t *testing.T) *sliced {
	return &sliced{root: filepath.Join(t.TempDir(), "slices"), slices: map[sharing.DeviceID]Slice{}}
}

func (h *sliced) Preparer(at int, late bool) modes.Preparer {
	h.latest = &modestest.Crashing{Under: host.OS{}, At: at, Late: late}
	return &Setting{Files: h.latest, Root: h.root, Tool: h, Slice: 3}
}

func (h *sliced) Effects() int { return h.latest.Effects() }

func (h *sliced) State() string {
	names, _ := host.OS{}.List(h.root)
	return fmt.Sprint(names, h.slices)
}

// SetSlice implements Tool. The driver's own choice is nothing to remember.
func (h *sliced) SetSlice(_ context.Context, id sharing.DeviceID, s Slice) error {
	return h.latest.Effect(func() error {
		if h.refuse != nil {
			return h.refuse
		}
		h.slices[id] = s
		if s == 0 {
			delete(h.slices, id)
		}
		return nil
	})
}

func gpu() sharing.Device { return sharing.Device{ID: "GPU-a", Mode: sharing.TimeSlicing} }

func TestSwitcherPassesTheSuite(t *testing.T) {
	modestest.Switcher(t, func(t *testing.T) modestest.Host { return newSliced(t) }, gpu())
}

func TestADeviceHasTheSliceWhileItIsInTheMode(t *testing.T) {
	h := newSliced(t)
	s := h.Preparer(-1, false).(modes.Switcher)
	if err := s.Enter(context.Background(), gpu()); err != nil || h.slices["GPU-a"] != 3 {
		t.Errorf("entered: %v, slice %v", err, h.slices["GPU-a"])
	}
	if err := s.Leave(context.Background(), gpu()); err != nil || h.slices["GPU-a"] != 0 {
		t.Errorf("left: %v, slice %v", err, h.slices["GPU-a"])
	}
}

func TestADriverThatRefusesIsForTheAdministrator(t *testing.T) {
	h := newSliced(t)
	h.refuse = fmt.Errorf("no: %w", ErrRefused)
	err := h.Preparer(-1, false).(modes.Switcher).Enter(context.Background(), gpu())
	var manual *modes.Manual
	if !errors.As(err, &manual) || !strings.Contains(err.Error(), "--set-timeslice=3") {
		t.Errorf("the answer is %v", err)
	}
	guest := gpu()
	guest.Virtual = true
	err = h.Preparer(-1, false).(modes.Switcher).Enter(context.Background(), guest)
	if !errors.As(err, &manual) || strings.Contains(manual.Do, "nvidia-smi") || !strings.Contains(manual.Do, "without --time-slice") {
		t.Errorf("the answer for a vGPU is %v", err)
	}
}

func TestSlicesHaveNames(t *testing.T) {
	for i, name := range []string{"default", "short", "medium", "long"} {
		if s, err := ParseSlice(name); err != nil || int(s) != i || s.String() != name {
			t.Errorf("%s is %v, %v", name, s, err)
		}
	}
	if _, err := ParseSlice("Short"); err == nil || !strings.Contains(err.Error(), "default, short, medium, long") {
		t.Errorf("an unknown name is answered with %v", err)
	}
}

func TestNvidiaSMIIsCalledAsPeopleCallIt(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "nvidia-smi")
	script := "#!/bin/sh\necho \"$@\" >> " + dir + "/calls\ncase \"$*\" in *GPU-old*) echo Not Supported; exit 3;; esac\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := (SMI{Path: program}).SetSlice(context.Background(), "GPU-a", 1); err != nil {
		t.Fatal(err)
	}
	err := SMI{Path: program}.SetSlice(context.Background(), "GPU-old", 2)
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "Not Supported") {
		t.Errorf("a device that cannot is answered with %v", err)
	}
	got, _ := os.ReadFile(filepath.Join(dir, "calls"))
	if want := "compute-policy -i GPU-a --set-timeslice=1\ncompute-policy -i GPU-old --set-timeslice=2\n"; string(got) != want {
		t.Errorf("the calls are\n%s", got)
	}
	if err := (SMI{Path: program + ".gone"}).SetSlice(context.Background(), "GPU-a", 1); err == nil || errors.Is(err, ErrRefused) {
		t.Errorf("a missing program is answered with %v", err)
	}
}
