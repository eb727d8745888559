// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"strings"
	"testing"

	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
)

func TestAPodWhoseContainersCouldNotUseDevicesDoesNotBegin(t *testing.T) {
	rules := podspec.IsolationRules{RuntimeClasses: []string{"nvidia"}}
	for name, c := range map[string]struct {
		pod   podspec.Isolation
		begun bool
		field string // that the refusal names; empty if the container starts
	}{
		"an ordinary pod":                           {},
		"a known RuntimeClass":                      {pod: podspec.Isolation{RuntimeClass: "nvidia"}},
		"virtual machines":                          {pod: podspec.Isolation{RuntimeClass: "kata"}, field: "spec.runtimeClassName"},
		"users of its own":                          {pod: podspec.Isolation{UserNamespace: true}, field: "spec.hostUsers"},
		"a pod that has begun under other rules":    {pod: podspec.Isolation{RuntimeClass: "kata"}, begun: true},
		"a pod in a user namespace, that has begun": {pod: podspec.Isolation{UserNamespace: true}, begun: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := node.New(node.Config{Node: "n1", Isolation: rules})
			s = reduce(t, s, node.Configured{Settings: node.Settings{Offers: modes{byDefault: sharing.HAMiCore}}})
			s = reduce(t, s, node.Scanned{Devices: []node.Facts{card("GPU-0", 0, "T4", "1")}})
			shares := []sharing.Share{{Device: "GPU-0", Mode: sharing.HAMiCore, Memory: sharing.GiB}}
			p := sharing.Placement{Node: "n1", Containers: []sharing.ContainerShares{{Container: "main", Shares: shares}}}
			ask := node.Ask{Owner: "pod", Container: "main", Slots: 1, Placement: p, Isolation: c.pod}
			_, no := node.Admit(s, ask, c.begun, nil)
			switch {
			case c.field == "" && no != nil:
				t.Errorf("it is refused: %s", no.Detail)
			case c.field != "" && (no == nil || no.Reason != node.PodUnfit || no.IsFinal() || !strings.Contains(no.Detail, c.field)):
				t.Errorf("it is told %+v, want %s: to place it anew would change nothing", no, c.field)
			}
		})
	}
}
