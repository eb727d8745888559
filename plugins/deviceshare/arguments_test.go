// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"testing"

	"volcano.sh/volcano/pkg/scheduler/framework"
)

// Arguments that tests change.
const argEnabled, argPolicy, argModeWeight = "deviceshare.VGPUEnable", "deviceshare.SchedulePolicy", "deviceshare.ModeWeight."

// No argument stops the pods with devices of a cluster unless nobody can tell what it means for
// them.
func TestOnlyMistakesThatNobodyMayGuessKeepPodsWaiting(t *testing.T) {
	n1 := infoOf(nodeOf(t, devices("n1", 1, 10000)), nil)
	for text, c := range map[string]struct {
		arguments framework.Arguments
		fits      bool
	}{
		"unknown":             {framework.Arguments{"deviceshare.FromALaterVolcano": []any{"x"}}, true},
		"another device":      {framework.Arguments{"deviceshare.AscendHAMiVNPUEnable": "true", "deviceshare.GPUSharingEnable": true}, true},
		"unknown policy":      {framework.Arguments{"deviceshare.SchedulePolicy": "best"}, true},
		"a weight in words":   {framework.Arguments{"deviceshare.ScheduleWeight": "heavy"}, true},
		"rules":               {framework.Arguments{"deviceshare.GPUExclusiveRules": []any{map[any]any{"app": "llm"}}}, true},
		"an empty rule":       {framework.Arguments{"deviceshare.GPUExclusiveRules": []any{map[any]any{}}}, true},
		"no rules":            {framework.Arguments{"deviceshare.GPUExclusiveRules": nil}, true},
		"rules nobody reads":  {framework.Arguments{"deviceshare.GPUExclusiveRules": "app=llm"}, false},
		"on or off, unclear":  {framework.Arguments{"deviceshare.VGPUEnable": "maybe"}, false},
		"settings from where": {framework.Arguments{"deviceshare.KnownGeometriesCMName": []any{}}, false},
	} {
		t.Run(text, func(t *testing.T) {
			ssn, _ := sessionOf(n1)
			s := NewStore(Options{Report: &reportRecorder{}, Backends: bare(t, n1).store.backends})
			s.objects = noObjects{}
			p := s.Build(c.arguments).(*Plugin)
			if !p.joinSession(ssn) {
				t.Fatal("the plugin is off: devices would be given unseen")
			}
			if err := try(p, n1); (err == nil) != c.fits {
				t.Errorf("predicate says %v", err)
			}
		})
	}
}

func TestAValueThatCannotBeUsedKeepsTheLastGoodArguments(t *testing.T) {
	n1 := infoOf(nodeOf(t, devices("n1", 1, 10000)), nil)
	for _, bad := range []framework.Arguments{{"deviceshare.ScheduleWeight": "heavy"}, {"deviceshare.VGPUEnable": "maybe"}} {
		ssn, _ := sessionOf(n1)
		s := NewStore(Options{Report: &reportRecorder{}, Backends: bare(t, n1).store.backends})
		s.objects = noObjects{}
		s.Build(framework.Arguments{"deviceshare.ScheduleWeight": 5}).(*Plugin).joinSession(ssn)
		p := s.Build(bad).(*Plugin)
		if !p.joinSession(ssn) || try(p, n1) != nil || p.args.Weight != 5 {
			t.Errorf("%v: %+v", bad, p.args)
		}
	}
}

func TestThePluginCanBeTurnedOff(t *testing.T) {
	n1 := infoOf(nodeOf(t, devices("n1", 1, 10000)), nil)
	p := bare(t, n1).store.Build(framework.Arguments{"deviceshare.VGPUEnable": false}).(*Plugin)
	ssn, _ := sessionOf(n1)
	if p.joinSession(ssn) {
		t.Error("it takes part in the session")
	}
	p.OnSessionClose(ssn)
}
