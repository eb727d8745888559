// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
	batchvolcano "volcano.sh/apis/pkg/apis/batch/v1alpha1"
	schedulingvolcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/config"
	"deviceshare/view/forward"
)

// decode reads every object of a text as its API type. An unknown or doubled
// field is an error. What the Prometheus operator and cert-manager define has no type here.
func decode(t *testing.T, text string) []client.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, batchvolcano.AddToScheme, schedulingvolcano.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var out []client.Object
	for i, document := range strings.Split("\n"+text, "\n---") {
		if onlyComments(document) {
			continue
		}
		o, _, err := decoder.Decode([]byte(document), nil, nil)
		isOthers := strings.Contains(document, "apiVersion: monitoring.coreos.com/v1\n") || strings.Contains(document, "apiVersion: cert-manager.io/v1\n")
		if runtime.IsNotRegisteredError(err) && isOthers {
			o, _, err = unstructured.UnstructuredJSONScheme.Decode(asJSON(t, document), nil, nil)
		}
		if err != nil {
			t.Fatalf("document %d: %v\n%s", i, err, document)
		}
		out = append(out, o.(client.Object))
	}
	return out
}

func asJSON(t *testing.T, document string) []byte {
	t.Helper()
	out, err := yaml.YAMLToJSONStrict([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func onlyComments(document string) bool {
	for line := range strings.Lines(document) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return false
		}
	}
	return true
}

func id(o client.Object) string {
	return fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName())
}

// all returns the objects of one type.
func all[T client.Object](objects []client.Object) []T {
	var out []T
	for _, o := range objects {
		if v, ok := o.(T); ok {
			out = append(out, v)
		}
	}
	return out
}

// daemonSets are those of a name in the plain file.
func daemonSets(t *testing.T, name string) []*appsv1.DaemonSet {
	t.Helper()
	sets := slices.DeleteFunc(all[*appsv1.DaemonSet](decode(t, read(t, installFile))), func(d *appsv1.DaemonSet) bool { return d.Name != name })
	if len(sets) != 1 {
		t.Fatalf("%d DaemonSets are called %s", len(sets), name)
	}
	return sets
}

func TestNoObjectIsThereTwice(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range decode(t, read(t, installFile)) {
		if seen[id(o)] {
			t.Errorf("%s is there twice", id(o))
		}
		seen[id(o)] = true
	}
}

// pods returns the pod templates by the name of their workload.
func pods(objects []client.Object) map[string]corev1.PodSpec {
	out := map[string]corev1.PodSpec{}
	for _, d := range all[*appsv1.Deployment](objects) {
		out[d.Name] = d.Spec.Template.Spec
	}
	for _, d := range all[*appsv1.DaemonSet](objects) {
		out[d.Name] = d.Spec.Template.Spec
	}
	for _, j := range all[*batchv1.Job](objects) {
		out[j.Name] = j.Spec.Template.Spec
	}
	for _, j := range all[*batchv1.CronJob](objects) {
		out[j.Name+" (CronJob)"] = j.Spec.JobTemplate.Spec.Template.Spec
	}
	return out
}

func TestImagesHaveNoRegistryUnlessOneIsGiven(t *testing.T) {
	want := []string{"deviceshare/device-plugin:v0.1.0", "deviceshare/scheduler:v0.1.0", "deviceshare/webhook:v0.1.0"}
	for registry, prefix := range map[string]string{"": "", "registry.example.com/": "registry.example.com/"} {
		var got []string
		for _, spec := range pods(decode(t, render(t, values{"image.registry": registry}))) {
			for _, c := range append(spec.InitContainers, spec.Containers...) {
				got = append(got, strings.TrimPrefix(c.Image, prefix))
			}
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("images %q, want %q", got, want)
		}
	}
}

