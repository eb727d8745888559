// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// churnKills is how many components are killed; churnLanes is how many pods come
// and go meanwhile.
const (
	churnKills = 20
	churnLanes = 10
)

// Device plugin, kubelet and scheduler are killed with SIGKILL at random moments
// while pods come and go. Afterwards no share is held twice, the ledger rebuilt
// from the API equals the scheduler's, containers that ran all the time kept
// their limits, and waiting pods are placed.
func testChurn(t *testing.T, w *world) {
	ctx, u := w.user(t, "churn", 10*time.Minute)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, seed))

	survivors := startSurvivors(ctx, t, u)
	// The survivors leave no device as empty as this pod wants all of them.
	if err := u.Create(ctx, pod("waiter").App("main", workload.Ask{Number: gpus, Memory: memoryMiB - 4000}, "info", "env", "forever").Build()); err != nil {
		t.Fatal(err)
	}
	churning, stop := context.WithCancel(ctx)
	var lanes sync.WaitGroup
	var created atomic.Int64
	for lane := range churnLanes {
		amount := 200 + random.Int64N(3000)
		lanes.Go(func() { created.Add(int64(churn(churning, t, u, lane, amount))) })
	}
	for i := range churnKills {
		victim := []string{sandbox.DevicePlugin, sandbox.Kubelet, sandbox.Scheduler}[i%3]
		sleep(ctx, time.Duration(random.Int64N(int64(3*time.Second))))
		w.kill(ctx, t, victim)
	}
	stop()
	lanes.Wait()
	t.Logf("%d kills while %d pods came and went", churnKills, created.Load())
	for _, name := range []string{sandbox.DevicePlugin, sandbox.Kubelet, sandbox.Scheduler} {
		if err := w.cluster.WaitReady(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.Create(ctx, pod("afterwards").App("main", workload.Ask{Number: 2, Memory: 500}, "info", "env").Build()); err != nil {
		t.Fatal(err)
	}
	w.allSettle(ctx, t, u, "waiter")
	w.ledgersAgree(ctx, t)
	keptTheirLimits(ctx, t, u, survivors)
	waitingPodIsPlaced(ctx, t, u, survivors)
}

// waitingPodIsPlaced makes room for the pod that waited all the time.
func waitingPodIsPlaced(ctx context.Context, t *testing.T, u *user.User, survivors []string) {
	t.Helper()
	p, err := u.Get(ctx, "waiter")
	if err != nil {
		t.Fatal(err)
	}
	if p.Spec.NodeName != "" {
		t.Fatalf("the waiting pod was placed on %s, where there was no room for it", p.Spec.NodeName)
	}
	if err := u.Delete(ctx, survivors...); err != nil {
		t.Fatal(err)
	}
	if p, err = u.WaitRunning(ctx, "waiter"); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitLog(ctx, "waiter", "main", "env limits: device 7"); err != nil {
		t.Fatal(err)
	}
	if _, err := compare(ctx, u, p); err != nil {
		t.Error(err)
	}
}

// kill kills a component, as soon as it runs: it may just be coming back from the
// last time.
func (w *world) kill(ctx context.Context, t *testing.T, component string) {
	t.Helper()
	for {
		err := w.cluster.Kill(component)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("kill %s: %v", component, err)
		}
		sleep(ctx, 20*time.Millisecond)
	}
}

// churn creates a pod, lets it run, deletes it, and begins again. A pod that the
// kubelet refuses because its device plugin was dead is one that a Deployment
// would make anew, and so does churn. It returns how many it made.
func churn(ctx context.Context, t *testing.T, u *user.User, lane int, amount int64) (n int) {
	for ; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("lane%d-%d", lane, n)
		p := pod(name).App("a", workload.Ask{Number: 1, Memory: amount}, "info", "env", "sleep", "1").Build()
		if n%3 == 0 {
			p = pod(name).Init("i", workload.Ask{Number: 1, Memory: amount + 50}, "info", "env").
				App("a", workload.Ask{Number: 1, Memory: amount, Cores: 2}, "info", "env").
				App("b", workload.Ask{Number: 2, Memory: 100}, "info", "env").Build()
		}
		if err := u.Create(ctx, p); err != nil {
			if ctx.Err() == nil {
				t.Errorf("lane %d: %v", lane, err)
			}
			return n
		}
		once, cancel := context.WithTimeout(ctx, time.Duration(2+lane%4)*time.Second)
		if done, err := u.WaitDone(once, name); err == nil && done.Status.Phase == corev1.PodSucceeded {
			if _, err := compare(ctx, u, done); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
		cancel()
		// The last pod of a lane stays, so that there is something to settle.
		if ctx.Err() == nil {
			if err := u.Delete(ctx, name); err != nil && ctx.Err() == nil {
				t.Errorf("lane %d: %v", lane, err)
			}
		}
	}
	return n
}

// startSurvivors runs pods that try their limit again and again.
func startSurvivors(ctx context.Context, t *testing.T, u *user.User) []string {
	t.Helper()
	var names []string
	for i := range 3 {
		limit := int64(1000 * (i + 1))
		steps := []string{"info", "env"}
		for range 100 * slack {
			steps = append(steps, "alloc", workload.MiB(limit+2), "expect", "oom", "alloc", "64", "expect", "ok", "free", "sleep", "2")
		}
		name := fmt.Sprintf("survivor-%d", i)
		if err := u.Create(ctx, pod(name).App("main", workload.Ask{Number: 1, Memory: limit, Cores: 10}, steps...).Build()); err != nil {
			t.Fatal(err)
		}
		if _, err := u.WaitRunning(ctx, name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// keptTheirLimits expects the survivors to run on, and to be refused and served
// again after the last kill.
func keptTheirLimits(ctx context.Context, t *testing.T, u *user.User, names []string) {
	t.Helper()
	for _, name := range names {
		before, err := u.Log(ctx, name, "main")
		if err != nil {
			t.Fatal(err)
		}
		for {
			p, err := u.Get(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			if p.Status.Phase != corev1.PodRunning || p.Status.ContainerStatuses[0].RestartCount != 0 {
				t.Errorf("%s did not run through: %s, %d restarts\n%s", name, p.Status.Phase, p.Status.ContainerStatuses[0].RestartCount, before)
				break
			}
			now, err := u.Log(ctx, name, "main")
			if err == nil && strings.Count(now, "OUT_OF_MEMORY") > strings.Count(before, "OUT_OF_MEMORY")+1 {
				break
			}
			sleep(ctx, 200*time.Millisecond)
			if ctx.Err() != nil {
				t.Fatalf("%s does not try its limit any more: %v\n%s", name, ctx.Err(), now)
			}
		}
	}
}

// allSettle waits until every pod but one runs, has succeeded, or was refused by
// a kubelet without its device plugin.
func (w *world) allSettle(ctx context.Context, t *testing.T, u *user.User, but string) {
	t.Helper()
	pods, err := u.Pods(ctx)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for i := range pods {
		if pods[i].Name == but {
			continue
		}
		p, err := u.Wait(ctx, pods[i].Name, "settled", func(p *corev1.Pod) bool {
			return p.Status.Phase == corev1.PodRunning || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		})
		if err != nil {
			t.Error(err)
			continue
		}
		if p.Status.Phase == corev1.PodFailed {
			refused++
			if !strings.Contains(p.Status.Reason, "AdmissionError") {
				t.Errorf("pod %s failed for another reason than a dead device plugin: %s %s", p.Name, p.Status.Reason, p.Status.Message)
			}
		}
	}
	t.Logf("%d pods settled, %d of them had been refused by a kubelet without its device plugin", len(pods), refused)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
