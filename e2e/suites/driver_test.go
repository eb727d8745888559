// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/sandbox"
)

// A driver library that does not load is told on the node, and the device plugin
// goes on trying: no restart is needed when the driver comes.
func testDriver(t *testing.T, w *world) {
	ctx, u := w.user(t, "driver", 2*time.Minute)
	library := filepath.Join(w.cluster.LibraryDir(), "libnvidia-ml.so.1")
	aside := library + ".aside"
	if err := w.cluster.StopComponent(sandbox.DevicePlugin); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(library, aside); err != nil {
		t.Fatal(err)
	}
	back := func() {
		if _, err := os.Stat(aside); err == nil {
			if err := os.Rename(aside, library); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(back)
	if err := w.cluster.StartComponent(sandbox.DevicePlugin); err != nil {
		t.Fatal(err)
	}
	if err := w.waitEvent(ctx, "libnvidia-ml.so.1"); err != nil {
		t.Errorf("no event tells that the driver library does not load: %v", err)
	}
	back()
	if err := w.cluster.WaitReady(ctx, sandbox.DevicePlugin); err != nil {
		t.Fatal(err)
	}
	w.stillWorks(ctx, t, u)
	w.followTheDriver(ctx, t)
}

// followTheDriver unmounts the driver's root and mounts another one there, as its container does
// when another version comes. Device plugin and keeper started after the first mount, and see the
// second one all the same.
func (w *world) followTheDriver(ctx context.Context, t *testing.T) {
	t.Helper()
	const root, other, aside, mark = "/run/nvidia/driver", "/run/another-driver", "/run/first-driver", "a-mark"
	w.runOnNode(ctx, t, "mkdir %[1]s %[2]s && touch %[1]s/%[3]s && mount --rbind %[4]s %[2]s && mount --make-rprivate %[2]s", other, aside, mark, root)
	w.runOnNode(ctx, t, "umount --recursive --lazy %[1]s && mount --bind %[2]s %[1]s", root, other)
	t.Cleanup(func() {
		w.runOnNode(context.Background(), t, "umount --lazy %[1]s && mount --rbind %[2]s %[1]s && umount --recursive --lazy %[2]s && rm -r %[3]s && rmdir %[2]s", root, aside, other)
	})
	for _, program := range []string{"deviceshare-device-plugin", "deviceshare-keeper"} {
		pods, err := w.cluster.Client().CoreV1().Pods(sandbox.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + program})
		if err != nil || len(pods.Items) != 1 {
			t.Fatalf("%d pods of %s: %v", len(pods.Items), program, err)
		}
		inside := w.insideOf(ctx, t, &pods.Items[0])
		seen := w.runOnNode(ctx, t, `tr '\0' '\n' < %s/cmdline | sed -n 's/^--driver-root-ctr-path=//p'`, inside)
		if got := w.runOnNode(ctx, t, "ls %s/root%s", inside, seen); got != mark {
			t.Errorf("%s sees %q at the driver's root, want that of the driver that is mounted there now", program, got)
		}
	}
}

// insideOf is the directory in /proc of the first process of a pod's container, as seen on the
// node.
func (w *world) insideOf(ctx context.Context, t *testing.T, p *corev1.Pod) string {
	t.Helper()
	_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
	return w.runOnNode(ctx, t, "grep -ls %s /proc/[0-9]*/cgroup | sed 's,/cgroup,,' | sort -t/ -k3 -n | head -1", id)
}

// runOnNode runs a line of shell on the node and returns what it printed.
func (w *world) runOnNode(ctx context.Context, t *testing.T, line string, args ...any) string {
	t.Helper()
	out, err := w.cluster.Run(ctx, "sh", "-c", fmt.Sprintf(line, args...))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.TrimSpace(out)
}