func TestEveryWorkloadHasItsAccountAndEveryAccountItsRole(t *testing.T) {
	objects := decode(t, read(t, installFile))
	accounts, roles, bound, used := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, a := range all[*corev1.ServiceAccount](objects) {
		accounts[a.Name] = true
	}
	for _, r := range all[*rbacv1.ClusterRole](objects) {
		roles["ClusterRole "+r.Name] = true
	}
	for _, r := range all[*rbacv1.Role](objects) {
		roles["Role "+r.Name] = true
	}
	check := func(ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		if !roles[ref.Kind+" "+ref.Name] {
			t.Errorf("a binding refers to %s %s, which is not there", ref.Kind, ref.Name)
		}
		delete(roles, ref.Kind+" "+ref.Name)
		for _, s := range subjects {
			if s.Namespace != "deviceshare-system" {
				t.Errorf("subject %s is in namespace %q", s.Name, s.Namespace)
			}
			bound[s.Name] = true
		}
	}
	for _, b := range all[*rbacv1.ClusterRoleBinding](objects) {
		check(b.RoleRef, b.Subjects)
	}
	for _, b := range all[*rbacv1.RoleBinding](objects) {
		check(b.RoleRef, b.Subjects)
	}
	for name, spec := range pods(objects) {
		if spec.AutomountServiceAccountToken != nil && !*spec.AutomountServiceAccountToken && spec.ServiceAccountName == "" {
			continue // it does not talk to the API server
		}
		if !accounts[spec.ServiceAccountName] || !bound[spec.ServiceAccountName] {
			t.Errorf("%s runs as %q, which is not there or has no role", name, spec.ServiceAccountName)
		}
		used[spec.ServiceAccountName] = true
	}
	maps.DeleteFunc(accounts, func(name string, _ bool) bool { return used[name] })
	for _, role := range []string{"ClusterRole " + readerRole, "ClusterRole " + viewRole, "Role " + viewRole, "Role " + viewRole + "-scheduler", "Role " + forward.Role} {
		delete(roles, role) // for administrators to bind
	}
	delete(accounts, forward.Account) // whose token people ask for
	if len(accounts) > 0 || len(roles) > 0 {
		t.Errorf("accounts %v and roles %v are used by nobody", accounts, roles)
	}
}

func TestNoRoleTakesEverything(t *testing.T) {
	for _, r := range all[*rbacv1.ClusterRole](decode(t, read(t, installFile))) {
		for _, rule := range r.Rules {
			if slices.Contains(rule.Verbs, "*") || slices.Contains(rule.Resources, "*") || slices.Contains(rule.APIGroups, "*") {
				t.Errorf("%s has a rule with a star: %+v", r.Name, rule)
			}
			if slices.Contains(rule.Resources, "secrets") {
				t.Errorf("%s reads Secrets of the whole cluster", r.Name)
			}
		}
	}
}

func TestEveryMountHasItsVolume(t *testing.T) {
	for name, spec := range pods(decode(t, render(t, values{"devicePlugin.driverRoot": "/run/nvidia/driver"}))) {
		volumes := map[string]bool{}
		for _, v := range spec.Volumes {
			volumes[v.Name] = true
		}
		for _, c := range append(spec.InitContainers, spec.Containers...) {
			for _, m := range c.VolumeMounts {
				if !volumes[m.Name] {
					t.Errorf("%s: container %s mounts %s, which is not there", name, c.Name, m.Name)
				}
			}
		}
	}
}

// A host's /usr may be read-only. What lies there of the host is the driver's, and is only read.
func TestNothingOfTheProductIsWrittenBelowUsr(t *testing.T) {
	writable := 0
	for name, spec := range pods(decode(t, read(t, installFile))) {
		host := map[string]string{}
		for _, v := range spec.Volumes {
			if v.HostPath != nil {
				host[v.Name] = v.HostPath.Path
			}
		}
		for _, c := range append(spec.InitContainers, spec.Containers...) {
			for _, m := range c.VolumeMounts {
				path := host[m.Name]
				if path == "" || m.ReadOnly {
					continue
				}
				writable++
				if path == "/" || path == "/usr" || strings.HasPrefix(path, "/usr/") {
					t.Errorf("%s: container %s may write %s of the host", name, c.Name, path)
				}
			}
		}
	}
	if writable < 5 {
		t.Errorf("%d mounts of the host are writable: the rule would guard nothing", writable)
	}
}

