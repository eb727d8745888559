// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"deviceshare/e2e/sandbox"
)

// The variables that say how often each is killed; make kills sets them.
const (
	pluginKillsVariable  = "DEVICESHARE_PLUGIN_KILLS"
	kubeletKillsVariable = "DEVICESHARE_KUBELET_KILLS"
)

// deadFor is how long the kubelet is away when it was killed. A container that was killed is
// started again as soon as the kubelet does that.
const deadFor = 200 * time.Millisecond

// Pods keep arriving while the device plugin, and then the kubelet, is killed with SIGKILL at
// random moments: bare ones, those of Jobs, and those of a Deployment. What a controller has to
// bring about is brought about in the end, and no container fails but one that the kubelet was just
// starting when it was killed.
func testRefused(t *testing.T, w *world) {
	w.takeTurn(t)
	for _, phase := range []killing{
		{victim: sandbox.DevicePlugin, namespace: "kills-plugin", kills: wanted(t, pluginKillsVariable, rounds(1, 6)), gap: 3 * time.Second},
		{victim: sandbox.Kubelet, namespace: "kills-kubelet", kills: wanted(t, kubeletKillsVariable, rounds(1, 2)), gap: 8 * time.Second},
	} {
		t.Run(phase.victim, func(t *testing.T) { w.killWhilePodsArrive(t, phase) })
	}
}

// killing is one component that is killed again and again; up to gap passes between two kills.
type killing struct {
	victim, namespace string
	kills             int
	gap               time.Duration
}

// wanted is the number in a variable.
func wanted(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("%s=%q: want a number of kills", variable, text)
	}
	return n
}

// killWhilePodsArrive kills as often as wanted, and not for much longer than that takes on two
// quiet cores: each kill but the first waits until the component is back from the last.
func (w *world) killWhilePodsArrive(t *testing.T, k killing) {
	const back = 10 * time.Second // 4 s where nothing else runs
	enough := time.Duration(k.kills) * (k.gap + back)
	ctx, u := w.user(t, k.namespace, 3*time.Minute+enough)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, seed))
	counted := newTally(ctx, t, w.cluster.Client(), k.namespace)
	a := startCrowd(ctx, t, w.cluster.Client(), u, counted)
	begin := time.Now()
	done := 0
	for ; done < k.kills && time.Since(begin) < 2*enough && !t.Failed(); done++ {
		if done > 0 && done%100 == 0 {
			t.Logf("after %d kills in %s:\n%s", done, time.Since(begin).Round(time.Second), counted.summary())
		}
		sleep(ctx, time.Duration(random.Int64N(int64(k.gap))))
		w.kill(ctx, t, k.victim)
		sleep(ctx, deadFor)
		if err := w.cluster.StartComponent(k.victim); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(begin)
	for _, name := range []string{sandbox.Kubelet, sandbox.DevicePlugin} {
		if err := w.cluster.WaitReady(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	a.finish(ctx)
	t.Logf("%d of %d kills of %s in %s, seed %d\n%s", done, k.kills, k.victim, took.Round(time.Second), seed, counted.table())
	t.Logf("Jobs: %d complete, %d failed; the Deployment has its %d pods", a.complete.Load(), a.failed.Load(), deploymentPods)
	for _, f := range counted.fates(func(f *fate) bool { return f.broke != "" && !f.cut && f.refused == "" }) {
		t.Errorf("pod %s: %s", f.name, f.broke)
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

// orDone returns when d has passed or ctx ended, and reports whether ctx goes on.
func orDone(ctx context.Context, d time.Duration) bool {
	sleep(ctx, d)
	return ctx.Err() == nil
}
