// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/pod-security-admission/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const pageName = "deviceshare-view"

func TestThePageIsThereOnlyWhereItIsAskedFor(t *testing.T) {
	objects := decode(t, render(t, values{}))
	if _, there := pods(objects)[pageName]; there {
		t.Error("its pod is there")
	}
	for _, a := range all[*corev1.ServiceAccount](objects) {
		if a.Name == pageName {
			t.Errorf("%s is there", id(a))
		}
	}
	if rights := rightsOfAccount(objects, pageName); len(rights) > 0 {
		t.Errorf("an account that is not there has %q", rights)
	}
}

// rightsOfAccount are what the bindings give to an account, each as the binding's kind with the
// role.
func rightsOfAccount(objects []client.Object, account string) []string {
	var out []string
	is := func(s rbacv1.Subject) bool { return s.Kind == rbacv1.ServiceAccountKind && s.Name == account }
	for _, b := range all[*rbacv1.ClusterRoleBinding](objects) {
		if slices.ContainsFunc(b.Subjects, is) {
			out = append(out, "everywhere "+b.RoleRef.Kind+" "+b.RoleRef.Name)
		}
	}
	for _, b := range all[*rbacv1.RoleBinding](objects) {
		if slices.ContainsFunc(b.Subjects, is) {
			out = append(out, "in "+b.Namespace+" "+b.RoleRef.Kind+" "+b.RoleRef.Name)
		}
	}
	slices.Sort(out)
	return out
}

func TestThePageMayReadWhatTheViewsReadAndAskWhoReadsIt(t *testing.T) {
	for _, namespace := range []string{"kube-system", "volcano-system"} {
		objects := decode(t, render(t, values{"view.page.enabled": true, "configNamespace": namespace}))
		want := []string{"everywhere ClusterRole " + viewRole, "everywhere ClusterRole deviceshare-view-page", "in " + namespace + " Role " + viewRole}
		if got := rightsOfAccount(objects, pageName); !slices.Equal(got, want) {
			t.Errorf("its account has %q, want %q", got, want)
		}
		for _, r := range all[*rbacv1.ClusterRole](objects) {
			if r.Name == "deviceshare-view-page" && (len(r.Rules) != 2 || countReviews(r.Rules) != 2) {
				t.Errorf("%s gives %+v", r.Name, r.Rules)
			}
		}
	}
}

func TestThePageIsAnOrdinaryPodThatNothingLeadsTo(t *testing.T) {
	objects := decode(t, render(t, values{"view.page.enabled": true}))
	spec, there := pods(objects)[pageName]
	if !there {
		t.Fatal("there is no page")
	}
	if got := violations(t, api.LevelRestricted, spec); len(got) > 0 {
		t.Error(strings.Join(got, "; "))
	}
	c := spec.Containers[0]
	if ro := c.SecurityContext.ReadOnlyRootFilesystem; ro == nil || !*ro {
		t.Error("it may write to its image")
	}
	for name, p := range map[string]*corev1.Probe{"liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
		if p == nil || p.HTTPGet == nil || p.HTTPGet.Scheme != corev1.URISchemeHTTPS {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if _, asked := c.Resources.Requests[corev1.ResourceMemory]; !asked {
		t.Error("it asks for no memory")
	}
	for _, d := range all[*appsv1.Deployment](objects) {
		if d.Name == pageName && *d.Spec.Replicas != 1 {
			t.Errorf("%d replicas tell as many last hours", *d.Spec.Replicas)
		}
	}
	for _, s := range all[*corev1.Service](objects) {
		if s.Spec.Selector["app.kubernetes.io/name"] == pageName {
			t.Errorf("Service %s leads to it", s.Name)
		}
	}
}
