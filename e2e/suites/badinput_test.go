// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing/wire"
)

// Every kind of bad input gets a clear message where the user looks, and nothing
// else stops working.
func testBadInput(t *testing.T, w *world) {
	t.Run("refused_by_the_webhook_with_every_mistake", w.badPodsAreRefused)
	t.Run("impossible_asks_wait_with_a_reason", w.impossibleAsksWait)
	t.Run("a_placement_cannot_be_edited_on_a_running_pod", w.foreignAnnotation)
	t.Run("a_config_with_several_mistakes_is_reported_whole", w.badConfig)
}

// badPodsAreRefused creates pods the webhook must refuse.
func (w *world) badPodsAreRefused(t *testing.T) {
	ctx, u := w.user(t, "bad-pods", time.Minute)
	cases := map[string]struct {
		pod   *corev1.Pod
		words []string
	}{
		"unknown mode": {
			pod("mode").App("main", workload.Ask{Number: 1}, "info").Annotate("volcano.sh/vgpu-mode", "foo").Build(),
			[]string{"volcano.sh/vgpu-mode", `"foo"`, "hami-core", "mig"},
		},
		"two mistakes at once": {
			pod("two").App("main", workload.Ask{Number: 1, Cores: 400}, "info").Annotate("volcano.sh/vgpu-mode", "foo").Build(),
			[]string{"volcano.sh/vgpu-mode", "volcano.sh/vgpu-cores", "400"},
		},
		"percentage above hundred": {
			pod("percent").App("main", workload.Ask{Number: 1, Percentage: 140}, "info").Build(),
			[]string{"volcano.sh/vgpu-memory-percentage", "140"},
		},
		"amount and percentage": {
			pod("both").App("main", workload.Ask{Number: 1, Percentage: 10, Memory: 100}, "info").Build(),
			[]string{"volcano.sh/vgpu-memory-percentage", "volcano.sh/vgpu-memory"},
		},
	}
	for name, c := range cases {
		err := u.Create(ctx, c.pod)
		if err == nil {
			t.Errorf("%s: the pod was accepted", name)
			continue
		}
		for _, word := range c.words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: the message does not name %s: %v", name, word, err)
			}
		}
	}
}

// impossibleAsksWait creates well-formed pods no node can ever serve.
func (w *world) impossibleAsksWait(t *testing.T) {
	ctx, u := w.user(t, "impossible", time.Minute)
	pods := map[*corev1.Pod]string{
		pod("huge").App("main", workload.Ask{Number: 1, Memory: 2 * memoryMiB}, "info").Build():                      "NotEnoughMemory",
		pod("larger-than-the-cluster").App("main", workload.Ask{Number: 1, Memory: 100 * memoryMiB}, "info").Build(): "the largest device of the cluster has 80GiB",
		pod("many").App("main", workload.Ask{Number: gpus + 1, Memory: 10}, "info").Build():                          "",
		pod("mode").App("main", workload.Ask{Number: 1}, "info").Annotate("volcano.sh/vgpu-mode", "mps").Build():     "WrongMode",
	}
	for p, word := range pods {
		if err := u.Create(ctx, p); err != nil {
			t.Fatal(err)
		}
		text, err := u.WaitEvent(ctx, p.Name, "device", word)
		if err != nil {
			t.Error(err)
		}
		t.Logf("%s: %s", p.Name, text)
	}
	w.stillWorks(ctx, t, u)
}

// foreignAnnotation tries to make a running pod claim shares in a text nobody can read.
func (w *world) foreignAnnotation(t *testing.T) {
	ctx, u := w.user(t, "foreign", 2*time.Minute)
	victim := pod("victim").App("main", workload.Ask{Number: 1, Memory: 100}, "forever").Build()
	if err := u.Create(ctx, victim); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitRunning(ctx, "victim"); err != nil {
		t.Fatal(err)
	}
	err := u.Annotate(ctx, "victim", wire.PodPlacement, `{"version":1,"containers":[{"name":`)
	// The webhook says so, or the policy, whichever the API server asks first.
	if err == nil || !strings.Contains(err.Error(), "may not change") && !strings.Contains(err.Error(), "only a scheduler says") {
		t.Errorf("nobody but the scheduler may say what a pod holds: %v", err)
	}
	w.stillWorks(ctx, t, u)
}

// badConfig writes a device configuration with two mistakes and a good one again.
func (w *world) badConfig(t *testing.T) {
	ctx, u := w.user(t, "bad-config", 2*time.Minute)
	if err := u.ConfigureDevices(ctx, "nvidia:\n  deviceSplitCount: many\n  gpuMemoryFaktor: 1\n"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.defaultSettings(t, u) })
	if err := w.waitEvent(ctx, "deviceSplitCount", "gpuMemoryFaktor"); err != nil {
		t.Errorf("both mistakes must be reported: %v", err)
	}
	w.stillWorks(ctx, t, u)
}

// stillWorks places one ordinary pod.
func (w *world) stillWorks(ctx context.Context, t *testing.T, u *user.User) {
	t.Helper()
	if err := u.Create(ctx, pod("ordinary").App("main", workload.Ask{Number: 1, Memory: 100}, "info").Build()); err != nil {
		t.Fatal(err)
	}
	if !succeeds(ctx, t, u, "ordinary") {
		t.Error("an ordinary pod must still run")
	}
}

// waitEvent waits for an event on any object of the cluster.
func (w *world) waitEvent(ctx context.Context, words ...string) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		list, err := w.cluster.Client().CoreV1().Events("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			missing := 0
			for _, word := range words {
				if !strings.Contains(list.Items[i].Message, word) {
					missing++
				}
			}
			if missing == 0 {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
