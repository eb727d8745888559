// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"testing"

	"deviceshare/sharing/upgrade"
)

func TestTheStateOfTheOperatorSaysWhatBecomesOfPods(t *testing.T) {
	for state, want := range map[string]upgrade.Phase{
		"":                          upgrade.None,
		"upgrade-required":          upgrade.Planned,
		"cordon-required":           upgrade.Closed,
		"wait-for-jobs-required":    upgrade.Closed,
		"node-maintenance-required": upgrade.Closed,
		"pod-deletion-required":     upgrade.Emptying,
		"drain-required":            upgrade.Emptying,
		"post-maintenance-required": upgrade.Closed,
		"pod-restart-required":      upgrade.Emptying,
		"validation-required":       upgrade.Closed,
		"uncordon-required":         upgrade.Closed,
		"upgrade-done":              upgrade.None,
		"upgrade-failed":            upgrade.None,
		"of a later version":        upgrade.None,
		"Drain-Required":            upgrade.None,
	} {
		got := upgrade.PhaseOf(map[string]string{"nvidia.com/gpu-driver-upgrade-state": state, "nvidia.com/gpu.present": "true"})
		if got != want {
			t.Errorf("state %q is phase %d, want %d", state, got, want)
		}
		if takes := want == upgrade.None || want == upgrade.Planned; got.TakesPods() != takes {
			t.Errorf("in state %q pods start: %t", state, got.TakesPods())
		}
	}
	if got := upgrade.PhaseOf(nil); got != upgrade.None {
		t.Errorf("a node without labels is in phase %d", got)
	}
}
