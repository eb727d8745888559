// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// One pod leaves for a share, the cheapest: less important than one, and gone sooner than another.
func (e *evictions) testShare(t *testing.T) {
	ctx, u := e.user(t, "share")
	share := workload.Ask{Number: 1, Memory: 20000}
	slow := e.pod("slow", low, share, 0).Edit(func(p *corev1.Pod) {
		grace := int64(60)
		p.Spec.TerminationGracePeriodSeconds = &grace
	})
	run(ctx, t, u, e.fills(0, 1), e.pod("cheap", low, share, 0), slow, e.pod("more-important", middle, workload.Ask{Number: 1, Memory: 40000}, 0),
		e.pod("elsewhere", middle, oneDevice(), 1))
	run(ctx, t, u, e.pod("wish", high, share))
	e.requireOnDevice(ctx, t, u, "wish", 0)
	e.requireTold(ctx, t, u, "cheap", sentence(u, "wish", 100, 10))
	e.requireEvicted(t, u, "cheap")
}

// The fewest pods leave for a whole device. By sums the node has room: each device has 10 slots.
func (e *evictions) testWholeDevice(t *testing.T) {
	ctx, u := e.user(t, "whole")
	pods := []*workload.Pod{e.fills(0, 1)}
	for i, device := range []int{0, 0, 0, 1, 1} {
		pods = append(pods, e.pod(fmt.Sprintf("small-%d", i), low, workload.Ask{Number: 1, Memory: 1000}, device))
	}
	run(ctx, t, u, pods...)
	run(ctx, t, u, e.pod("wish", high, oneDevice()))
	e.requireOnDevice(ctx, t, u, "wish", 1)
	for _, victim := range []string{"small-3", "small-4"} {
		e.requireTold(ctx, t, u, victim, sentence(u, "wish", 100, 10))
	}
	e.requireEvicted(t, u, "small-3", "small-4")
}

// A gang stays if other pods will do, as many as it has. Otherwise all of it leaves.
func (e *evictions) testGang(t *testing.T) {
	ctx, u := e.user(t, "gang")
	half := workload.Ask{Number: 1, Memory: 40000}
	run(ctx, t, u, e.fills(0, 1), e.pod("single-0", low, half, 1), e.pod("single-1", low, half, 1)) // they will have run for longer
	e.makeGang(ctx, t, u, "default")
	member := func(name string) *workload.Pod { return e.pod(name, low, half, 0).Annotate(workload.GroupKey, "gang") }
	run(ctx, t, u, member("member-0"), member("member-1"))
	run(ctx, t, u, e.pod("wish", high, oneDevice()))
	e.requireOnDevice(ctx, t, u, "wish", 1)
	e.requireEvicted(t, u, "single-0", "single-1")

	run(ctx, t, u, e.pod("second", high, half))
	e.requireOnDevice(ctx, t, u, "second", 0)
	for _, name := range []string{"member-0", "member-1"} {
		e.requireTold(ctx, t, u, name, sentence(u, "second", 100, 10))
	}
	e.requireEvicted(t, u, "single-0", "single-1", "member-0", "member-1")
}

