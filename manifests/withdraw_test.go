// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/pod-security-admission/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dpcluster "deviceshare/deviceplugin/cluster"
)

// hooks are the objects that helm creates before it uninstalls.
func hooks(t *testing.T) []client.Object {
	t.Helper()
	out, err := renderIn(t, cluster(t, appsv1.Deployment{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(decode(t, out), func(o client.Object) bool { return o.GetAnnotations()["helm.sh/hook"] != "pre-delete" })
}

func TestAJobClearsTheNodesBeforeTheRolesAreDeleted(t *testing.T) {
	objects := hooks(t)
	jobs := all[*batchv1.Job](objects)
	if len(jobs) != 1 || len(objects) != 6 {
		t.Fatalf("%d jobs among %d hooks", len(jobs), len(objects))
	}
	spec := jobs[0].Spec.Template.Spec
	if got := violations(t, api.LevelRestricted, spec); len(got) > 0 {
		t.Errorf("its pod does not pass Pod Security restricted: %s", strings.Join(got, "; "))
	}
	args, none := spec.Containers[0].Args, ""
	command := dpcluster.WithdrawCommand(&none)
	if err := command.ParseFlags(args[1:]); err != nil || args[0] != command.Name() {
		t.Errorf("the program does not take %q: %v", args, err)
	}
	if namespace := command.Flag("namespace").Value.String(); namespace != "deviceshare-system" {
		t.Errorf("it looks for device plugins in namespace %s", namespace)
	}
	daemonSets(t, command.Flag("daemonset").Value.String())
	if patience, limit := command.Flag("patience").Value.String(), *jobs[0].Spec.ActiveDeadlineSeconds; patience != "1m0s" || limit >= 300 {
		t.Errorf("patience %s, deadline %d s; helm waits 300 s", patience, limit)
	}
}

func TestTheJobsAccountMayDoThatAndNoMore(t *testing.T) {
	objects := hooks(t)
	var got []string
	collect := func(rules []rbacv1.PolicyRule) {
		for _, r := range rules {
			for _, verb := range r.Verbs {
				got = append(got, verb+" "+strings.Join(r.Resources, ",")+strings.Join(append([]string{""}, r.ResourceNames...), " "))
			}
		}
	}
	for _, r := range all[*rbacv1.ClusterRole](objects) {
		collect(r.Rules)
	}
	for _, r := range all[*rbacv1.Role](objects) {
		collect(r.Rules)
	}
	slices.Sort(got)
	maps := " configmaps volcano-vgpu-device-config volcano-vgpu-node-config"
	want := []string{"delete daemonsets deviceshare-device-plugin", "get" + maps, "list" + maps, "list nodes", "list pods",
		"patch nodes", "patch nodes/status", "watch" + maps}
	if !slices.Equal(got, want) {
		t.Errorf("rights %q, want %q", got, want)
	}
	for _, a := range all[*corev1.ServiceAccount](objects) {
		if a.Annotations["helm.sh/hook-weight"] != "-1" || !strings.Contains(a.Annotations["helm.sh/hook-delete-policy"], "hook-succeeded") {
			t.Errorf("account %s is not there before the Job, or stays: %v", a.Name, a.Annotations)
		}
	}
}

// kubectl knows no hooks: it would run the Job when it installs.
func TestThePlainFileHasNoHook(t *testing.T) {
	if strings.Contains(read(t, installFile), "helm.sh/hook") {
		t.Error("kubectl apply of the plain file would end the device plugins at once")
	}
}
