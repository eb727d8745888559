// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// The line of the shipped scheduler configuration that docs/evictions.md has an administrator
// change who wants no evictions, before and after.
const (
	shippedActions = `actions: "enqueue, allocate, consolidate, reclaim, preempt, backfill"`
	quietActions   = `actions: "enqueue, allocate, backfill"`
)

// The priority classes of the suite.
const (
	low    = "evictions-low"
	middle = "evictions-middle"
	high   = "evictions-high"
	top    = "evictions-top"
)

// priorities are the values of the classes.
func priorities() map[string]int32 {
	return map[string]int32{low: 10, middle: 20, high: 100, top: 1000}
}

// oneDevice asks for a whole device.
func oneDevice() workload.Ask { return workload.Ask{Number: 1} }

// evictions is the suite about pods that make room for others.
type evictions struct {
	*world
	began   time.Time
	devices []sharing.DeviceID
	// victims are namespace/name of the pods that had to leave so far.
	victims []string
}

// testEvictions goes by the shipped configuration. In each part exactly the expected pods leave,
// and the waiting pod gets their place.
func testEvictions(t *testing.T, w *world) {
	ctx, _ := w.user(t, "evictions", 10*time.Minute)
	e := &evictions{world: w, began: time.Now()}
	inv := w.inventory(ctx, t)
	for i := range inv.Devices {
		e.devices = append(e.devices, inv.Devices[i].ID)
	}
	w.makePriorityClasses(ctx, t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), slack*2*time.Minute)
		defer cancel()
		w.upgrade(ctx, t)
		w.hurryConfig(ctx, t)
		w.awaitActions(ctx, t, shippedActions)
	})

	part(t, "share", e.testShare)
	part(t, "whole_device", e.testWholeDevice)
	part(t, "kept", e.testKept)
	part(t, "scheduler_killed", e.testSchedulerKilled)
	part(t, "overcommit", e.testOvercommit)
	part(t, "finalizer", e.testFinalizer)
	part(t, "gang", e.testGang)
	part(t, "budget", e.testBudget)
	part(t, "alternating", e.testAlternating)
	part(t, "reclaim", e.testReclaim)
	part(t, "moves", e.testMoves)
	part(t, "plan", e.testPlan)
	part(t, "mps", e.testMPS)
	part(t, "mig", e.testMIG)
	part(t, "turned_off", e.testTurnedOff)
	if got := e.evicted(t, ""); !slices.Equal(got, slices.Sorted(slices.Values(e.victims))) {
		t.Errorf("evicted were %q, want %q", got, e.victims)
	}
}

