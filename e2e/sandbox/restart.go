// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// restartPause is how long the kubelet leaves a container alone that failed before (see its
// configuration), and the part of a second that the API leaves out.
const restartPause = 2 * time.Second

// hurry has the kubelet look at pods whose containers have ended. When it was too early to start
// such a container again, the kubelet looks only after ten seconds more, unless the pod changes.
func (w workload) hurry(ctx context.Context) (did bool, err error) {
	pods, err := w.pods(ctx)
	if err != nil {
		return false, err
	}
	for i := range pods {
		ended, down := lastEnd(&pods[i])
		if !down {
			continue
		}
		select {
		case <-ctx.Done():
			return did, context.Cause(ctx)
		case <-time.After(time.Until(ended.Add(restartPause))):
		}
		change := fmt.Sprintf(`{"metadata":{"annotations":{"deviceshare.sandbox/look":%q}}}`, time.Now().Format(time.RFC3339Nano))
		_, err := w.cluster.client.CoreV1().Pods(Namespace).Patch(ctx, pods[i].Name, types.MergePatchType, []byte(change), metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return did, err
		}
		did = true
	}
	return did, nil
}

// Hurry has the kubelet start a component again that was killed in its pod, as soon as it may, and
// reports whether one waited for that.
func (c *Cluster) Hurry(ctx context.Context, name string) (bool, error) {
	if w, isInPods := c.workload(name); isInPods {
		return w.hurry(ctx)
	}
	return false, fmt.Errorf("hurry %s: it does not run in pods", name)
}

// lastEnd is when a container of a pod ended that does not run now.
func lastEnd(p *corev1.Pod) (at time.Time, down bool) {
	for _, s := range p.Status.ContainerStatuses {
		for _, end := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
			if s.State.Running == nil && end != nil && end.FinishedAt.After(at) {
				at, down = end.FinishedAt.Time, true
			}
		}
	}
	return at, down
}
