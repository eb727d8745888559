// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/e2e/sandbox"
	"deviceshare/sharing"
)

// testMIGManager labels the node as NVIDIA's operator does where mig-manager is to run: partitions
// are not given out until the label says otherwise. A pod that has one keeps it.
func testMIGManager(t *testing.T, w *world) {
	ctx, u := w.user(t, "mig-manager", time.Minute)
	started(ctx, t, u, ask("stays", 9000))
	const label = "nvidia.com/gpu.deploy.mig-manager"
	t.Cleanup(func() { w.label(context.Background(), t, label, "") })
	w.label(ctx, t, label, "true")
	w.waitDevices(ctx, t, 3, func(d *sharing.Device) bool { return !d.Healthy && strings.Contains(d.Reason, "mig-manager") })
	if err := u.Create(ctx, ask("waits", 9000).Build()); err != nil {
		t.Fatal(err)
	}
	if text, err := u.WaitEvent(ctx, "waits", "Unhealthy"); err != nil {
		t.Error(err)
	} else {
		t.Log(text)
	}
	w.label(ctx, t, label, "false") // what the event says, and the operator respects
	w.waitDevices(ctx, t, 3, func(d *sharing.Device) bool { return d.Healthy })
	begun(ctx, t, u, "waits")
	runsOn(ctx, t, u, "stays")
}

// label gives the real node a label; an empty value removes it.
func (w *world) label(ctx context.Context, t *testing.T, key, value string) {
	t.Helper()
	text := "null"
	if value != "" {
		text = fmt.Sprintf("%q", value)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, key, text)
	if _, err := w.cluster.Client().CoreV1().Nodes().Patch(ctx, sandbox.NodeName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
}