// A mount that the device plugin makes must reach the container runtime.
func TestTheHostSeesWhatTheDevicePluginMounts(t *testing.T) {
	spec := pods(decode(t, render(t, values{"devicePlugin.stateDir": "/a", "devicePlugin.mpsDir": "/b"})))["deviceshare-device-plugin"]
	both := map[string]bool{}
	for _, m := range spec.Containers[0].VolumeMounts {
		if m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationBidirectional {
			both[m.MountPath] = true
		}
	}
	if len(both) != 2 || !both["/a"] || !both["/b"] {
		t.Errorf("mounts in %v reach the host, want those in /a and /b", both)
	}
}

// With a directory of the host in them the host's C library would come into the image's programs,
// beside the image's loader: glibc ends such a program at its start.
func TestNoLibraryOfTheHostGetsIntoTheImagesPrograms(t *testing.T) {
	for name, pod := range pods(decode(t, read(t, installFile))) {
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			for _, e := range c.Env {
				if strings.HasPrefix(e.Name, "LD_") {
					t.Errorf("%s/%s has %s=%s", name, c.Name, e.Name, e.Value)
				}
			}
		}
	}
}

func TestTheDevicePluginIsNeverThereTwice(t *testing.T) {
	for _, d := range daemonSets(t, "deviceshare-device-plugin") {
		if surge := d.Spec.UpdateStrategy.RollingUpdate.MaxSurge; surge == nil || surge.IntValue() != 0 {
			t.Errorf("%s: maxSurge %v, want 0", d.Name, surge)
		}
	}
}

func TestTheConfigMapsHoldTheDefaults(t *testing.T) {
	for _, m := range all[*corev1.ConfigMap](decode(t, read(t, installFile))) {
		switch m.Name {
		case config.DeviceName:
			if got, want := m.Data[config.DeviceKey], read(t, "../config/default.yaml"); strings.TrimSpace(got) != strings.TrimSpace(want) {
				t.Error("device-config.yaml is not the default of package config: copy config/default.yaml to chart/files/device-config.yaml")
			}
		case config.NodeName:
			if node, problems := config.LoadNode([]byte(m.Data[config.NodeKey])); len(problems) > 0 || len(node.Nodes) > 0 {
				t.Errorf("config.json: %v, %d nodes; want none", problems, len(node.Nodes))
			}
		case "deviceshare-scheduler-config":
			if !strings.Contains(m.Data["volcano-scheduler.conf"], "- name: deviceshare\n") {
				t.Error("the scheduler's configuration lacks the plugin")
			}
		default:
			t.Errorf("unexpected ConfigMap %s", m.Name)
		}
	}
}

func TestADevicePluginIsRestartedOnlyWhenItWasUnwellForLong(t *testing.T) {
	for _, d := range daemonSets(t, "deviceshare-device-plugin") {
		for _, c := range d.Spec.Template.Spec.Containers {
			p := c.LivenessProbe
			if p == nil || p.HTTPGet == nil || p.HTTPGet.Path != "/healthz" {
				t.Errorf("%s: a device plugin that hangs is never restarted: %+v", d.Name, p)
				continue
			}
			if long := p.PeriodSeconds * p.FailureThreshold; long < 300 {
				t.Errorf("%s: restarted after %d s; pods that come meanwhile are refused", d.Name, long)
			}
		}
	}
}

func TestTheHostSeesWhatTheDevicePluginMountsForMPS(t *testing.T) {
	for _, set := range daemonSets(t, "deviceshare-device-plugin") {
		for _, c := range set.Spec.Template.Spec.Containers {
			for _, m := range c.VolumeMounts {
				if m.Name != "mps" {
					continue
				}
				if m.MountPropagation == nil || *m.MountPropagation != corev1.MountPropagationBidirectional {
					t.Errorf("%s of %s is mounted with propagation %v", m.Name, set.Name, m.MountPropagation)
				}
				return
			}
		}
	}
	t.Error("no container has a volume for MPS")
}
