// SPDX-License-Identifier: Apache-2.0

package arguments

import (
	"strings"
	"testing"

	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/sharing/policy"
)

func TestTheLegacyArgumentsAreAccepted(t *testing.T) {
	got, mistakes := Read(framework.Arguments{
		"deviceshare.VGPUEnable": true, "deviceshare.SchedulePolicy": "spread", "deviceshare.ScheduleWeight": 3,
		"deviceshare.KnownGeometriesCMName": "cm", "deviceshare.KnownGeometriesCMNamespace": "ns",
		"deviceshare.NodeLockEnable": true, "deviceshare.GPUSharingEnable": false,
	})
	if len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	if !got.Enabled || got.Policy.Name() != "spread" || got.Weight != 3 || got.ConfigName != "cm" || got.ConfigNamespace != "ns" {
		t.Errorf("%+v", got)
	}
	if len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "NodeLockEnable") {
		t.Errorf("notes %q", got.Notes)
	}
}

func TestWithoutArgumentsThePluginIsOn(t *testing.T) {
	got, mistakes := Read(nil)
	if len(mistakes) > 0 || !got.Enabled || got.Policy.Name() != "fragmentation" || got.Weight != 10 || got.ConfigName != "volcano-vgpu-device-config" {
		t.Errorf("%+v, %v", got, mistakes)
	}
}

func TestEveryMistakeInTheArgumentsIsReportedAtOnceWithWhatItDoes(t *testing.T) {
	_, mistakes := Read(framework.Arguments{
		"deviceshare.VGPUEnable": "maybe", "deviceshare.SchedulePolicy": "best", "deviceshare.ScheduleWeight": -1,
		"deviceshare.GPUSharingEnable": true, "deviceshare.GPUNumberEnable": 7, "deviceshare.SchedulePolcy": "binpack",
		"deviceshare.KnownGeometriesCMName": []any{}, "deviceshare.ModeWeight.mig": 1e7, "deviceshare.ModeWeight.MPS": 1,
		"deviceshare.ModeWeight.mps": -1, "deviceshare.GPUExclusiveRules": []any{map[any]any{"paid": true}, "app=x"},
	})
	want := []struct {
		begin string
		does  Consequence
	}{
		{"deviceshare.GPUExclusiveRules: [0].paid: want a text", LeftOut}, {"deviceshare.GPUExclusiveRules: [1]: want a map", Withholding},
		{"deviceshare.GPUNumberEnable: want true or false", LeftOut}, {"deviceshare.GPUSharingEnable: not served", LeftOut},
		{"deviceshare.KnownGeometriesCMName: want a text", Withholding}, {"deviceshare.ModeWeight.MPS: unknown argument", LeftOut},
		{"deviceshare.ModeWeight.mig: want a number up to 1000000", Defaulted}, {"deviceshare.ModeWeight.mps: want a number from 0 up", Defaulted},
		{"deviceshare.SchedulePolcy: unknown argument", LeftOut},
		{"deviceshare.SchedulePolicy: unknown policy", Defaulted}, {"deviceshare.ScheduleWeight: want a number from 0 up", Defaulted},
		{"deviceshare.VGPUEnable: want true or false", Withholding},
	}
	if len(mistakes) != len(want) {
		t.Fatalf("mistakes %v", mistakes)
	}
	for i := range want {
		if !strings.HasPrefix(mistakes[i].String(), want[i].begin) || mistakes[i].Consequence != want[i].does {
			t.Errorf("mistake %q does %d, want %q, %d", mistakes[i], mistakes[i].Consequence, want[i].begin, want[i].does)
		}
	}
}

// People write values with quotes and without, and charts turn one into the other.
func TestValuesAreAcceptedInEveryFormThatPeopleWrite(t *testing.T) {
	for _, yes := range []any{true, "true", "True", "TRUE", "t", "1", 1, int64(1), 1.0, " true "} {
		for _, no := range []any{false, "false", "F", "0", 0, int64(0), 0.0} {
			got, mistakes := Read(framework.Arguments{"deviceshare.VGPUEnable": yes, "deviceshare.NodeLockEnable": yes, "deviceshare.GPUSharingEnable": no})
			if len(mistakes) > 0 || !got.Enabled || len(got.Notes) != 1 {
				t.Errorf("%v (%T), %v (%T): %+v, %v", yes, yes, no, no, got, mistakes)
			}
			if got, mistakes := Read(framework.Arguments{"deviceshare.VGPUEnable": no}); len(mistakes) > 0 || got.Enabled {
				t.Errorf("%v (%T): %+v, %v", no, no, got, mistakes)
			}
		}
	}
	for _, three := range []any{3, int64(3), 3.0, "3", "3.0", " 3 "} {
		got, mistakes := Read(framework.Arguments{"deviceshare.ScheduleWeight": three, "deviceshare.ModeWeight.mig": three, "deviceshare.KnownGeometriesCMName": 3})
		if len(mistakes) > 0 || got.Weight != 3 || got.ModeWeights["mig"] != 3 || got.ConfigName != "3" {
			t.Errorf("%v (%T): %+v, %v", three, three, got, mistakes)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, key := range []string{argEnabled, argPolicy, argWeight, argConfigName, argNodeLock, argModeWeight + "mig", argModeWeight, argExclusiveRules, "deviceshare.GPUSharingEnable", "other"} {
		f.Add(key, "binpack", int64(3), 0.5, true, uint8(0))
	}
	f.Fuzz(func(t *testing.T, key, text string, n int64, x float64, b bool, kind uint8) {
		values := []any{text, int(n), n, x, b, nil, []any{text}, map[any]any{text: n}, []any{map[any]any{text: b}}, []any{map[any]any{text: text}}}
		got, mistakes := Read(framework.Arguments{key: values[int(kind)%len(values)]})
		usable := worstConsequence(mistakes) < Withholding
		for m, w := range got.ModeWeights {
			if usable && !(w > 0 && w <= policy.MaxWeight) {
				t.Errorf("%q: usable arguments with weight %v of %s", key, w, m)
			}
		}
		if usable && (got.Policy.Name() == "" || !(got.Weight >= 0)) {
			t.Errorf("%q: usable arguments %+v", key, got)
		}
		for _, m := range mistakes {
			if m.Path != key || m.Message == "" {
				t.Errorf("%q: mistake %+v", key, m)
			}
		}
	})
}
