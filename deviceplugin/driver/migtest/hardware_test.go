// SPDX-License-Identifier: Apache-2.0

package migtest_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/driver/migtest"
	"deviceshare/sharing"
	"deviceshare/sharing/sharingtest"
)

const card = sharing.DeviceID("GPU-1")

func switchedOn(model string) *migtest.Hardware {
	h := migtest.New(migtest.Card{ID: card, MIG: *sharingtest.Models()[model].MIG, Resetless: true})
	h.Switch(card, true)
	return h
}

// layouts finds every set of instances to which none can be added, by trying. The
// variants with media engines and double memory are left out, as in the tables of
// NVIDIA's MIG user guide.
func layouts(t *testing.T, model string) map[string]bool {
	t.Helper()
	type place struct {
		profile string
		start   int
	}
	var places []place
	for _, p := range sharingtest.Models()[model].MIG.Profiles {
		double := p.Compute == 1 && p.Size == 2
		for _, start := range p.Starts {
			if !strings.Contains(p.Name, "+") && !double {
				places = append(places, place{p.Name, start})
			}
		}
	}
	found, seen := map[string]bool{}, map[string]bool{}
	var grow func(h *migtest.Hardware)
	grow = func(h *migtest.Hardware) {
		if seen[h.String()] {
			return
		}
		seen[h.String()] = true
		maximal := true
		for _, p := range places {
			gi, err := h.CreateGPUInstance(card, p.profile, p.start)
			if errors.Is(err, driver.ErrInsufficient) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			maximal = false
			grow(h)
			if err := h.DestroyGPUInstance(card, gi); err != nil {
				t.Fatal(err)
			}
		}
		if maximal {
			found[h.String()] = true
		}
	}
	grow(switchedOn(model))
	return found
}

func TestTheCardsAllowExactlyTheLayoutsOfTheGuide(t *testing.T) {
	for model, want := range map[string]int{"A30": 5, "A100-40": 19, "A100-80": 19, "H100": 19} {
		if got := layouts(t, model); len(got) != want {
			t.Errorf("%s allows %d maximal layouts, want %d", model, len(got), want)
		}
	}
}

func TestTheCardsRefuseWhatHardwareRefuses(t *testing.T) {
	type attempt func(h *migtest.Hardware) error
	create := func(profile string, start int) attempt {
		return func(h *migtest.Hardware) error { _, err := h.CreateGPUInstance(card, profile, start); return err }
	}
	cases := map[string]struct {
		first, then attempt
		want        error
	}{
		"a place that is taken":       {create("2g.20gb", 2), create("1g.10gb", 3), driver.ErrInsufficient},
		"a second of a kind of one":   {create("1g.10gb+me", 0), create("1g.10gb+me", 1), driver.ErrInsufficient},
		"a profile it does not have":  {nil, create("5g.50gb", 0), driver.ErrNotFound},
		"cutting while switched off":  {func(h *migtest.Hardware) error { h.Switch(card, false); return nil }, create("1g.10gb", 0), driver.ErrUnsupported},
		"switching off while cut":     {create("1g.10gb", 0), func(h *migtest.Hardware) error { return h.SetMIGMode(card, false) }, driver.ErrInUse},
		"destroying what is not":      {nil, func(h *migtest.Hardware) error { return h.DestroyGPUInstance(card, 1) }, driver.ErrNotFound},
		"an unknown device":           {nil, func(h *migtest.Hardware) error { return h.SetMIGMode("GPU-2", true) }, driver.ErrUnsupported},
		"destroying what has compute": {whole, func(h *migtest.Hardware) error { return h.DestroyGPUInstance(card, 1) }, driver.ErrInUse},
		"a second compute instance":   {whole, func(h *migtest.Hardware) error { _, err := h.CreateComputeInstance(card, 1); return err }, driver.ErrInsufficient},
		"destroying what is used": {func(h *migtest.Hardware) error { defer h.Use(card, 1, 5); return whole(h) },
			func(h *migtest.Hardware) error { return h.DestroyComputeInstance(card, 1, 0) }, driver.ErrInUse},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := switchedOn("A100-80")
			if tc.first != nil {
				if err := tc.first(h); err != nil {
					t.Fatal(err)
				}
			}
			before := h.String()
			if err := tc.then(h); !errors.Is(err, tc.want) {
				t.Errorf("it answers %v, want %v", err, tc.want)
			}
			if name != "switching off while cut" && h.String() != before {
				t.Errorf("the refusal changed the card to\n%s", h.String())
			}
		})
	}
	if _, err := switchedOn("A100-80").CreateGPUInstance(card, "3g.40gb", 1); err == nil {
		t.Error("a place that is none was cut")
	}
}

// whole makes an instance with its compute instance.
func whole(h *migtest.Hardware) error {
	gi, err := h.CreateGPUInstance(card, "1g.10gb", 0)
	if err == nil {
		_, err = h.CreateComputeInstance(card, gi)
	}
	return err
}

func TestARebootLosesInstancesAndNamesDevicesAnew(t *testing.T) {
	var uuids []string
	h := switchedOn("H100")
	for range 3 {
		if err := h.SetMIGMode(card, true); err != nil {
			t.Fatal(err)
		}
		if err := whole(h); err != nil {
			t.Fatal(err)
		}
		all, err := h.Instances(card)
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		uuid := all[0].Compute[0].UUID
		if slices.Contains(uuids, uuid) {
			t.Errorf("%s is there again", uuid)
		}
		uuids = append(uuids, uuid)
		h.Reboot()
		if got := fmt.Sprint(h); got != "GPU-1 on=false pending=false\n" {
			t.Errorf("after the reboot the card is %s", got)
		}
		if _, _, _, ok := h.Locate(uuid); ok {
			t.Errorf("%s is still there", uuid)
		}
	}
}
