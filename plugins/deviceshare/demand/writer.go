// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"deviceshare/sharing/events"
	"deviceshare/sharing/wire"
)

// writer makes the calls of one look.
type writer struct {
	client    kubernetes.Interface
	namespace string
	// owner is the ConfigMap of node types: utility pods end with it, which the chart makes and
	// takes away.
	owner metav1.OwnerReference
}

// configMapReference names the ConfigMap of node types.
func (w *writer) configMapReference() *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "ConfigMap", APIVersion: "v1", Namespace: w.namespace, Name: ConfigMap}
}

// learnTypes reads the types of nodes, and writes down what is new of them. A type that cannot be
// written is known all the same.
func (w *writer) learnTypes(ctx context.Context, q *Question) (Known, error) {
	in := w.client.CoreV1().ConfigMaps(w.namespace)
	there, err := in.Get(ctx, ConfigMap, metav1.GetOptions{})
	if err != nil {
		return Known{}, fmt.Errorf("read node types %s/%s: %w", w.namespace, ConfigMap, err)
	}
	w.owner = metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: there.Name, UID: there.UID}
	known := Learn(there.Data, q.Seen, q.TypeLabel, q.Settings)
	if len(known.Write) == 0 {
		return known, nil
	}
	changed := there.DeepCopy()
	if changed.Data == nil {
		changed.Data = map[string]string{}
	}
	maps.Copy(changed.Data, known.Write)
	if _, err := in.Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		klog.ErrorS(err, "Cannot write node types, will try again", "configMap", klog.KObj(there))
	}
	return known, nil
}

// applyWishes makes the utility pods those that are wished for. It goes on after a failure: what is
// left is tried at the next look.
func (w *writer) applyWishes(ctx context.Context, wishes []Wish) error {
	pods := w.client.CoreV1().Pods(w.namespace)
	there, err := pods.List(ctx, metav1.ListOptions{LabelSelector: wire.UtilityPod})
	if err != nil {
		return fmt.Errorf("list utility pods in %s: %w", w.namespace, err)
	}
	list := make([]*corev1.Pod, 0, len(there.Items))
	for i := range there.Items {
		list = append(list, &there.Items[i])
	}
	var failed []error
	todo := planChanges(list, wishes)
	for _, pod := range todo.remove {
		err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID)), GracePeriodSeconds: ptr.To[int64](0)})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			failed = append(failed, fmt.Errorf("delete utility pod %s: %w", klog.KObj(pod), err))
		}
	}
	for i := range todo.create {
		pod := todo.create[i].Pod(w.namespace)
		pod.OwnerReferences = []metav1.OwnerReference{w.owner}
		pod, err := pods.Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			failed = append(failed, fmt.Errorf("make a utility pod for node type %s: %w", todo.create[i].Type, err))
			continue
		}
		klog.InfoS("Asked for a node", "type", todo.create[i].Type, "pod", klog.KObj(pod))
		todo.tell = append(todo.tell, pod)
	}
	for _, pod := range todo.tell {
		i := slices.IndexFunc(wishes, func(x Wish) bool { return x.labelValue() == pod.Labels[wire.UtilityPod] })
		if err := w.tellUnschedulable(ctx, pod, &wishes[i]); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// tellUnschedulable gives a utility pod the condition that no scheduler will give it.
func (w *writer) tellUnschedulable(ctx context.Context, pod *corev1.Pod, wish *Wish) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   map[string]any{"conditions": []corev1.PodCondition{wish.unschedulableCondition(metav1.Now())}},
	})
	if err == nil {
		_, err = w.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the status of utility pod %s: %w", klog.KObj(pod), err)
	}
	return nil
}

// reportProblems tells of problems that are new.
func (d *Demand) reportProblems(about *corev1.ObjectReference, problems []string) {
	maps.DeleteFunc(d.told, func(text string, _ bool) bool { return !slices.Contains(problems, text) })
	for _, text := range problems {
		if !d.told[text] {
			d.told[text] = true
			d.report.Report(about, events.NodeTypeDoubtful, text)
		}
	}
}
