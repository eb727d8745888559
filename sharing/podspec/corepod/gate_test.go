// SPDX-License-Identifier: Apache-2.0

package corepod_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/sharing/podspec/corepod"
)

func TestWhoHasToRemoveAGate(t *testing.T) {
	for name, c := range map[string]struct {
		gates         []string
		gate, remover string
	}{
		"no gate":                         {nil, "", ""},
		"somebody's":                      {[]string{"example.com/wait"}, "example.com/wait", "whoever set it has to remove it"},
		"that of Volcano 1.15":            {[]string{corepod.QueueGate}, corepod.QueueGate, "only the scheduler of Volcano 1.15"},
		"that of Volcano 1.15 and others": {[]string{"example.com/wait", corepod.QueueGate}, corepod.QueueGate, "without the annotation " + corepod.QueueGate},
	} {
		t.Run(name, func(t *testing.T) {
			var p corev1.Pod
			for _, g := range c.gates {
				p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: g})
			}
			gate, remover := corepod.Gate(&p)
			if gate != c.gate || !strings.Contains(remover, c.remover) || (remover == "") != (c.remover == "") {
				t.Errorf("got %q, %q", gate, remover)
			}
		})
	}
}
