// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// nextTag is the tag of the version that the suite upgrades to.
const nextTag = "v9.9.9"

// testUpgrade upgrades the release to other images and rolls it back, as docs/upgrade.md says,
// while pods of every mode run and others arrive. No running pod meets a CUDA error or gets more
// than its limit, no arriving pod is refused or missed by the webhook, and no two schedulers bind
// at once.
func testUpgrade(t *testing.T, w *world) {
	ctx, u := w.user(t, "upgrade", 8*time.Minute)
	w.enterManyModes(ctx, t, u)
	t.Cleanup(func() { w.leaveManyModes(t, u) })
	workers := w.startWorkers(ctx, t, u)
	coming := arrive(ctx, t, 4, func(ctx context.Context, lane, n int) bool {
		mode := []sharing.Mode{sharing.HAMiCore, sharing.HAMiCore, sharing.TimeSlicing, sharing.MIG}[lane]
		return visits(ctx, t, u, fmt.Sprintf("lane%d-%d", lane, n), mode)
	})
	stopWatch := w.watchWebhook(ctx, t, u)
	coming.until(4)
	if err := w.cluster.TagProduct(ctx, nextTag); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	tag, settings, keeper := w.productTag(ctx, t), w.nodeSettings(ctx, t), w.onlyPodOf(ctx, t, sandbox.Keeper).UID
	for _, step := range []struct {
		what, tag string
		do        func() (string, error)
	}{
		{"upgrade", nextTag, func() (string, error) { return w.cluster.Upgrade(ctx, "--set", "image.tag="+nextTag, "--wait=legacy") }},
		{"rollback", tag, func() (string, error) { return w.cluster.Helm(ctx, "rollback", sandbox.Release, "--wait=legacy") }},
	} {
		before, start := coming.done.Load(), time.Now()
		if out, err := step.do(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		took, meanwhile := time.Since(start), coming.done.Load()-before
		if now := w.productTag(ctx, t); now != step.tag {
			t.Errorf("after helm %s the pods run the images %s, want %s", step.what, now, step.tag)
		}
		if now := w.onlyPodOf(ctx, t, sandbox.Keeper).UID; now != keeper {
			t.Errorf("helm %s replaced the keeper of MPS daemons", step.what)
		}
		if now := w.nodeSettings(ctx, t); now != settings {
			t.Errorf("after helm %s the administrator's edit is\n%s\nand was\n%s", step.what, now, settings)
		}
		coming.until(before + meanwhile + 8)
		t.Logf("helm %s took %.0f s, while %d pods came and went; 8 more had after %.0f s",
			step.what, took.Seconds(), meanwhile, time.Since(start).Seconds())
		w.workOn(ctx, t, u, workers)
	}
	t.Logf("%d pods came and went, %d ran all the time", coming.end(), len(workers))
	stopWatch()
	w.ledgersAgree(ctx, t)
	w.oneBindsAtATime(t, began, 2)
}

// enterManyModes gives three of the node's devices other modes than hami-core.
func (w *world) enterManyModes(ctx context.Context, t *testing.T, u *user.User) {
	t.Helper()
	modes := map[int]sharing.Mode{4: sharing.TimeSlicing, hopper: sharing.MIG, 7: sharing.MPS}
	var rules []string
	for index, m := range modes {
		rules = append(rules, fmt.Sprintf(`{"index":%d,"mode":%q}`, index, m))
	}
	w.mode(ctx, t, u, `"devices":[`+strings.Join(rules, ",")+`]`)
	w.waitDevices(ctx, t, gpus, func(d *sharing.Device) bool {
		want, other := modes[d.Index]
		return d.Healthy && (d.Mode == want || !other && d.Mode == sharing.HAMiCore)
	})
}

// leaveManyModes undoes it, when the pods of the user are gone.
func (w *world) leaveManyModes(t *testing.T, u *user.User) {
	ctx, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
	defer cancel()
	if err := u.DeleteAll(ctx); err != nil {
		t.Error(err)
	}
	if err := u.ConfigureNodes(ctx, `{"nodeconfig":[]}`); err != nil {
		t.Error(err)
	}
	w.waitDevices(ctx, t, gpus, func(d *sharing.Device) bool { return d.Mode == sharing.HAMiCore && d.Healthy })
}

// worker is a pod that works for as long as a suite runs.
type worker struct {
	name string
	// beyond is an amount of memory in MiB that it is refused; 0 if nothing limits it.
	beyond int64
}

// startWorkers starts thirty pods of every mode, which allocate up to their limit and beyond,
// launch kernels and free, again and again, and waits until each has done so once. Those that share
// fill devices, so that one stays free for the pod that wants all of it.
func (w *world) startWorkers(ctx context.Context, t *testing.T, u *user.User) []worker {
	t.Helper()
	kinds := []struct {
		what   string
		pods   int
		mode   sharing.Mode
		ask    workload.Ask
		beyond int64
	}{
		{"shared", 12, sharing.HAMiCore, workload.Ask{Number: 1, Memory: 2000, Cores: 5}, 2002},
		{"exclusive", 2, sharing.HAMiCore, workload.Ask{Number: 1, Memory: 3000, Cores: 100}, 3002},
		{"whole", 1, sharing.HAMiCore, workload.Ask{Number: 1}, memoryMiB + 2},
		{"partition", 5, sharing.MIG, workload.Ask{Number: 1, Memory: 5000}, 15000},
		{"slices", 5, sharing.TimeSlicing, workload.Ask{Number: 1, Memory: 2000}, 0},
		{"clients", 5, sharing.MPS, workload.Ask{Number: 1, Memory: 1000, Cores: 10}, 1002},
	}
	var workers []worker
	for _, k := range kinds {
		for i := range k.pods {
			work := worker{name: fmt.Sprintf("%s-%d", k.what, i), beyond: k.beyond}
			p := orderly(work.name).App("main", k.ask, work.steps()...).Annotate(wire.UserMode, string(k.mode)).Annotate(wire.UserPolicy, "binpack").Build()
			if err := u.Create(ctx, p); err != nil {
				t.Fatal(err)
			}
			workers = append(workers, work)
		}
	}
	for _, work := range workers {
		if _, err := u.WaitLog(ctx, work.name, "main", "free blocks="); err != nil {
			t.Fatal(err)
		}
	}
	return workers
}

// steps are what a worker does until it is deleted.
func (k worker) steps() []string {
	once := []string{"alloc", "64", "expect", "ok", "launch", "2", "expect", "ok", "free", "expect", "ok", "sleep", "1"}
	if k.beyond > 0 {
		once = append(once, "alloc", workload.MiB(k.beyond), "expect", "oom")
	}
	var all []string
	for range 75 * slack {
		all = append(all, once...)
	}
	return all
}

// workOn waits until each worker has worked once more since now, and looks at all that it met: it
// exits where an expectation does not hold.
func (w *world) workOn(ctx context.Context, t *testing.T, u *user.User, workers []worker) {
	t.Helper()
	before := map[string]int{}
	for _, k := range workers {
		before[k.name] = k.rounds(ctx, t, u)
	}
	for _, k := range workers {
		for k.rounds(ctx, t, u) < before[k.name]+2 && ctx.Err() == nil && !t.Failed() {
			sleep(ctx, 200*time.Millisecond)
		}
	}
}

// rounds is how often a worker has worked. It fails the test if the worker did not run all the
// time, or met another error than the one that is its limit.
func (k worker) rounds(ctx context.Context, t *testing.T, u *user.User) int {
	t.Helper()
	p, err := u.Get(ctx, k.name)
	if err != nil {
		t.Fatal(err)
	}
	log, err := u.Log(ctx, k.name, "main")
	if err != nil {
		t.Fatal(err)
	}
	if p.Status.Phase != corev1.PodRunning || restarts(p) != 0 {
		t.Fatalf("%s did not run through: %s, %d restarts\n%s", k.name, p.Status.Phase, restarts(p), log)
	}
	limits := strings.Count(log, fmt.Sprintf("alloc mib=%d result=CUDA_ERROR_OUT_OF_MEMORY", k.beyond))
	if n := strings.Count(log, "result=CUDA_ERROR"); n != limits {
		t.Fatalf("%s met %d CUDA errors:\n%s", k.name, n-limits, log)
	}
	if k.beyond > 0 {
		return limits
	}
	return strings.Count(log, "free blocks=")
}

// incomplete is a pod that asks for memory alone, and names no scheduler.
func incomplete(name string) *workload.Pod {
	return pod(name).App("main", workload.Ask{Memory: 500}, "info", "env", "alloc", "100", "expect", "ok").
		Edit(func(p *corev1.Pod) { p.Spec.SchedulerName = "" })
}

// isCompleted reports whether the webhook has seen such a pod.
func isCompleted(p *corev1.Pod) bool {
	number := p.Spec.Containers[0].Resources.Limits[workload.Number]
	return p.Spec.SchedulerName == "volcano" && number.Value() == 1
}

// watchWebhook creates pods without an effect all the time, until the returned function is called:
// the webhook, which fails open, must complete each.
func (w *world) watchWebhook(ctx context.Context, t *testing.T, u *user.User) (stop func()) {
	looking, cancel := context.WithCancel(ctx)
	var looks sync.WaitGroup
	n, missed := 0, 0
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	looks.Go(func() {
		for ; looking.Err() == nil; n++ {
			p, err := w.cluster.Client().CoreV1().Pods(u.Namespace()).Create(looking, incomplete("dry").Build(), dry)
			if err == nil && !isCompleted(p) {
				missed++
			}
			sleep(looking, 20*time.Millisecond)
		}
	})
	return func() {
		cancel()
		looks.Wait()
		if missed > 0 {
			t.Errorf("the webhook missed %d of %d pods", missed, n)
		}
		t.Logf("the webhook was asked %d times", n)
	}
}

// visits lets a pod come and go whose owner leaves to the webhook what it completes, and reports
// whether the webhook saw it and it did what it came for.
func visits(ctx context.Context, t *testing.T, u *user.User, name string, m sharing.Mode) bool {
	p := incomplete(name).Annotate(wire.UserMode, string(m)).Build()
	if err := u.Create(ctx, p); err != nil {
		t.Error(err)
		return false
	}
	made, err := u.Get(ctx, name)
	if err != nil {
		t.Error(err)
		return false
	}
	if !isCompleted(made) {
		t.Errorf("the webhook missed pod %s: scheduler %q, limits %v", name, made.Spec.SchedulerName, made.Spec.Containers[0].Resources.Limits)
		return false
	}
	if !succeeds(ctx, t, u, name) {
		return false
	}
	if err := u.Delete(ctx, name); err != nil {
		t.Error(err)
		return false
	}
	return true
}

// nodeSettings is the text that administrators edit.
func (w *world) nodeSettings(ctx context.Context, t *testing.T) string {
	t.Helper()
	m, err := w.cluster.Client().CoreV1().ConfigMaps(user.ConfigNamespace).Get(ctx, "volcano-vgpu-node-config", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m.Data["config.json"]
}

// productTag is the tag of the images that the product's pods run.
func (w *world) productTag(ctx context.Context, t *testing.T) string {
	t.Helper()
	pods, err := w.cluster.Client().CoreV1().Pods(sandbox.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var tags []string
	for _, p := range pods.Items {
		isKeeper := p.Labels["app.kubernetes.io/name"] == "deviceshare-"+sandbox.Keeper // an update leaves it
		if p.DeletionTimestamp != nil || isKeeper {
			continue
		}
		_, tag, _ := strings.Cut(p.Spec.Containers[0].Image, ":")
		if len(tags) > 0 && tags[0] == tag {
			continue
		}
		tags = append(tags, tag)
	}
	return strings.Join(tags, " and ")
}
