// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// viewRole is what `kubectl deviceshare` needs, a ClusterRole and a Role; topRole is what `top`
// needs beside it, a Role and an account of the same name.
const viewRole, topRole = "deviceshare-view", "deviceshare-top"

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
				for label := range r.Labels {
					if strings.HasPrefix(label, "rbac.authorization.k8s.io/") || r.AggregationRule != nil {
						t.Errorf("%v: it is added to another role: %v", v, r.Labels)
					}
				}
			}
		}
		for _, r := range all[*rbacv1.Role](objects) {
			if r.Name == viewRole && r.Namespace == namespace {
				config = rightsOf(r.Rules)
			}
		}
		const read = "get,list,watch "
		want := []string{
			"get mutatingwebhookconfigurations deviceshare", "get validatingwebhookconfigurations deviceshare",
			read + "nodes", read + "podgroups", read + "pods", read + "priorityclasses", read + "queues", read + "resourcequotas", "list namespaces", "list poddisruptionbudgets",
		}
		if !slices.Equal(cluster, want) {
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

// The Role of `top` gives a way to the pods and a token that reads metrics. A token of another
// account would give what that account may do.
func TestTheRoleOfTopGivesNoTokenButThatOfTheReaderOfMetrics(t *testing.T) {
	objects := decode(t, render(t, values{}))
	var rights []string
	for _, r := range all[*rbacv1.Role](objects) {
		if r.Name == topRole {
			rights = rightsOf(r.Rules)
		}
	}
	if want := []string{"create serviceaccounts/token " + topRole, "get,create pods/portforward"}; !slices.Equal(rights, want) {
		t.Errorf("rights %q, want %q", rights, want)
	}
	var roles []string
	for _, b := range all[*rbacv1.ClusterRoleBinding](objects) {
		for _, s := range b.Subjects {
			if s.Kind == rbacv1.ServiceAccountKind && s.Name == topRole {
				roles = append(roles, b.RoleRef.Name)
			}
		}
	}
	if want := []string{"deviceshare-metrics-reader"}; !slices.Equal(roles, want) {
		t.Errorf("the account has the roles %q, want %q", roles, want)
	}
	for _, b := range all[*rbacv1.RoleBinding](objects) {
		if b.RoleRef.Name == topRole || slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return s.Name == topRole }) {
			t.Errorf("%s gives it to somebody, or the account something", b.Name)
		}
	}
}

// Simulations assume it for captures that do not have the scheduler's configuration.
func TestSimulationsKnowTheConfigurationThatTheChartInstalls(t *testing.T) {
	const name = "deviceshare-scheduler-config"
	objects := decode(t, render(t, nil))
	assumed := read(t, "../plugins/deviceshare/offline/shipped.conf")
	i := slices.IndexFunc(all[*corev1.ConfigMap](objects), func(m *corev1.ConfigMap) bool { return m.Name == name })
	if i < 0 || strings.TrimSpace(all[*corev1.ConfigMap](objects)[i].Data["volcano-scheduler.conf"]) != strings.TrimSpace(assumed) {
		t.Errorf("plugins/deviceshare/offline/shipped.conf is not what the chart installs as %s", name)
	}
	if r := slices.DeleteFunc(all[*rbacv1.Role](objects), func(r *rbacv1.Role) bool { return r.Name != viewRole+"-scheduler" }); len(r) != 1 ||
		!slices.Equal(rightsOf(r[0].Rules), []string{"get configmaps " + name}) {
		t.Errorf("roles to read it: %+v", r)
	}
}