// makeGang makes a group "gang" of low priority in a queue, which needs two pods.
func (e *evictions) makeGang(ctx context.Context, t *testing.T, u *user.User, queue string) {
	t.Helper()
	group := workload.Group("gang", 2)
	for field, value := range map[string]string{"queue": queue, "priorityClassName": low} {
		if err := unstructured.SetNestedField(group.Object, value, "spec", field); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.dynamic(t).Resource(workload.PodGroups()).Namespace(u.Namespace()).Create(ctx, group, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A pod stays that a PodDisruptionBudget protects. The log says that the budget does.
func (e *evictions) testBudget(t *testing.T) {
	ctx, u := e.user(t, "budget")
	run(ctx, t, u, e.fills(0), e.pod("web", low, oneDevice(), 0).Label("app", "web"))
	e.protect(ctx, t, u, "web", 1, "app", "web")
	if err := u.Create(ctx, e.pod("wish", high, oneDevice()).Build()); err != nil {
		t.Fatal(err)
	}
	e.requireAdvice(ctx, t, u, "wish", "No evictions help: pods are protected by PodDisruptionBudgets: "+u.Namespace()+"/web")
	e.awaitLog(ctx, t, "No evictions help a job", u.Namespace()+"/podgroup-", fmt.Sprintf("budgets=[%q]", u.Namespace()+"/web"), "proven=true")
	t.Logf("kubectl deviceshare why:\n%s", e.deviceshare(ctx, t, "why", "wish", "-n", u.Namespace()))
	areHeldBack(ctx, t, u, "wish")
	e.requireEvicted(t, u)
	patch := []byte(`{"spec":{"minAvailable":0}}`)
	if _, err := e.cluster.Client().PolicyV1().PodDisruptionBudgets(u.Namespace()).Patch(ctx, "web", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	e.requireOnDevice(ctx, t, u, "wish", 0)
	e.requireEvicted(t, u, "web")
}

// protect makes a budget that needs all of so many pods with a label, and waits until the
// disruption controller has counted them.
func (w *world) protect(ctx context.Context, t *testing.T, u *user.User, name string, needed int, key, value string) {
	t.Helper()
	least, budgets := intstr.FromInt(needed), w.cluster.Client().PolicyV1().PodDisruptionBudgets(u.Namespace())
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: &least, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}}}
	if _, err := budgets.Create(ctx, b, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	askUntil(ctx, t, "the budget to count the pods", func() (_ bool, err error) {
		b, err = budgets.Get(ctx, name, metav1.GetOptions{})
		return err == nil && int(b.Status.CurrentHealthy) == needed, err
	})
	if b.Status.DisruptionsAllowed != 0 {
		t.Fatalf("the budget is %+v", b)
	}
}

// requireAdvice waits until a pod that waits is told something.
func (e *evictions) requireAdvice(ctx context.Context, t *testing.T, u *user.User, name, want string) {
	t.Helper()
	p, err := u.Wait(ctx, name, "told "+want, func(p *corev1.Pod) bool { return strings.Contains(unschedulable(p), want) })
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the pod is told: %s", unschedulable(p))
}

// awaitLog waits until a line of the scheduler's log has all words.
func (w *world) awaitLog(ctx context.Context, t *testing.T, words ...string) {
	t.Helper()
	askUntil(ctx, t, fmt.Sprintf("a line of the scheduler's log with %q", words), func() (bool, error) {
		log, err := w.cluster.Log(sandbox.Scheduler)
		return slices.ContainsFunc(strings.Split(log, "\n"), func(line string) bool {
			return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) })
		}), err
	})
}

