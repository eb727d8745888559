// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/sharing/wire"
)

// testDoctor breaks the installation in several ways, each of which `kubectl deviceshare doctor`
// must find, and nothing else.
func testDoctor(t *testing.T, w *world) {
	ctx, u := w.user(t, "doctor", 2*time.Minute)
	w.untilDoctorSays(ctx, t, "Nothing is wrong.")

	twin := idle("twin", "volcanosh/vc-scheduler:v1.14.1")
	if err := u.Create(ctx, twin); err != nil {
		t.Fatal(err)
	}
	w.untilDoctorSays(ctx, t, "1 problem:\n  scheduler volcano: several take its pods", "deviceshare-system/deviceshare-scheduler, doctor/twin", "do: kubectl -n doctor delete pod twin")
	w.remove(ctx, t, u, "twin")

	if err := u.Create(ctx, idle("legacy", "volcanosh/volcano-vgpu-device-plugin:v1.10.0")); err != nil {
		t.Fatal(err)
	}
	w.untilDoctorSays(ctx, t, "1 problem:\n  doctor/legacy: Volcano's own device plugin runs there", "do: kubectl -n doctor delete pod legacy")
	w.remove(ctx, t, u, "legacy")

	w.misconfigure(ctx, t, func(again func()) {
		w.untilDoctor(ctx, t, again, sandbox.NodeName+": has device configuration 0123456789abcdef in force, the ConfigMap is")
	})

	w.scaleWebhook(ctx, t, 0)
	defer w.scaleWebhook(ctx, t, 1)
	w.untilDoctorSays(ctx, t, "2 problems:\n  webhook: no pod of it is there\n    do: kubectl -n deviceshare-system scale deployment deviceshare-webhook --replicas=2\n  webhook: it does not answer")
	w.scaleWebhook(ctx, t, 1)
	w.untilDoctorSays(ctx, t, "Nothing is wrong.")
}

// idle is a pod that no scheduler takes.
func idle(name, image string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "main", Image: image}}},
	}
}

func (w *world) remove(ctx context.Context, t *testing.T, u *user.User, name string) {
	t.Helper()
	if err := u.Delete(ctx, name); err != nil {
		t.Fatal(err)
	}
}

// untilDoctorSays asks until all is said, with the exit status that belongs to it: what was broken
// before takes its time to be whole.
func (w *world) untilDoctorSays(ctx context.Context, t *testing.T, words ...string) {
	t.Helper()
	w.untilDoctor(ctx, t, func() {}, words...)
}

// untilDoctor is untilDoctorSays with something to break before each question, since it may heal by
// itself.
func (w *world) untilDoctor(ctx context.Context, t *testing.T, upset func(), words ...string) {
	t.Helper()
	last := ""
	for ctx.Err() == nil {
		upset()
		out, err := w.cluster.Deviceshare(ctx, "doctor")
		healthy := strings.Contains(out, "Nothing is wrong.")
		said := healthy == (err == nil)
		for _, word := range words {
			said = said && strings.Contains(out, word)
		}
		if said {
			t.Logf("kubectl deviceshare doctor:\n%s", out)
			return
		}
		if ctx.Err() == nil { // else it was killed
			last = fmt.Sprintf("%v\n%s", err, out)
		}
		sleep(ctx, 500*time.Millisecond)
	}
	t.Fatalf("doctor does not say %q: %s", words, last)
}

// misconfigure does something while the node says that it has another configuration in force. The
// device plugin, which would soon write the truth again, is frozen meanwhile. What it wrote just
// before may still arrive; again has the node say it anew.
func (w *world) misconfigure(ctx context.Context, t *testing.T, then func(again func())) {
	t.Helper()
	truth := w.versions(ctx, t)
	lie := truth
	lie.Device = "0123456789abcdef"
	say := func(v wire.ConfigVersions) {
		text, err := wire.EncodeConfig(v)
		if err != nil {
			t.Fatal(err)
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{wire.NodeConfig: text}}})
		if err != nil {
			t.Fatal(err)
		}
		w.patchNode(ctx, t, string(patch))
	}
	defer w.freeze(t, sandbox.DevicePlugin)()
	defer say(truth)
	then(func() { say(lie) })
}

func (w *world) scaleWebhook(ctx context.Context, t *testing.T, replicas int) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"replicas": replicas}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.cluster.Client().AppsV1().Deployments(sandbox.Namespace).Patch(ctx, "deviceshare-webhook", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
}
