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

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// envEnd is in the last line that the CUDA client's step env prints.
const envEnd = "env standin="

// fleetPod begins a pod that may run on every node of the fleet.
func fleetPod(name string) *workload.Pod {
	return pod(name).Edit(func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: sandbox.HollowTaint, Operator: corev1.TolerationOpExists}}
	})
}

// on lets a pod run on one node only.
func on(n *fleetNode) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: n.name} }
}

// run creates a pod and waits until it runs.
func (f *fleet) run(ctx context.Context, t *testing.T, p *workload.Pod) *corev1.Pod {
	t.Helper()
	spec := p.Build()
	if err := f.user.Create(ctx, spec); err != nil {
		t.Fatal(err)
	}
	running, err := f.user.WaitRunning(ctx, spec.Name)
	if err != nil {
		log, _ := f.user.Log(ctx, spec.Name, spec.Spec.Containers[0].Name)
		t.Fatalf("%v\n%s", err, log)
	}
	return running
}

// survive starts a pod on a node that runs to the end of the test, and tries its limit meanwhile.
func (f *fleet) survive(ctx context.Context, t *testing.T, n *fleetNode, name string, units, cores int64) {
	t.Helper()
	steps, over := []string{"info", "env"}, workload.MiB(units*fleetFactor+2)
	for range 200 * slack {
		steps = append(steps, "alloc", over, "expect", "oom", "alloc", "64", "expect", "ok", "free", "sleep", "1")
	}
	p := f.run(ctx, t, fleetPod(name).App("main", workload.Ask{Number: 1, Memory: units, Cores: cores}, steps...).Edit(on(n)))
	f.survivors = append(f.survivors, name)
	if !n.isHollow() {
		f.sawWhatItWasGiven(ctx, t, p, n.legacy == nil)
	}
}

