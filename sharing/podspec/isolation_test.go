// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"strings"
	"testing"

	"deviceshare/sharing/podspec"
)

func TestOnlyPodsOfKnownIsolationHaveDevices(t *testing.T) {
	usual := []string{"nvidia", "nvidia-cdi"}
	for name, c := range map[string]struct {
		rules podspec.IsolationRules
		pod   podspec.Isolation
		want  []string // words of the refusal; nil if there is none
	}{
		"an ordinary pod":                        {},
		"a RuntimeClass that is known":           {podspec.IsolationRules{RuntimeClasses: usual}, podspec.Isolation{RuntimeClass: "nvidia-cdi"}, nil},
		"one that is not":                        {podspec.IsolationRules{RuntimeClasses: usual}, podspec.Isolation{RuntimeClass: "kata"}, []string{"spec.runtimeClassName", "kata", "known are nvidia, nvidia-cdi", "pods.runtimeClasses"}},
		"one, where none is known":               {podspec.IsolationRules{}, podspec.Isolation{RuntimeClass: "nvidia"}, []string{"spec.runtimeClassName", "none is known"}},
		"a part of a known name":                 {podspec.IsolationRules{RuntimeClasses: usual}, podspec.Isolation{RuntimeClass: "nvid"}, []string{"spec.runtimeClassName"}},
		"any RuntimeClass is accepted":           {podspec.IsolationRules{RuntimeClasses: []string{"*"}}, podspec.Isolation{RuntimeClass: "kata"}, nil},
		"a user namespace":                       {podspec.IsolationRules{RuntimeClasses: []string{"*"}}, podspec.Isolation{UserNamespace: true}, []string{"spec.hostUsers", "pods.userNamespaces"}},
		"a user namespace is accepted":           {podspec.IsolationRules{UserNamespaces: true}, podspec.Isolation{UserNamespace: true}, nil},
		"accepted namespace, unknown class":      {podspec.IsolationRules{UserNamespaces: true}, podspec.Isolation{UserNamespace: true, RuntimeClass: "kata"}, []string{"spec.runtimeClassName"}},
		"known class, namespace is not accepted": {podspec.IsolationRules{RuntimeClasses: usual}, podspec.Isolation{UserNamespace: true, RuntimeClass: "nvidia"}, []string{"spec.hostUsers"}},
	} {
		t.Run(name, func(t *testing.T) {
			why, is := c.rules.Refusal(c.pod)
			if is != (c.want != nil) || is == (why == "") {
				t.Fatalf("refused: %t, %q", is, why)
			}
			for _, word := range c.want {
				if !strings.Contains(why, word) {
					t.Errorf("%q does not say %q", why, word)
				}
			}
		})
	}
}
