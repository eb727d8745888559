// SPDX-License-Identifier: Apache-2.0

package legacy

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/cluster"
	"deviceshare/sharing/wire"
)

// receipt is one pod that got its devices.
type receipt struct {
	cluster.PodKey
	bound string // when it was decided, as the scheduler wrote it
}

// ReceiptWriter tells Volcano's own scheduler that a pod got its devices, in the
// annotations that scheduler waits for. Nothing here waits for a receipt: a container
// starts without it. Receipts are written in the background. It is safe for
// concurrent use.
type ReceiptWriter struct {
	client kubernetes.Interface
	node   string
	queue  *cluster.Queue[receipt]
}

// NewReceiptWriter returns a writer that has not started.
func NewReceiptWriter(client kubernetes.Interface, node string) *ReceiptWriter {
	return &ReceiptWriter{client: client, node: node, queue: cluster.NewQueue[receipt](100*time.Millisecond, time.Minute)}
}

// Prepared notes that a pod's container got its devices. It does not block.
func (w *ReceiptWriter) Prepared(p *corev1.Pod) {
	if needsReceipt(p) {
		w.queue.Add(receipt{cluster.KeyOf(p), p.Annotations[wire.PodBindTime]})
	}
}

// needsReceipt reports whether somebody waits for a receipt: the pod was placed by a
// scheduler that knows only the legacy annotations, and has none yet.
func needsReceipt(p *corev1.Pod) bool {
	_, ours := p.Annotations[wire.PodPlacement]
	return !ours && p.Annotations[wire.PodAssigned] != "" && p.Annotations[wire.PodBindPhase] != wire.PhaseSuccess
}

// Run writes until ctx ends. A receipt that fails is written again later.
func (w *ReceiptWriter) Run(ctx context.Context) error { return w.queue.Run(ctx, w.writeReceipt) }

func (w *ReceiptWriter) writeReceipt(ctx context.Context, p receipt) error {
	// The UID makes the API server refuse a pod of the same name that came later.
	patch := map[string]any{"metadata": map[string]any{"uid": p.UID, "annotations": wire.Receipt()}}
	text, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode the receipt of pod %s: %w", p, err)
	}
	// Through the status, where nothing but annotations and the status can be changed.
	_, err = w.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, text, metav1.PatchOptions{}, "status")
	if apierrors.IsForbidden(err) {
		klog.ErrorS(err, "a scheduler that knows only the legacy annotations waits for a receipt, which this device plugin may not write; "+
			"set devicePlugin.legacyReceipts in the chart's values", "pod", klog.KRef(p.Namespace, p.Name))
		return w.unlockNode(ctx, p)
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("write the receipt of pod %s: %w", p, err)
	}
	return w.unlockNode(ctx, p)
}

// unlockNode removes the lock of the node that the legacy scheduler took for the pod, if
// it took one. Nobody else removes it before it expires.
func (w *ReceiptWriter) unlockNode(ctx context.Context, p receipt) error {
	node, err := w.client.CoreV1().Nodes().Get(ctx, w.node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look for the lock of node %s: %w", w.node, err)
	}
	lock := node.Annotations[wire.NodeLock]
	if !lockIsOf(lock, p.bound) {
		return nil
	}
	// Only this lock: another pod may have got its own meanwhile. Then the API
	// server refuses, and the next look sees that one.
	path := "/metadata/annotations/" + wire.NodeLock
	text, err := json.Marshal([]map[string]string{{"op": "test", "path": path, "value": lock}, {"op": "remove", "path": path}})
	if err != nil {
		return fmt.Errorf("encode the removal of the lock of node %s: %w", w.node, err)
	}
	if _, err := w.client.CoreV1().Nodes().Patch(ctx, w.node, types.JSONPatchType, text, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("remove the lock of node %s: %w", w.node, err)
	}
	return nil
}

// lockIsOf reports whether a lock of a node was taken for the pod that was decided
// at bound, in Unix seconds. The lock is nothing but the time it was taken at. The
// scheduler takes it just before it writes the decision down, and takes none while
// there is one: a younger lock is that of a later pod, and one that was much older
// is that of a pod that never started, which the scheduler lets expire. Whatever
// cannot be read is somebody else's.
func lockIsOf(lock, bound string) bool {
	const between = time.Minute
	taken, err := time.Parse(time.RFC3339, lock)
	seconds, wrong := strconv.ParseInt(bound, 10, 64)
	if err != nil || wrong != nil {
		return false
	}
	before := time.Unix(seconds, 0).Sub(taken)
	return before >= 0 && before <= between
}