// stillRunning expects every survivor to run in its first life, and those with real containers to
// have been refused more than their limit since, and to have got what is within it.
func (f *fleet) stillRunning(ctx context.Context, t *testing.T) {
	t.Helper()
	var real []string
	for _, name := range f.survivors {
		p, err := f.user.Get(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if p.Status.Phase != corev1.PodRunning || restarts(p) != 0 {
			t.Errorf("%s did not run through: %s %s, %d restarts", name, p.Status.Phase, p.Status.Reason, restarts(p))
		}
		if p.Spec.NodeName == sandbox.NodeName {
			real = append(real, name)
		}
	}
	keptTheirLimits(ctx, t, f.user, real)
}

// sawWhatItWasGiven compares what the containers of a pod saw with the pod's annotation.
func (f *fleet) sawWhatItWasGiven(ctx context.Context, t *testing.T, p *corev1.Pod, byOurs bool) (containers int) {
	t.Helper()
	list, err := givenTo(p)
	if err != nil {
		t.Fatal(err)
	}
	byContainer := map[string][]given{}
	for _, g := range list {
		byContainer[g.container] = append(byContainer[g.container], g)
	}
	for container, want := range byContainer {
		log, err := f.user.WaitLog(ctx, p.Name, container, envEnd)
		if err == nil {
			err = saw(parse(log), want, byOurs)
		}
		if err != nil {
			t.Errorf("container %s/%s: %v\nannotated: %s\nlog:\n%s", p.Name, container, err, p.Annotations["volcano.sh/vgpu-ids-new"], log)
		}
	}
	return len(byContainer)
}

// saw compares what a container saw with what it was given. Volcano's device plugin injects
// variables only: where prepared by it a container has no limits to read, but memory shows anyhow.
func saw(s seen, want []given, byOurs bool) error {
	if len(s.devices) != len(want) {
		return fmt.Errorf("saw %d devices, was given %d", len(s.devices), len(want))
	}
	for _, g := range want {
		i := slices.IndexFunc(s.devices, func(d seenDevice) bool { return d.uuid == g.device })
		if i < 0 {
			return fmt.Errorf("was given %s and does not see it", g.device)
		}
		d, bytes := s.devices[i], g.memory<<20
		if d.total != bytes || d.infoTotal != bytes || d.nvmlAll != bytes {
			return fmt.Errorf("device %s: total is %d by cuDeviceTotalMem, %d by cuMemGetInfo, %d by NVML; want %d", d.uuid, d.total, d.infoTotal, d.nvmlAll, bytes)
		}
		isWhole := g.memory == fleetMiB && g.cores%100 == 0
		if s.limits == nil && (isWhole || !byOurs) {
			continue
		}
		if got := s.limits[g.device]; int64(got.memory) != bytes || int64(got.cores) != g.cores {
			return fmt.Errorf("device %s: injected limits are %v and %d%%, want %d MiB and %d%%", d.uuid, got.memory, got.cores, g.memory, g.cores)
		}
	}
	return nil
}

// fills finds by trying that the scheduler counts every pod on a node, whoever placed it: a pod
// that asks for more than is free of any device waits, and one that asks for exactly that runs.
func (f *fleet) fills(ctx context.Context, t *testing.T, n *fleetNode, name string) {
	t.Helper()
	units := f.freest(ctx, t, n) / fleetFactor
	over := fleetPod(name+"-over").App("main", workload.Ask{Number: 1, Memory: units + 1}, "forever").Edit(on(n)).Build()
	if err := f.user.Create(ctx, over); err != nil {
		t.Fatal(err)
	}
	exact := f.run(ctx, t, fleetPod(name+"-exact").App("main", workload.Ask{Number: 1, Memory: units}, "info", "env", "forever").Edit(on(n)))
	if !n.isHollow() {
		f.sawWhatItWasGiven(ctx, t, exact, n.legacy == nil)
	}
	waits, err := f.user.Get(ctx, over.Name)
	if err != nil {
		t.Fatal(err)
	}
	if waits.Spec.NodeName != "" {
		t.Errorf("node %s took a pod of %d units where %d were free", n.name, units+1, units)
	}
	if err := f.user.Delete(ctx, exact.Name, over.Name); err != nil {
		t.Fatal(err)
	}
}

// lane runs pods one after the other, wherever a scheduler puts them, until it is told to stop:
// each has to run. Some stay for a while. One at a time is as many as Volcano's device plugin tells
// apart.
func (f *fleet) lane(ctx context.Context, stop <-chan struct{}, name string) (made int, err error) {
	const stay = 3
	for {
		select {
		case <-stop:
			return made, f.user.Delete(ctx, lastOf(name, made, stay)...)
		default:
		}
		this := fmt.Sprintf("%s-%d", name, made)
		ask := workload.Ask{Number: 1 + int64(made%4/3), Memory: int64(20 + made%50), Cores: int64(made % 7)}
		if err := f.user.Create(ctx, fleetPod(this).App("main", ask, "info", "env", "forever").Build()); err != nil {
			return made, err
		}
		if err := f.runsAnywhere(ctx, this); err != nil {
			return made, err
		}
		if made >= stay {
			if err := f.user.Delete(ctx, fmt.Sprintf("%s-%d", name, made-stay)); err != nil {
				return made, err
			}
		}
		made++
	}
}

// startLane runs a lane beside the test; the end of it reports what went wrong.
func (f *fleet) startLane(ctx context.Context, t *testing.T, name string) (end func()) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan struct{})
	var made int
	var err error
	go func() {
		defer close(done)
		made, err = f.lane(ctx, stop, name)
	}()
	return func() {
		t.Helper()
		close(stop)
		<-done
		if err != nil {
			t.Errorf("pods that came and went meanwhile: %v", err)
		}
		t.Logf("%d pods came and went meanwhile, and each of them ran", made)
	}
}

// lastOf names the pods that a lane has not deleted.
func lastOf(name string, made, stay int) (out []string) {
	for i := max(0, made-stay); i < made; i++ {
		out = append(out, fmt.Sprintf("%s-%d", name, i))
	}
	return out
}

// runsAnywhere waits until a pod runs, and where its container is real it saw what it was given.
func (f *fleet) runsAnywhere(ctx context.Context, name string) error {
	p, err := f.user.WaitRunning(ctx, name)
	if err != nil || p.Spec.NodeName != sandbox.NodeName {
		return err
	}
	want, err := givenTo(p)
	if err != nil {
		return err
	}
	log, err := f.user.WaitLog(ctx, name, "main", envEnd)
	if err != nil {
		return err
	}
	if err := saw(parse(log), want, false); err != nil {
		return errors.Join(fmt.Errorf("pod %s, given %s: %w", name, p.Annotations["volcano.sh/vgpu-ids-new"], err), errors.New(strings.TrimSpace(log)))
	}
	return nil
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
			if p.Status.Phase != corev1.PodRunning || restarts(p) != 0 {
				t.Errorf("%s did not run through: %s, %d restarts\n%s", name, p.Status.Phase, restarts(p), before)
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
