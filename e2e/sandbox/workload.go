// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

// workload is a component that runs in pods, which a Deployment or a DaemonSet of the chart
// makes.
type workload struct {
	cluster   *Cluster
	component string
	// asks says more about readiness than the pods do.
	asks func(context.Context) error
}

// name is that of the Deployment or DaemonSet, and of its pods' label.
func (w workload) name() string { return "deviceshare-" + w.component }

// isOnEveryNode tells the DaemonSets from the Deployments.
func (w workload) isOnEveryNode() bool { return w.component == DevicePlugin || w.component == Keeper }

// nowhere is a label that no node has.
const nowhere = "deviceshare.sandbox/stopped"

// stop takes the pods away in an orderly way and returns when they are gone.
func (w workload) stop(ctx context.Context) error {
	if err := w.patch(ctx, `{"spec":{"template":{"spec":{"nodeSelector":{"`+nowhere+`":""}}}}}`, `{"spec":{"replicas":0}}`); err != nil {
		return fmt.Errorf("stop %s: %w", w.component, err)
	}
	err := wait.PollUntilContextTimeout(ctx, pollEvery, startTimeout, true, func(ctx context.Context) (bool, error) {
		pods, err := w.pods(ctx)
		return err == nil && len(pods) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("stop %s: wait for the end of its pods: %w", w.component, err)
	}
	return nil
}

// start has the pods made again, and what was killed in them started again.
func (w workload) start(ctx context.Context) error {
	err := w.patch(ctx, `{"spec":{"template":{"spec":{"nodeSelector":{"`+nowhere+`":null}}}}}`, `{"spec":{"replicas":1}}`)
	if err == nil {
		_, err = w.hurry(ctx)
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", w.component, err)
	}
	return nil
}

func (w workload) patch(ctx context.Context, daemonSet, deployment string) error {
	apps, kind := w.cluster.client.AppsV1(), types.StrategicMergePatchType
	if w.isOnEveryNode() {
		_, err := apps.DaemonSets(Namespace).Patch(ctx, w.name(), kind, []byte(daemonSet), metav1.PatchOptions{})
		return err
	}
	_, err := apps.Deployments(Namespace).Patch(ctx, w.name(), kind, []byte(deployment), metav1.PatchOptions{})
	return err
}

// pods are those there are, the ones that are ending included.
func (w workload) pods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := w.cluster.client.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + w.name()})
	if err != nil {
		return nil, fmt.Errorf("list the pods of %s: %w", w.component, err)
	}
	return list.Items, nil
}

// waitReady waits until a pod is ready and the component does its work.
func (w workload) waitReady(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
		if last = w.askReady(ctx); last != nil {
			_, _ = w.hurry(ctx) // what keeps it from that keeps askReady too
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w; last answer: %w\n%s", w.component, context.Cause(ctx), last, w.describe(context.WithoutCancel(ctx)))
	}
	return nil
}

func (w workload) askReady(ctx context.Context) error {
	pods, err := w.pods(ctx)
	if err != nil {
		return err
	}
	for _, p := range pods {
		if p.DeletionTimestamp == nil && isReady(&p) {
			return w.asks(ctx)
		}
	}
	return fmt.Errorf("none of its %d pods is ready", len(pods))
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// describe shows for an error what a person would look at: the state of the pods, their events, the
// end of their logs.
func (w workload) describe(ctx context.Context) string {
	pods, err := w.pods(ctx)
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, p := range pods {
		out = append(out, fmt.Sprintf("  pod %s is %s", p.Name, p.Status.Phase))
		for _, s := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
			out = append(out, fmt.Sprintf("    container %s: %d restarts, %s", s.Name, s.RestartCount, stateOf(s)))
		}
		events, err := w.cluster.client.CoreV1().Events(Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + p.Name})
		if err == nil {
			for _, e := range events.Items {
				out = append(out, fmt.Sprintf("    %s: %s", e.Reason, e.Message))
			}
		}
		if text, err := w.cluster.PodLog(ctx, Namespace, p.Name, w.component); err == nil {
			out = append(out, lastLines(text))
		}
	}
	return strings.Join(out, "\n")
}

