// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/pod-security-admission/api"
)

// restrictedBreaks says what OpenShift's SecurityContextConstraint restricted-v2 would refuse of a
// pod: users that are not of the namespace's range, which nobody knows beforehand, and volumes. The
// rest of it is Pod Security restricted.
func restrictedBreaks(t *testing.T, spec corev1.PodSpec) []string {
	t.Helper()
	out := violations(t, api.LevelRestricted, spec)
	if c := spec.SecurityContext; c != nil && (c.RunAsUser != nil || c.RunAsGroup != nil || c.FSGroup != nil || len(c.SupplementalGroups) > 0) {
		out = append(out, "the pod names its user or groups")
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		if s := c.SecurityContext; s != nil && (s.RunAsUser != nil || s.RunAsGroup != nil) {
			out = append(out, c.Name+" names its user or group")
		}
	}
	for _, v := range spec.Volumes {
		if v.ConfigMap == nil && v.Secret == nil && v.EmptyDir == nil && v.Projected == nil && v.DownwardAPI == nil {
			out = append(out, "volume "+v.Name)
		}
	}
	return out
}

func TestOnOpenShiftOnlyTheNodesPartsNeedThePrivilegedConstraint(t *testing.T) {
	out, err := runHelm(t, values{"openshift.enabled": true, "view.page.enabled": true}, "template", "deviceshare", "chart", "--namespace=elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	objects := decode(t, out)
	var privileged []string
	for _, b := range all[*rbacv1.RoleBinding](objects) {
		if strings.HasPrefix(b.RoleRef.Name, "system:openshift:scc:") {
			for _, s := range b.Subjects {
				privileged = append(privileged, s.Namespace+"/"+s.Name)
			}
		}
	}
	if want := []string{"elsewhere/deviceshare-device-plugin", "elsewhere/deviceshare-keeper"}; !slices.Equal(privileged, want) {
		t.Errorf("the privileged constraint is for %q, want %q", privileged, want)
	}
	others := 0
	for name, spec := range pods(objects) {
		if slices.Contains(privileged, "elsewhere/"+spec.ServiceAccountName) {
			if spec.ServiceAccountName != name {
				t.Errorf("%s has the account of another one", name)
			}
			continue
		}
		if others++; len(restrictedBreaks(t, spec)) > 0 {
			t.Errorf("%s: %s", name, strings.Join(restrictedBreaks(t, spec), "; "))
		}
	}
	if others < 4 {
		t.Errorf("only %d pods beside those of nodes", others)
	}
	for name, spec := range pods(decode(t, read(t, installFile))) {
		if len(restrictedBreaks(t, spec)) == 0 || spec.ServiceAccountName == "deviceshare-keeper" {
			t.Errorf("without the value, %s is the same", name)
		}
	}
}
