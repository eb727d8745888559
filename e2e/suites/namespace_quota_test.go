// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// limitNamespace makes a ResourceQuota with limits of devices. It goes with the namespace.
func (w *world) limitNamespace(ctx context.Context, t *testing.T, u *user.User, name string, hard map[string]int64) {
	t.Helper()
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{}}}
	for resourceName, amount := range hard {
		q.Spec.Hard[corev1.ResourceName("limits.volcano.sh/"+resourceName)] = *resource.NewQuantity(amount, resource.DecimalSI)
	}
	if _, err := w.cluster.Client().CoreV1().ResourceQuotas(u.Namespace()).Create(ctx, q, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// holding begins a pod that runs until it is deleted.
func holding(name string, ask workload.Ask) *workload.Pod {
	return pod(name).App("main", ask, "forever")
}

// testNamespaceQuota gives two of three namespaces ResourceQuotas: what pods really get counts,
// also after another scheduler process leads, until they have ended; an edit is in force at once.
func testNamespaceQuota(t *testing.T, w *world) {
	ctx, few := w.user(t, "quota-few", 6*time.Minute)
	_, little := w.user(t, "quota-little", 6*time.Minute)
	_, free := w.user(t, "quota-free", 6*time.Minute)
	w.limitNamespace(ctx, t, few, "gpus", map[string]int64{"vgpu-memory": 100000, "vgpu-cores": 150})
	w.limitNamespace(ctx, t, little, "gpus", map[string]int64{"vgpu-memory": 30000})
	w.limitNamespace(ctx, t, little, "misspelt", map[string]int64{"vgpu-memroy": 1})

	running(ctx, t, few, holding("pair", workload.Ask{Number: 2, Memory: 20000, Cores: 20}).Build())
	running(ctx, t, little, holding("small", workload.Ask{Number: 1, Memory: 20000}).Build())
	for _, wish := range []struct {
		of   *user.User
		pod  *corev1.Pod
		says string
	}{
		{few, holding("wide", workload.Ask{Number: 4, Memory: 20000, Cores: 9}).Build(),
			`namespace "quota-few" uses 40000MiB of 100000MiB limits.volcano.sh/vgpu-memory of ResourceQuota "gpus": 80000MiB more is 20000MiB too much`},
		{few, holding("busy", workload.Ask{Number: 2, Memory: 1000, Cores: 56}).Build(),
			`uses 40 percent of 150 percent limits.volcano.sh/vgpu-cores of ResourceQuota "gpus": 112 percent more is 2 percent too much`},
		{little, holding("whole", workload.Ask{Number: 1}).Build(), `namespace "quota-little" uses 20000MiB of 30000MiB`},
	} {
		if err := wish.of.Create(ctx, wish.pod); err != nil {
			t.Fatal(err)
		}
		w.told(ctx, t, wish.of.Namespace(), wish.pod.Name, wish.says)
	}
	running(ctx, t, free, holding("whole", workload.Ask{Number: 1}).Build())
	if err := w.waitEvent(ctx, "limits.volcano.sh/vgpu-memroy: is no limit of devices"); err != nil {
		t.Errorf("a limit that nobody counts: %v", err)
	}
	w.showsNamespaceQuotas(ctx, t)

	if err := w.cluster.Kill(sandbox.Scheduler); err != nil {
		t.Fatal(err)
	}
	running(ctx, t, free, holding("later", workload.Ask{Number: 1, Memory: 1000}).Build())
	areHeldBack(ctx, t, few, "wide", "busy")
	areHeldBack(ctx, t, little, "whole")

	if err := few.Delete(ctx, "pair"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"wide", "busy"} {
		if _, err := few.WaitRunning(ctx, name); err != nil {
			t.Errorf("the namespace has room again: %v", err)
		}
	}
	more := []byte(`{"spec": {"hard": {"limits.volcano.sh/vgpu-memory": "200000"}}}`)
	if _, err := w.cluster.Client().CoreV1().ResourceQuotas(little.Namespace()).Patch(ctx, "gpus", types.MergePatchType, more, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := little.WaitRunning(ctx, "whole"); err != nil {
		t.Errorf("the namespace may have more: %v", err)
	}
}

// showsNamespaceQuotas compares what metrics and the command say of the use with what pods ask for.
func (w *world) showsNamespaceQuotas(ctx context.Context, t *testing.T) {
	t.Helper()
	const label = `{namespace="quota-few",quota="gpus",resource="limits.volcano.sh/vgpu-memory"}`
	counters := w.counters(ctx, t)
	for name, want := range map[string]float64{"used": 40000 << 20, "limit": 100000 << 20} {
		if got := counters["deviceshare_namespace_quota_"+name+label]; got != want {
			t.Errorf("the metric of what is %s is %.0f, want %.0f", name, got, want)
		}
	}
	table := w.deviceshare(ctx, t, "queues", "--namespaces")
	for _, want := range []string{"quota-few gpus limits.volcano.sh/vgpu-cores 150% 40%", "quota-few gpus limits.volcano.sh/vgpu-memory 97.7 GiB 39.1 GiB", "quota-little gpus limits.volcano.sh/vgpu-memory 29.3 GiB 19.5 GiB"} {
		found := false
		for _, line := range strings.Split(table, "\n") {
			found = found || strings.Join(strings.Fields(line), " ") == want
		}
		if !found {
			t.Errorf("the command does not say %q:\n%s", want, table)
		}
	}
}