func (w *world) makePriorityClasses(ctx context.Context, t *testing.T) {
	t.Helper()
	classes := w.cluster.Client().SchedulingV1().PriorityClasses()
	for name, value := range priorities() {
		c := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
		if _, err := classes.Create(ctx, c, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := classes.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// setActions changes the line with the actions in the scheduler's configuration, and nothing else.
func (w *world) setActions(ctx context.Context, t *testing.T, from, to string) {
	t.Helper()
	config, err := w.cluster.Client().CoreV1().ConfigMaps(sandbox.Namespace).Get(ctx, schedulerConfig, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := config.Data[schedulerConfigKey]
	if strings.Count(before, from) != 1 {
		t.Fatalf("the configuration has no line %q:\n%s", from, before)
	}
	file := filepath.Join(t.TempDir(), schedulerConfigKey)
	if err := os.WriteFile(file, []byte(strings.Replace(before, from, to, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := w.cluster.Upgrade(ctx, "--set-file", "scheduler.config="+file); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// hurryConfig has the kubelet bring the scheduler its configuration now. It does so once a minute,
// and whenever the pod changes.
func (w *world) hurryConfig(ctx context.Context, t *testing.T) {
	t.Helper()
	p, err := w.cluster.LeadingScheduler(ctx)
	if err != nil {
		t.Fatal(err)
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"example.com/looked-at":%q}}}`, time.Now().Format(time.RFC3339Nano))
	if _, err := w.cluster.Client().CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// awaitActions waits until the scheduler that leads says that it runs the actions.
func (w *world) awaitActions(ctx context.Context, t *testing.T, line string) {
	t.Helper()
	const says = "Finished loading scheduler config. Final state: actions=["
	quoted := strings.Split(line, `"`)[1]
	want := says + strings.ReplaceAll(quoted, ",", "") + "]"
	askUntil(ctx, t, fmt.Sprintf("the scheduler to say %q", want), func() (bool, error) {
		log, err := w.cluster.Log(sandbox.Scheduler)
		at := strings.LastIndex(log, says)
		return at >= 0 && strings.HasPrefix(log[at:], want), err
	})
}

// askUntil asks again and again until the answer is yes.
func askUntil(ctx context.Context, t *testing.T, what string, ask func() (bool, error)) {
	t.Helper()
	var last error
	err := wait.PollUntilContextCancel(ctx, pause, true, func(context.Context) (yes bool, _ error) {
		yes, last = ask()
		return yes, nil
	})
	if err != nil {
		t.Fatalf("still waiting for %s: %v (%v)", what, err, last)
	}
}

// user gives a part its own namespace. Pods with a long grace period are not waited for at the end.
func (e *evictions) user(t *testing.T, name string) (context.Context, *user.User) {
	t.Helper()
	ctx, u := e.world.user(t, "evictions-"+name, 3*time.Minute)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		pods, err := u.Pods(ctx)
		if err != nil {
			t.Error(err)
		}
		for i := range pods {
			if *pods[i].Spec.TerminationGracePeriodSeconds == longGrace {
				_ = e.cluster.SignalPod(ctx, &pods[i], syscall.SIGKILL) // it may have ended
			}
		}
	})
	return ctx, u
}

// pause is between two looks at something that changes by itself.
const pause = 100 * time.Millisecond

// longGrace is the grace period of pods that end only when a test has them end.
const longGrace = 600

// pod begins a pod of a priority class that runs until it is told to end. It accepts only the given
// devices, if there are any.
func (e *evictions) pod(name, class string, ask workload.Ask, devices ...int) *workload.Pod {
	p := orderly(name).App("main", ask, "forever").Edit(func(p *corev1.Pod) { p.Spec.PriorityClassName = class })
	if len(devices) > 0 {
		ids := make([]string, len(devices))
		for i, d := range devices {
			ids[i] = string(e.devices[d])
		}
		p.Annotate(wire.UserUseIDs, strings.Join(ids, ","))
	}
	return p
}

// ignoresSIGTERM has a pod go on until its grace period is over, which is long.
func ignoresSIGTERM(p *workload.Pod) *workload.Pod {
	return p.Edit(func(p *corev1.Pod) {
		grace := int64(longGrace)
		p.Spec.TerminationGracePeriodSeconds = &grace
		p.Spec.Containers[0].Command = []string{"/bin/sh", "-c", "trap '' TERM; cudaclient forever; exit 0"}
	})
}

// fills takes all devices but the given ones, and nobody may evict it.
func (e *evictions) fills(but ...int) *workload.Pod {
	var others []int
	for i := range e.devices {
		if !slices.Contains(but, i) {
			others = append(others, i)
		}
	}
	return e.pod("fills", top, workload.Ask{Number: int64(len(others))}, others...)
}

// run creates pods and waits until all of them run.
func run(ctx context.Context, t *testing.T, u *user.User, pods ...*workload.Pod) {
	t.Helper()
	var names []string
	for _, p := range pods {
		made := p.Build()
		if err := u.Create(ctx, made); err != nil {
			t.Fatal(err)
		}
		names = append(names, made.Name)
	}
	for _, name := range names {
		if _, err := u.WaitRunning(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
}

// evicted returns namespace/name of the pods that the scheduler has evicted or deleted, by the
// audit log, sorted. A namespace limits that to pods of it.
func (e *evictions) evicted(t *testing.T, namespace string) []string {
	t.Helper()
	events, err := e.cluster.AuditLog()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range events {
		a := &events[i]
		isEviction := a.Verb == "create" && a.ObjectRef.Subresource == "eviction" || a.Verb == "delete" && a.ObjectRef.Subresource == ""
		if isEviction && a.ObjectRef.Resource == "pods" && a.User.Username == sandbox.User(sandbox.Scheduler) && a.ResponseStatus.Code < 300 &&
			a.Time.After(e.began) && (namespace == "" || a.ObjectRef.Namespace == namespace) {
			names = append(names, a.ObjectRef.Namespace+"/"+a.ObjectRef.Name)
		}
	}
	slices.Sort(names)
	return names
}

// requireEvicted expects that exactly these pods of a namespace were evicted so far.
func (e *evictions) requireEvicted(t *testing.T, u *user.User, names ...string) {
	t.Helper()
	var want []string
	for _, name := range names {
		want = append(want, u.Namespace()+"/"+name)
	}
	slices.Sort(want)
	got := e.evicted(t, u.Namespace())
	if !slices.Equal(got, want) {
		t.Errorf("evicted were %q, want %q", got, want)
	}
	e.victims = slices.DeleteFunc(e.victims, func(v string) bool { return strings.HasPrefix(v, u.Namespace()+"/") })
	e.victims = append(e.victims, want...)
}

// sentence is what a victim is told.
func sentence(u *user.User, preemptor string, priority, own int32) string {
	return fmt.Sprintf(`makes room on %s for %s/%s (priority %d, this one %d); pods with the annotation volcano.sh/preemptable "false" are spared`,
		sandbox.NodeName, u.Namespace(), preemptor, priority, own)
}

// requireTold waits for the event of a victim. The pod may be gone by then.
func (e *evictions) requireTold(ctx context.Context, t *testing.T, u *user.User, victim, want string) {
	t.Helper()
	askUntil(ctx, t, fmt.Sprintf("event Preempted of pod %s: %q", victim, want), func() (bool, error) {
		said, err := u.Events(ctx, victim)
		if err == nil {
			err = fmt.Errorf("its events are %q", said)
		}
		return slices.Contains(said, "Preempted: "+want), err
	})
}

// requireWaiting waits until the scheduler has said why a pod waits, and returns that.
func requireWaiting(ctx context.Context, t *testing.T, u *user.User, name string) string {
	t.Helper()
	p, err := u.Wait(ctx, name, "told why it waits", func(p *corev1.Pod) bool { return p.Spec.NodeName != "" || unschedulable(p) != "" })
	if err != nil {
		t.Fatal(err)
	}
	if p.Spec.NodeName != "" {
		t.Errorf("pod %s was placed", name)
	}
	return unschedulable(p)
}

// requireOnDevice waits until a pod runs and expects it on a device.
func (e *evictions) requireOnDevice(ctx context.Context, t *testing.T, u *user.User, name string, device int) {
	t.Helper()
	if s := sharesOf(ctx, t, u, name); len(s) != 1 || s[0].Device != e.devices[device] {
		t.Errorf("pod %s has %+v, want a share of device %s", name, s, e.devices[device])
	}
}

// counters returns the counters and gauges of the scheduler that leads, as its page names them.
func (w *world) counters(ctx context.Context, t *testing.T) map[string]float64 {
	t.Helper()
	return w.metricsOf(ctx, t, sandbox.Scheduler)
}

// metricsOf returns the counters and gauges of a component, as its page names them.
func (w *world) metricsOf(ctx context.Context, t *testing.T, component string) map[string]float64 {
	t.Helper()
	token, err := w.cluster.ReaderToken(ctx)
	if err != nil {
		t.Fatal(err)
	}
	address, err := w.cluster.PagesOf(ctx, component)
	if err != nil {
		t.Fatal(err)
	}
	_, page, err := sandbox.GetPage(ctx, address+"/metrics", token)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ') // labels may have spaces, too
		if n, err := strconv.ParseFloat(line[at+1:], 64); at > 0 && err == nil {
			values[line[:at]] = n
		}
	}
	return values
}