func stateOf(s corev1.ContainerStatus) string {
	switch {
	case s.State.Waiting != nil:
		return s.State.Waiting.Reason + ": " + s.State.Waiting.Message
	case s.State.Terminated != nil:
		return fmt.Sprintf("ended with %d: %s", s.State.Terminated.ExitCode, s.State.Terminated.Message)
	}
	return "running"
}

// log is what the present pods have written.
func (w workload) log(ctx context.Context) (string, error) {
	pods, err := w.pods(ctx)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, p := range pods {
		text, err := w.cluster.PodLog(ctx, Namespace, p.Name, w.component)
		if err != nil {
			return "", err
		}
		out.WriteString(text)
	}
	return out.String(), nil
}

// kill ends the component's containers by SIGKILL and returns when the API server knows. The
// kubelet starts others.
func (w workload) kill(ctx context.Context) error {
	ids, err := w.running(ctx)
	if err != nil {
		return fmt.Errorf("kill %s: %w", w.component, err)
	}
	if err := w.signal(ctx, syscall.SIGKILL); err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, pollEvery, startTimeout, true, func(ctx context.Context) (bool, error) {
		seen, err := w.running(ctx)
		return err == nil && !slices.ContainsFunc(seen, func(id string) bool { return slices.Contains(ids, id) }), nil
	})
	if err != nil {
		return fmt.Errorf("kill %s: wait until the kubelet sees its end: %w", w.component, err)
	}
	return nil
}

// running are the IDs of the containers that run, as far as the API server knows.
func (w workload) running(ctx context.Context) ([]string, error) {
	pods, err := w.pods(ctx)
	var ids []string
	for i := range pods {
		ids = append(ids, runningContainers(&pods[i])...)
	}
	return ids, err
}

func runningContainers(p *corev1.Pod) []string {
	var ids []string
	for _, s := range p.Status.ContainerStatuses {
		if s.State.Running != nil {
			ids = append(ids, s.ContainerID)
		}
	}
	return ids
}

// signal sends a signal to the first process of each of the component's containers.
func (w workload) signal(ctx context.Context, s syscall.Signal) error {
	ids, err := w.running(ctx)
	if err == nil {
		err = w.cluster.signalContainers(ctx, ids, s)
	}
	if err != nil {
		return fmt.Errorf("send %q to %s: %w", s, w.component, err)
	}
	return nil
}

// SignalPod sends a signal to the first process of each container of a pod on the real node.
func (c *Cluster) SignalPod(ctx context.Context, p *corev1.Pod, s syscall.Signal) error {
	if err := c.signalContainers(ctx, runningContainers(p), s); err != nil {
		return fmt.Errorf("send %q to pod %s/%s: %w", s, p.Namespace, p.Name, err)
	}
	return nil
}

// signalContainers sends a signal to the first process of each of the containers.
func (c *Cluster) signalContainers(ctx context.Context, ids []string, s syscall.Signal) error {
	tasks, err := c.ctr(ctx, "tasks", "list")
	if err != nil {
		return err
	}
	var pids []string
	for line := range strings.Lines(tasks) { // CONTAINER PID STATUS
		f := strings.Fields(line)
		if len(f) == 3 && slices.Contains(ids, "containerd://"+f[0]) {
			pids = append(pids, f[1])
		}
	}
	if len(pids) == 0 {
		return errors.New("it is not running")
	}
	_, err = c.inside.run(ctx, nil, "sh", "-c", "kill -"+strconv.Itoa(int(s))+" "+strings.Join(pids, " "))
	return err
}

// ctr runs containerd's own client on the kubelet's containers and images.
func (c *Cluster) ctr(ctx context.Context, args ...string) (string, error) {
	return c.inside.run(ctx, nil, filepath.Join(c.layout.runtime(), "ctr"),
		append([]string{"--address", c.layout.containerdSocket(), "--namespace", "k8s.io"}, args...)...)
}
