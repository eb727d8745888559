// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/e2e/report"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// partitionLanes is how many pods come and go at a time.
const partitionLanes = 18

// partitionAsks are amounts of memory in MiB, most of which both kinds of device can serve, the
// small ones more often. Some are what partitions are called by, and not what they have.
var partitionAsks = []int64{3000, 3000, 5000, 5000, 5500, 5500, 9000, 9000, 9000, 9700, 10240, 6144, 11000, 12288, 15000, 19900, 23000, 40000}

// partitionWatch looks at the hardware while pods come and go.
type partitionWatch struct {
	mu   sync.Mutex
	runs map[string]string // partition UUID to the pod that runs on it
}

// Random pods come and go. No partition ever has two owners, every container sees
// exactly its own, none is destroyed under a running pod, and at the end all space
// can be had again.
func testManyPartitions(t *testing.T, w *world) {
	ctx, u := w.user(t, "many-partitions", 5*time.Minute)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	watch := &partitionWatch{runs: map[string]string{}}
	looking, stop := context.WithCancel(ctx)
	var looked sync.WaitGroup
	looks := 0
	looked.Go(func() { looks = watch.look(looking, t, w) })

	begin, pods := time.Now(), int64(rounds(12, 50))
	var next, served, late atomic.Int64
	var lanes sync.WaitGroup
	for lane := range partitionLanes {
		random := rand.New(rand.NewPCG(seed, uint64(lane)))
		lanes.Go(func() {
			for n := next.Add(1); n <= pods && ctx.Err() == nil; n = next.Add(1) {
				if n%50 == 0 {
					t.Logf("pod %d of %d after %.0f s", n, pods, time.Since(begin).Seconds())
				}
				if w.visit(ctx, t, u, watch, fmt.Sprintf("p%03d", n), random) {
					served.Add(1)
				} else {
					late.Add(1)
				}
			}
		})
	}
	lanes.Wait()
	stop()
	looked.Wait()
	t.Logf("%d pods ran and %d found no place in time, in %.0f s; the hardware was looked at %d times",
		served.Load(), late.Load(), time.Since(begin).Seconds(), looks)
	if served.Load() < pods*8/10 || looks < 10 {
		t.Errorf("only %d of %d pods ran, looked %d times", served.Load(), pods, looks)
	}
	w.everythingFits(ctx, t, u)
}

// everythingFits fills every device with one pod.
func (w *world) everythingFits(ctx context.Context, t *testing.T, u *user.User) {
	t.Helper()
	for i, mib := range []int64{70000, 70000, 20000} {
		p := started(ctx, t, u, ask(fmt.Sprintf("whole-%d", i), mib))
		if _, err := w.located(ctx, u, p); err != nil {
			t.Error(err)
		}
	}
	if err := u.DeleteAll(ctx); err != nil {
		t.Fatal(err)
	}
}

// visit runs one random pod from its creation to its end. It is false when the pod
// found no place in time.
func (w *world) visit(ctx context.Context, t *testing.T, u *user.User, watch *partitionWatch, name string, random *rand.Rand) bool {
	p := partitionPod(name, random).Build()
	if err := u.Create(ctx, p); err != nil {
		t.Error(err)
		return false
	}
	patience, cancel := context.WithTimeout(ctx, slack*20*time.Second)
	defer cancel()
	_, err := u.Wait(patience, name, "placed", func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
	placed := err == nil
	if placed {
		w.inspect(ctx, t, u, watch, name, random)
	}
	ending, cancel := context.WithTimeout(ctx, slack*time.Minute)
	defer cancel()
	if err := u.Delete(ending, name); err != nil {
		t.Error(err)
	}
	return placed
}

// inspect waits until a pod that has a place runs, checks it, and lets the hardware
// be watched for it for a while.
func (w *world) inspect(ctx context.Context, t *testing.T, u *user.User, watch *partitionWatch, name string, random *rand.Rand) {
	starting, cancel := context.WithTimeout(ctx, slack*time.Minute)
	defer cancel()
	p, err := u.WaitRunning(starting, name)
	if err == nil {
		err = reported(starting, u, p)
	}
	if err != nil {
		t.Errorf("pod %s has a place and does not start: %v", name, err)
		return
	}
	uuids, err := w.located(ctx, u, p)
	if err != nil {
		t.Error(err)
		return
	}
	watch.register(t, p.Name, uuids)
	sleep(ctx, time.Duration(random.Int64N(int64(600*time.Millisecond))))
	watch.forget(uuids)
}

// partitionPod is a pod with random containers.
func partitionPod(name string, random *rand.Rand) *workload.Pod {
	amount := func() int64 { return partitionAsks[random.IntN(len(partitionAsks))] }
	p := orderly(name)
	if random.IntN(8) == 0 {
		// Gone from the API server at once; its containers run on for seconds.
		p = pod(name)
	}
	steps := []string{"info", "env", "alloc", "2000", "expect", "ok", "forever"}
	switch random.IntN(10) {
	case 0: // two containers, each with its own
		return p.App("a", workload.Ask{Number: 1, Memory: amount() / 3}, steps...).App("b", workload.Ask{Number: 1, Memory: amount() / 3}, steps...)
	case 1: // does not open its device at once: nothing but the plugin protects it until then
		return p.App("main", workload.Ask{Number: 1, Memory: amount()}, append([]string{"sleep", "1"}, steps...)...)
	case 2: // asks for compute
		return p.App("main", workload.Ask{Number: 1, Memory: 4000, Cores: []int64{10, 25, 40}[random.IntN(3)]}, steps...)
	}
	return p.App("main", workload.Ask{Number: 1, Memory: amount()}, steps...)
}

// register notes who runs on what, and that nobody else does.
func (p *partitionWatch) register(t *testing.T, pod string, uuids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, uuid := range uuids {
		if other := p.runs[uuid]; other != "" {
			t.Errorf("partition %s belongs to pods %s and %s", uuid, other, pod)
		}
		p.runs[uuid] = pod
	}
}

func (p *partitionWatch) forget(uuids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, uuid := range uuids {
		delete(p.runs, uuid)
	}
}

// look asks the hardware again and again; how often it did.
func (p *partitionWatch) look(ctx context.Context, t *testing.T, w *world) (n int) {
	for ; ctx.Err() == nil; n++ {
		p.once(ctx, t, w)
		sleep(ctx, 200*time.Millisecond)
	}
	return n
}

// once holds the lock, so that nobody who is watched ends meanwhile.
func (p *partitionWatch) once(ctx context.Context, t *testing.T, w *world) {
	p.mu.Lock()
	defer p.mu.Unlock()
	show, err := w.cluster.FakeGPU(ctx, "show")
	if err != nil {
		if ctx.Err() == nil {
			t.Error(err)
		}
		return
	}
	there := map[string]bool{}
	for _, i := range report.Instances(show) {
		there[i.UUID] = true
		if len(i.Users) > 1 {
			t.Errorf("partition %s has %d users: %q", i.UUID, len(i.Users), i.Users)
		}
	}
	for uuid, pod := range p.runs {
		if !there[uuid] {
			t.Errorf("partition %s of the running pod %s was destroyed\n%s", uuid, pod, show)
		}
	}
}