// Pods of low and high priority take turns on one device, and a controller makes the less important
// one again each time. As many leave as have to, and the metrics say so.
func (e *evictions) testAlternating(t *testing.T) {
	ctx, u := e.user(t, "alternating")
	run(ctx, t, u, e.fills(0))
	before := e.counters(ctx, t)
	e.replicate(ctx, t, u, e.pod("worker", low, oneDevice()).Build())
	const turns = 10
	var victims []string
	for i := range turns {
		victims = append(victims, e.runningReplica(ctx, t, u))
		name := fmt.Sprintf("wish-%d", i)
		run(ctx, t, u, e.pod(name, high, oneDevice()))
		e.requireOnDevice(ctx, t, u, name, 0)
		e.requireTold(ctx, t, u, victims[i], sentence(u, name, 100, 10))
		e.requireEvicted(t, u, victims...)
		if err := u.Delete(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	e.runningReplica(ctx, t, u)
	after := e.counters(ctx, t)
	for name, want := range map[string]float64{
		`deviceshare_evictions_total{action="preempt"}`:    turns,
		`deviceshare_hold_ends_total{outcome="placed"}`:    turns,
		`deviceshare_hold_ends_total{outcome="abandoned"}`: 0,
		`deviceshare_hold_ends_total{outcome="failed"}`:    0,
		`deviceshare_holds`: 0,
	} {
		if _, ok := after[name]; !ok || after[name]-before[name] != want {
			t.Errorf("%s went from %v to %v (there: %v), want %v more", name, before[name], after[name], ok, want)
		}
	}
}

// runningReplica waits until the pod of the ReplicaSet runs and returns its name.
func (e *evictions) runningReplica(ctx context.Context, t *testing.T, u *user.User) string {
	t.Helper()
	var name string
	askUntil(ctx, t, "a pod of the ReplicaSet to run", func() (bool, error) {
		pods, err := u.Pods(ctx)
		for i := range pods {
			if p := &pods[i]; p.Labels["app"] == "worker" && p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
				name = p.Name
			}
		}
		return name != "", err
	})
	return name
}

// In mode mps the compute that pods reserve decides: only one of two has enough.
func (e *evictions) testMPS(t *testing.T) {
	ctx, u := e.user(t, "mps")
	e.setModes(ctx, t, u, `{"index":7,"mode":"mps"}`)
	e.deviceIn(ctx, t, sharing.MPS)
	inMPS := func(name, class string, cores int64) *workload.Pod {
		return e.pod(name, class, workload.Ask{Number: 1, Memory: 30000, Cores: cores}).Annotate(wire.UserMode, "mps")
	}
	run(ctx, t, u, inMPS("thirty", low, 30), inMPS("fifty", low, 50))
	run(ctx, t, u, inMPS("wish", high, 60))
	e.requireOnDevice(ctx, t, u, "wish", 7)
	e.requireTold(ctx, t, u, "fifty", sentence(u, "wish", 100, 10))
	e.requireEvicted(t, u, "fifty")
}

// In mode mig the shipped geometries decide: the group with partitions of two slices has the 1g at
// slice 6, and none elsewhere. So six pods leave, and that one stays.
func (e *evictions) testMIG(t *testing.T) {
	ctx, u := e.user(t, "mig")
	e.setModes(ctx, t, u, fmt.Sprintf(`{"index":%d,"mode":"mig"}`, hopper))
	e.deviceIn(ctx, t, sharing.MIG)
	var pods []*workload.Pod
	for i := range 7 {
		pods = append(pods, e.pod(fmt.Sprintf("small-%d", i), low, workload.Ask{Number: 1, Memory: 9000}).Annotate(wire.UserMode, "mig"))
	}
	run(ctx, t, u, pods...)
	var victims []string
	for _, p := range pods {
		if name := p.Build().Name; sharesOf(ctx, t, u, name)[0].Partition.Start != 6 {
			victims = append(victims, name)
		}
	}
	wish := ask("wish", 15000).Annotate(wire.UserMode, "mig")
	p := started(ctx, t, u, wish.Edit(func(p *corev1.Pod) { p.Spec.PriorityClassName = high }))
	if _, err := e.located(ctx, u, p); err != nil {
		t.Error(err)
	}
	if len(victims) != 6 {
		t.Errorf("%q were not at slice 6, want six", victims)
	}
	e.requireEvicted(t, u, victims...)
}

// setModes has some devices be in other modes until the end of the test.
func (e *evictions) setModes(ctx context.Context, t *testing.T, u *user.User, devices string) {
	t.Helper()
	if err := u.ConfigureNodes(ctx, fmt.Sprintf(`{"nodeconfig":[{"name":%q,"devices":[%s]}]}`, sandbox.NodeName, devices)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), slack*2*time.Minute)
		defer cancel()
		if err := errors.Join(u.DeleteAll(ctx), u.ConfigureNodes(ctx, `{"nodeconfig":[]}`)); err != nil {
			t.Fatal(err)
		}
		e.waitDevices(ctx, t, gpus, func(d *sharing.Device) bool { return d.Mode == sharing.HAMiCore && d.Healthy })
	})
}

// The sums of plugins overcommit and proportion are used up, so that they let no job in. One for
// which evictions make room gets it all the same.
func (e *evictions) testOvercommit(t *testing.T) {
	ctx, u := e.user(t, "overcommit")
	ask := workload.Ask{Number: 1, Memory: 80000}
	fills := orderly("fills").Edit(func(p *corev1.Pod) { p.Spec.PriorityClassName = top })
	for i := range gpus - 1 {
		fills.App(fmt.Sprintf("c%d", i), ask, "forever")
	}
	run(ctx, t, u, fills)
	run(ctx, t, u, e.pod("runs", low, ask))
	run(ctx, t, u, e.pod("wish", high, ask))
	e.requireTold(ctx, t, u, "runs", sentence(u, "wish", 100, 10))
	e.requireEvicted(t, u, "runs")
}
