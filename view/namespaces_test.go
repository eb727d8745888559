// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/wire"
	"deviceshare/view"
	"deviceshare/view/capture"
)

// limited is a ResourceQuota of a namespace, for a class of priority if that is named.
func limited(namespace, name, class string, hard map[corev1.ResourceName]string) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	q.Spec.Hard = corev1.ResourceList{"pods": resource.MustParse("9")}
	for key, amount := range hard {
		q.Spec.Hard[key] = resource.MustParse(amount)
	}
	if class != "" {
		q.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{{
			ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{class},
		}}}
	}
	return q
}

// limitedState is a node with pods a, of priority class urgent, and b, and one that waits.
func limitedState(t *testing.T) *capture.State {
	t.Helper()
	a, b := placedOn(t, "a", "GPU-node-0", 2000, 10), placedOn(t, "b", "GPU-node-1", 3000, 20)
	a.Spec.PriorityClassName = "urgent"
	return stateOf(t, a, b, podOf("waits", 1),
		limited("ns", "gpus", "", map[corev1.ResourceName]string{"limits.volcano.sh/vgpu-memory": "8000", "limits.volcano.sh/vgpu-cores": "100", "limits.volcano.sh/vgpu-number": "5"}),
		limited("ns", "urgent", "urgent", map[corev1.ResourceName]string{"limits.volcano.sh/vgpu-memory": "4000"}),
		limited("other", "gpus", "", map[corev1.ResourceName]string{"limits.volcano.sh/vgpu-memroy": "5"}),
		limited("other", "cpu", "", map[corev1.ResourceName]string{"limits.cpu": "5"}))
}

// placedOn is a pod that has a share of so many MiB, and percent, of a device of the state's node.
func placedOn(t *testing.T, name string, device sharing.DeviceID, memory int64, cores sharing.Percent) *corev1.Pod {
	t.Helper()
	share := sharing.Share{Device: device, Mode: sharing.HAMiCore, Memory: sharing.MiBs(memory), Cores: cores}
	text, err := wire.EncodePlacement(sharing.Placement{Node: "node", Containers: []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{share}}}})
	if err != nil {
		t.Fatal(err)
	}
	p := podOf(name, 1)
	p.Spec.NodeName, p.Status.Phase = "node", corev1.PodRunning
	p.Annotations[wire.PodPlacement] = text
	return p
}

func TestLimitsOfNamespacesAreListedWithTheirUse(t *testing.T) {
	s := limitedState(t)
	var file bytes.Buffer
	if err := capture.Write(&file, s); err != nil {
		t.Fatal(err)
	}
	captured, err := capture.Read(&file)
	if err != nil || len(captured.Unread) > 0 {
		t.Fatal(err, captured.Unread)
	}
	want := "" +
		"NAMESPACE  RESOURCEQUOTA  RESOURCE                       LIMIT     USED\n" +
		"ns         gpus           limits.volcano.sh/vgpu-cores   100%      30%\n" +
		"ns         gpus           limits.volcano.sh/vgpu-memory  7.8 GiB   4.9 GiB\n" +
		"ns         gpus           limits.volcano.sh/vgpu-number  5         2\n" +
		"ns         urgent         limits.volcano.sh/vgpu-memory  3.9 GiB   2.0 GiB\n"
	for name, of := range map[string]*capture.State{"the cluster": s, "a capture": captured} {
		got := view.NamespaceLimitsText(view.Read(of, factory.New()).NamespaceLimits(), view.Paint{})
		if squeeze(got) != squeeze(want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
	hashed := view.Read(s.Hash([]byte("salt")), factory.New()).NamespaceLimits()
	if len(hashed) != 4 {
		t.Fatalf("of a capture with hashed names: %+v", hashed)
	}
	used := map[int64]bool{}
	for _, l := range hashed {
		used[l.Used] = true
		if text := fmt.Sprint(l); strings.Contains(text, "ns") || strings.Contains(text, "urgent") || strings.Contains(text, "gpus") {
			t.Errorf("a name is not hashed: %s", text)
		}
	}
	if !used[2000<<20] || !used[5000<<20] {
		t.Errorf("with hashed names other pods count: %+v", hashed)
	}
}

func TestALimitOfANamespaceThatNobodyCountsIsAFinding(t *testing.T) {
	s := installed(t, nil)
	s.Add(limited("other", "gpus", "", map[corev1.ResourceName]string{"limits.volcano.sh/vgpu-memroy": "5"}))
	found, do := "", ""
	for _, p := range view.Read(s, factory.New()).Doctor("1").Problems {
		if p.On == "resourcequota other/gpus" {
			found, do = p.What, p.Do
		}
	}
	if !strings.Contains(found, "limits.volcano.sh/vgpu-memroy: is no limit of devices") || do != "kubectl -n other edit resourcequota gpus" {
		t.Errorf("the doctor finds %q, do %q", found, do)
	}
}

func TestWithoutLimitsOfNamespacesThePageIsNamed(t *testing.T) {
	text := view.NamespaceLimitsText(view.Read(stateOf(t), factory.New()).NamespaceLimits(), view.Paint{})
	if !strings.Contains(text, "docs/queues.md") {
		t.Errorf("it says %q", text)
	}
}

// squeeze takes the padding of tables away.
func squeeze(text string) string {
	var lines []string
	for _, line := range strings.Split(text, "\n") {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}
