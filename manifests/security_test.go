// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// violations are what a level of Pod Security, in its latest version, has against a pod.
func violations(t *testing.T, level api.Level, spec corev1.PodSpec) []string {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range evaluator.EvaluatePod(api.LevelVersion{Level: level, Version: api.LatestVersion()}, &metav1.ObjectMeta{}, &spec) {
		if !r.Allowed {
			out = append(out, r.ForbiddenReason+": "+r.ForbiddenDetail)
		}
	}
	return out
}

func TestSchedulerAndWebhookPassPodSecurityRestricted(t *testing.T) {
	specs := pods(decode(t, read(t, installFile)))
	for _, name := range []string{"deviceshare-scheduler", "deviceshare-webhook"} {
		spec, ok := specs[name]
		if !ok {
			t.Fatalf("there is no %s", name)
		}
		if got := violations(t, api.LevelRestricted, spec); len(got) > 0 {
			t.Errorf("%s: %s", name, strings.Join(got, "; "))
		}
		for _, c := range spec.Containers {
			if ro := c.SecurityContext.ReadOnlyRootFilesystem; ro == nil || !*ro {
				t.Errorf("%s: container %s may write to its image", name, c.Name)
			}
		}
	}
}

// privileges are what makes the pod of the device plugin more than an ordinary one.
func privileges(spec corev1.PodSpec) []string {
	var out []string
	for name, has := range map[string]bool{"hostPID": spec.HostPID, "hostNetwork": spec.HostNetwork, "hostIPC": spec.HostIPC} {
		if has {
			out = append(out, name)
		}
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		if s := c.SecurityContext; s != nil && s.Privileged != nil && *s.Privileged {
			out = append(out, c.Name+": privileged")
		}
		for _, m := range c.VolumeMounts {
			if !m.ReadOnly && m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationBidirectional {
				out = append(out, m.Name+": Bidirectional")
			}
		}
	}
	for _, v := range spec.Volumes {
		if v.HostPath != nil {
			out = append(out, "hostPath "+v.Name)
		}
	}
	slices.Sort(out)
	return out
}

// requireRows looks for a row per privilege in a table of a page.
func requireRows(t *testing.T, page, heading string, privileges []string) {
	t.Helper()
	_, table, _ := strings.Cut(read(t, page), heading)
	table, _, _ = strings.Cut(table, "\n##")
	for _, p := range privileges {
		if !strings.Contains(table, "| `"+p+"` |") {
			t.Errorf("the table has no row for %s", p)
		}
	}
}

func TestThePrivilegesOfTheKeeperAreThoseOfTheTable(t *testing.T) {
	want := []string{"hostPID", "hostPath dev", "hostPath driver", "hostPath kubelet", "hostPath mps", "hostPath socket", "keeper: privileged"}
	spec := pods(decode(t, read(t, installFile)))["deviceshare-keeper"]
	if got := privileges(spec); !slices.Equal(got, want) {
		t.Errorf("privileges %q, the table has %q", got, want)
	}
	if spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken {
		t.Error("it has an account at the API server")
	}
	requireRows(t, "../docs/mps.md", "### What the keeper may do", want)
}

// TestThePrivilegesOfTheDevicePluginAreThoseOfTheTable: who adds one says in docs/operate.md what
// it is for.
func TestThePrivilegesOfTheDevicePluginAreThoseOfTheTable(t *testing.T) {
	want := []string{"device-plugin: privileged", "hostPID", "hostPath cdi", "hostPath dev", "hostPath driver", "hostPath kubelet",
		"hostPath mps", "hostPath state", "mps: Bidirectional", "state: Bidirectional"}
	if got := privileges(pods(decode(t, read(t, installFile)))["deviceshare-device-plugin"]); !slices.Equal(got, want) {
		t.Errorf("privileges %q, the table has %q", got, want)
	}
	requireRows(t, "../docs/operate.md", "## What the device plugin may do", want)
}
