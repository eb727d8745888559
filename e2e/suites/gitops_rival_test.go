// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/sandbox"
	"deviceshare/sharing/events"
)

// staysAwayFromASecondScheduler starts a Deployment that looks as Volcano's own scheduler, which no
// rendering of the chart could refuse. It takes no pods: ours has placed every pod that starts.
func (w *world) staysAwayFromASecondScheduler(t *testing.T) {
	ctx, u := w.user(t, "second-scheduler", 8*time.Minute)
	running(ctx, t, u, filling("before").Build())
	restarts := w.schedulerRestarts(ctx, t)
	twin := w.startTwin(ctx, t, u.Namespace())
	w.schedulerSaid(ctx, t, events.SecondScheduler, "Deployment "+u.Namespace()+"/"+twin+" takes the pods of scheduler volcano",
		"kubectl -n "+u.Namespace()+" scale deployment "+twin+" --replicas=0")
	askUntil(ctx, t, "the scheduler to end its work", func() (bool, error) {
		_, _ = w.cluster.Hurry(ctx, sandbox.Scheduler) // it may be about to start
		p, err := w.schedulerPod(ctx)
		if err != nil {
			return false, err
		}
		s := p.Status.ContainerStatuses[0]
		return s.RestartCount > restarts && s.State.Running != nil, fmt.Errorf("%d restarts, %+v", s.RestartCount, s.State)
	})
	waits := filling("waits").Build()
	if err := u.Create(ctx, waits); err != nil {
		t.Fatal(err)
	}
	w.awaitRenewals(ctx, t, 5)
	if p, err := u.Get(ctx, waits.Name); err != nil || p.Spec.NodeName != "" {
		t.Errorf("beside another scheduler the pod was bound to node %q: %v", p.Spec.NodeName, err)
	}
	restarts = w.schedulerRestarts(ctx, t)
	if err := w.cluster.Client().AppsV1().Deployments(u.Namespace()).Delete(ctx, twin, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitRunning(ctx, waits.Name); err != nil {
		t.Error(err)
	}
	w.schedulerSaid(ctx, t, events.SecondScheduler+events.Resolved, "this one places pods")
	if now := w.schedulerRestarts(ctx, t); now != restarts {
		t.Errorf("the scheduler was started again %d times to go on", now-restarts)
	}
}

// startTwin starts a Deployment whose command names Volcano's scheduler, and returns its name.
func (w *world) startTwin(ctx context.Context, t *testing.T, namespace string) string {
	t.Helper()
	const name = "volcano-scheduler"
	labels := map[string]string{"app": name}
	p := pod(name).Plain("main", "exec sleep 100000").Edit(func(p *corev1.Pod) {
		p.Spec.RestartPolicy, p.Spec.SchedulerName = corev1.RestartPolicyAlways, corev1.DefaultSchedulerName
		p.Spec.Containers[0].Args = []string{"/vc-scheduler", "--scheduler-name=volcano"}
	}).Build()
	_, err := w.cluster.Client().AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: p.Spec}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// schedulerSaid waits for an event of the scheduler's Deployment, where kubectl describe shows it.
func (w *world) schedulerSaid(ctx context.Context, t *testing.T, reason string, words ...string) {
	t.Helper()
	client := w.cluster.Client()
	d, err := client.AppsV1().Deployments(sandbox.Namespace).Get(ctx, "deviceshare-scheduler", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	askUntil(ctx, t, "event "+reason, func() (bool, error) {
		list, err := client.CoreV1().Events(sandbox.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Deployment,involvedObject.uid=" + string(d.UID)})
		if err != nil {
			return false, err
		}
		var said []string
		for _, e := range list.Items {
			has := e.Reason == reason
			for _, word := range words {
				has = has && strings.Contains(e.Message, word)
			}
			if has {
				return true, nil
			}
			said = append(said, e.Reason+": "+e.Message)
		}
		return false, fmt.Errorf("it said %q", said)
	})
}

func (w *world) schedulerRestarts(ctx context.Context, t *testing.T) int32 {
	t.Helper()
	p, err := w.schedulerPod(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return p.Status.ContainerStatuses[0].RestartCount
}

// awaitRenewals waits until the scheduler that leads has renewed its lease so many times. It opens
// several sessions in that time, if it places pods.
func (w *world) awaitRenewals(ctx context.Context, t *testing.T, times int) {
	t.Helper()
	seen := map[string]bool{}
	askUntil(ctx, t, "the scheduler to renew its lease", func() (bool, error) {
		lease, err := w.cluster.Client().CoordinationV1().Leases(sandbox.Namespace).Get(ctx, "deviceshare-scheduler", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if s := lease.Spec; s.HolderIdentity != nil && *s.HolderIdentity != "" && s.RenewTime != nil {
			seen[*s.HolderIdentity+" "+s.RenewTime.String()] = true
		}
		return len(seen) > times, fmt.Errorf("%d renewals", len(seen))
	})
}
