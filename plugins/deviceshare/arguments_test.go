// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"strings"
	"testing"

	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/sharing/policy"
)

func TestTheLegacyArgumentsAreAccepted(t *testing.T) {
	got, mistakes := ReadArguments(framework.Arguments{
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
	got, mistakes := ReadArguments(nil)
	if len(mistakes) > 0 || !got.Enabled || got.Policy.Name() != "fragmentation" || got.Weight != 10 || got.ConfigName != "volcano-vgpu-device-config" {
		t.Errorf("%+v, %v", got, mistakes)
	}
}

func TestEveryMistakeInTheArgumentsIsReportedAtOnce(t *testing.T) {
	_, mistakes := ReadArguments(framework.Arguments{
		"deviceshare.VGPUEnable": "yes", "deviceshare.SchedulePolicy": "best", "deviceshare.ScheduleWeight": -1,
		"deviceshare.GPUSharingEnable": true, "deviceshare.GPUNumberEnable": 1, "deviceshare.SchedulePolcy": "binpack",
		"deviceshare.KnownGeometriesCMName": 7, "deviceshare.ModeWeight.mig": 1e7, "deviceshare.ModeWeight.MPS": 1,
		"deviceshare.ModeWeight.mps": -1,
	})
	want := []string{
		"deviceshare.GPUNumberEnable: want a bool", "deviceshare.GPUSharingEnable: not served",
		"deviceshare.KnownGeometriesCMName: want a string", "deviceshare.ModeWeight.MPS: unknown argument",
		"deviceshare.ModeWeight.mig: want a number up to 1000000", "deviceshare.ModeWeight.mps: want a number from 0 up",
		"deviceshare.SchedulePolcy: unknown argument",
		"deviceshare.SchedulePolicy: unknown policy", "deviceshare.ScheduleWeight: want a number from 0 up",
		"deviceshare.VGPUEnable: want a bool",
	}
	if len(mistakes) != len(want) {
		t.Fatalf("mistakes %v", mistakes)
	}
	for i := range want {
		if !strings.HasPrefix(mistakes[i].String(), want[i]) {
			t.Errorf("mistake %q, want %q", mistakes[i], want[i])
		}
	}
}

func TestMistakesKeepTheLastGoodArgumentsAndRefuseDevicesIfThereAreNone(t *testing.T) {
	n1 := infoOf(nodeOf(t, devices("n1", 1, 10000)), nil)
	bad := framework.Arguments{"deviceshare.ScheduleWeight": "heavy"}
	for name, c := range map[string]struct {
		before framework.Arguments
		first  bool
		fits   bool
	}{
		"there were good ones": {before: framework.Arguments{"deviceshare.ScheduleWeight": 5}, fits: true},
		"there were none":      {first: true},
	} {
		t.Run(name, func(t *testing.T) {
			ssn, _ := sessionOf(n1)
			s := NewStore(Options{Report: &reportRecorder{}, Backends: bare(t, n1).store.backends})
			s.pods = noPods{}
			if !c.first {
				s.Build(c.before).(*Plugin).prepare(ssn)
			}
			p := s.Build(bad).(*Plugin)
			if !p.prepare(ssn) {
				t.Fatal("mistakes turn the plugin off: devices would be given unseen")
			}
			if err := try(p, n1); (err == nil) != c.fits {
				t.Errorf("predicate says %v", err)
			}
			if c.fits && p.args.Weight != 5 {
				t.Errorf("weight %v", p.args.Weight)
			}
		})
	}
}

func TestThePluginCanBeTurnedOff(t *testing.T) {
	n1 := infoOf(nodeOf(t, devices("n1", 1, 10000)), nil)
	p := bare(t, n1).store.Build(framework.Arguments{"deviceshare.VGPUEnable": false}).(*Plugin)
	ssn, _ := sessionOf(n1)
	if p.prepare(ssn) {
		t.Error("it takes part in the session")
	}
	p.OnSessionClose(ssn)
}

func FuzzReadArguments(f *testing.F) {
	for _, key := range []string{argEnabled, argPolicy, argWeight, argConfigName, argNodeLock, argModeWeight + "mig", argModeWeight, "deviceshare.GPUSharingEnable", "other"} {
		f.Add(key, "binpack", int64(3), 0.5, true, uint8(0))
	}
	f.Fuzz(func(t *testing.T, key, text string, n int64, x float64, b bool, kind uint8) {
		values := []any{text, int(n), n, x, b, nil, []any{text}, map[any]any{text: n}}
		got, mistakes := ReadArguments(framework.Arguments{key: values[int(kind)%len(values)]})
		for m, w := range got.ModeWeights {
			if len(mistakes) == 0 && !(w > 0 && w <= policy.MaxWeight) {
				t.Errorf("%q: usable arguments with weight %v of %s", key, w, m)
			}
		}
		if len(mistakes) == 0 && (got.Policy == nil || !(got.Weight >= 0)) {
			t.Errorf("%q: usable arguments %+v", key, got)
		}
		for _, m := range mistakes {
			if m.Path != key || m.Message == "" {
				t.Errorf("%q: mistake %+v", key, m)
			}
		}
	})
}
