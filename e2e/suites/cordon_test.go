// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
	"deviceshare/sharing/events"
	"deviceshare/sharing/wire"
)

// testCordon takes one device of the node out of use: for new pods, and for all.
func testCordon(t *testing.T, w *world) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
		defer cancel()
		w.deviceshare(ctx, t, "uncordon", sandbox.NodeName, "--all")
	})
	t.Run("cordoned", func(t *testing.T) { w.keepsOffACordonedDevice(t) })
	t.Run("drained", func(t *testing.T) { w.emptiesADrainedDevice(t) })
}

// keepsOffACordonedDevice cordons the device of a pod whose container ends and starts again, kills
// scheduler and device plugin, and lets more pods come.
func (w *world) keepsOffACordonedDevice(t *testing.T) {
	ctx, u := w.user(t, "cordoned", 6*time.Minute)
	there := pod("there").App("main", workload.Ask{Number: 1, Memory: 1024}, "hold", "20").Edit(func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyAlways })
	running(ctx, t, u, there.Build())
	at := deviceOf(ctx, t, u, "there")
	index := w.indexOf(ctx, t, string(at))
	if out, err := w.cluster.Deviceshare(ctx, "cordon", sandbox.NodeName, index, "99"); err == nil || !strings.Contains(err.Error()+out, `has no device "99"`) {
		t.Errorf("a device that is not there is cordoned: %v %s", err, out)
	}
	if out := w.deviceshare(ctx, t, "cordon", sandbox.NodeName, index, "--reason", "new fan"); !strings.Contains(out, string(at)) || !strings.Contains(out, "takes no new pods") {
		t.Errorf("cordon says %q", out)
	}
	if err := u.Create(ctx, filling("wants").Annotate(wire.UserUseIDs, string(at)).Build()); err != nil {
		t.Fatal(err)
	}
	w.told(ctx, t, u.Namespace(), "wants", "1 cordoned by an administrator (Cordoned)")
	if err := w.cluster.Kill(sandbox.Scheduler); err != nil {
		t.Fatal(err)
	}
	w.deletePod(ctx, t, w.onlyPodOf(ctx, t, sandbox.DevicePlugin))
	for i := range 3 {
		name := "other-" + strconv.Itoa(i)
		running(ctx, t, u, filling(name).Build())
		if deviceOf(ctx, t, u, name) == at {
			t.Errorf("pod %s is on the cordoned device", name)
		}
	}
	areHeldBack(ctx, t, u, "wants")
	if _, err := u.Wait(ctx, "there", "started again", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].RestartCount > 0 && s[0].State.Running != nil
	}); err != nil {
		t.Error(err)
	}
	for line, want := range map[string]string{"devices " + sandbox.NodeName: "cordoned by ", "status": "1 cordoned", "devices": ": new fan"} {
		if out := w.deviceshare(ctx, t, strings.Fields(line)...); !strings.Contains(out, want) {
			t.Errorf("%s does not say %q:\n%s", line, want, out)
		}
	}
	w.deviceshare(ctx, t, "uncordon", sandbox.NodeName, string(at)[:12])
	if got := deviceOf(ctx, t, u, "wants"); got != at {
		t.Errorf("the pod that waited runs on device %s, want %s", got, at)
	}
}

// emptiesADrainedDevice drains the device of pods that a budget protects, and of one without a
// controller. The scheduler is killed while the budget holds.
func (w *world) emptiesADrainedDevice(t *testing.T) {
	ctx, u := w.user(t, "drained", 6*time.Minute)
	var at sharing.DeviceID
	var index string
	others := []string{"cordon", sandbox.NodeName}
	inv := w.inventory(ctx, t)
	for _, d := range inv.Devices {
		if name := strconv.Itoa(d.Index); at == "" && d.Healthy && d.Mode == sharing.HAMiCore {
			at, index = d.ID, name
		} else {
			others = append(others, name)
		}
	}
	w.deviceshare(ctx, t, others...)
	w.replicas(ctx, t, u.Namespace(), 2, filling("late").Build())
	running(ctx, t, u, filling("bare").Build())
	first := replicasRunning(ctx, t, u, 2, func(p *corev1.Pod) bool { return true })
	w.protect(ctx, t, u, "needed", 2, "set", "late")
	others[0] = "uncordon"
	w.deviceshare(ctx, t, others...)
	would := w.deviceshare(ctx, t, "drain", sandbox.NodeName, index, "--dry-run")
	for _, word := range []string{"drained/" + first[0], "ReplicaSet/late", "budget needed lets 0 go now", "drained/bare", "no controller would make it again"} {
		if !strings.Contains(would, word) {
			t.Errorf("the dry run does not say %q:\n%s", word, would)
		}
	}

	var out, said bytes.Buffer
	command := w.cluster.DeviceshareCommand(ctx, "drain", sandbox.NodeName, index, "--reason", "new fan")
	command.Stdout, command.Stderr = &out, &said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"drained/bare (no controller would make it again", "drained/" + first[0], "drained/" + first[1]} {
		if err := w.nodeSaid(ctx, events.GPUDrainHeldUp, part); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.cluster.Kill(sandbox.Scheduler); err != nil {
		t.Fatal(err)
	}
	for _, name := range first {
		if p, err := u.Get(ctx, name); err != nil || p.DeletionTimestamp != nil {
			t.Errorf("pod %s is evicted in spite of its budget: %v", name, err)
		}
	}
	patch := []byte(`{"spec":{"minAvailable":0}}`)
	if _, err := w.cluster.Client().PolicyV1().PodDisruptionBudgets(u.Namespace()).Patch(ctx, "needed", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	isElsewhere := func(p *corev1.Pod) bool {
		placed, err := user.Placement(p)
		return err == nil && placed.Containers[0].Shares[0].Device != at
	}
	replicasRunning(ctx, t, u, 2, isElsewhere)
	askUntil(ctx, t, "the pods to be told why they leave", func() (bool, error) {
		said, err := u.Events(ctx, first[0])
		return slices.ContainsFunc(said, func(text string) bool {
			return strings.Contains(text, events.DeviceDrained) && strings.Contains(text, "is drained by ") && strings.Contains(text, ": new fan")
		}), err
	})
	if err := u.Delete(ctx, "bare"); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil || !strings.Contains(out.String(), "is empty") {
		t.Errorf("drain ends with %v, and says %q; on the way %q", err, out.String(), said.String())
	}
	t.Logf("kubectl deviceshare drain:\n%s%s", said.String(), out.String())
}

// replicasRunning waits until that many replicas run which are wanted, and returns their names.
func replicasRunning(ctx context.Context, t *testing.T, u *user.User, n int, isWanted func(*corev1.Pod) bool) (names []string) {
	t.Helper()
	askUntil(ctx, t, "replicas to run", func() (bool, error) {
		pods, err := u.Pods(ctx)
		names = nil
		for i := range pods {
			if p := &pods[i]; p.Labels["set"] == "late" && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil && isWanted(p) {
				names = append(names, p.Name)
			}
		}
		return len(names) == n, err
	})
	return names
}
