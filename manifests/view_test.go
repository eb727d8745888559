// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// viewRole is what `kubectl deviceshare` needs, a ClusterRole and a Role.
const viewRole = "deviceshare-view"

func rightsOf(rules []rbacv1.PolicyRule) []string {
	var out []string
	for _, r := range rules {
		for _, resource := range r.Resources {
			out = append(out, strings.Join(r.Verbs, ",")+" "+strings.Join(append([]string{resource}, r.ResourceNames...), " "))
		}
	}
	slices.Sort(out)
	return out
}

func TestTheViewsRoleGivesWhatTheViewsReadAndNothingElse(t *testing.T) {
	for _, v := range []values{{}, {"configNamespace": "volcano-system"}, {"scheduler.enabled": false, "createConfig": false}} {
		namespace := "kube-system"
		if n, ok := v["configNamespace"].(string); ok {
			namespace = n
		}
		objects := decode(t, render(t, v))
		var cluster, config []string
		for _, r := range all[*rbacv1.ClusterRole](objects) {
			if r.Name == viewRole {
				cluster = rightsOf(r.Rules)
				if len(r.Labels) > 0 || r.AggregationRule != nil {
					t.Errorf("%v: it is added to another role: %v", v, r.Labels)
				}
			}
		}
		for _, r := range all[*rbacv1.Role](objects) {
			if r.Name == viewRole && r.Namespace == namespace {
				config = rightsOf(r.Rules)
			}
		}
		const read = "get,list,watch "
		if want := []string{read + "nodes", read + "podgroups", read + "pods", read + "queues"}; !slices.Equal(cluster, want) {
			t.Errorf("%v: rights %q, want %q", v, cluster, want)
		}
		if want := []string{"get configmaps volcano-vgpu-device-config"}; !slices.Equal(config, want) {
			t.Errorf("%v: rights in %s %q, want %q", v, namespace, config, want)
		}
		for _, b := range all[*rbacv1.ClusterRoleBinding](objects) {
			if b.RoleRef.Name == viewRole {
				t.Errorf("%v: %s gives it to somebody", v, b.Name)
			}
		}
		for _, b := range all[*rbacv1.RoleBinding](objects) {
			if b.RoleRef.Name == viewRole {
				t.Errorf("%v: %s gives it to somebody", v, b.Name)
			}
		}
	}
}
