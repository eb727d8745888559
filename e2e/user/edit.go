// SPDX-License-Identifier: Apache-2.0

package user

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// Debug adds a container to a pod that runs, as `kubectl debug` does, and returns the pod as the
// API server has it then.
func (u *User) Debug(ctx context.Context, pod string, c corev1.EphemeralContainer) (*corev1.Pod, error) {
	return u.edit(ctx, pod, func(p *corev1.Pod) (*corev1.Pod, error) {
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, c)
		return u.client.CoreV1().Pods(u.namespace).UpdateEphemeralContainers(ctx, pod, p, metav1.UpdateOptions{})
	})
}

// Annotate sets an annotation of a pod, as `kubectl edit` does.
func (u *User) Annotate(ctx context.Context, pod, key, value string) error {
	_, err := u.edit(ctx, pod, func(p *corev1.Pod) (*corev1.Pod, error) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value)
		return u.client.CoreV1().Pods(u.namespace).Update(ctx, p, metav1.UpdateOptions{})
	})
	return err
}

// Label sets a label of a pod, as `kubectl label` does.
func (u *User) Label(ctx context.Context, pod, key, value string) error {
	_, err := u.edit(ctx, pod, func(p *corev1.Pod) (*corev1.Pod, error) {
		metav1.SetMetaDataLabel(&p.ObjectMeta, key, value)
		return u.client.CoreV1().Pods(u.namespace).Update(ctx, p, metav1.UpdateOptions{})
	})
	return err
}

// edit changes a pod as it is now. The kubelet writes it as well, so that a conflict is no answer.
func (u *User) edit(ctx context.Context, name string, write func(*corev1.Pod) (*corev1.Pod, error)) (*corev1.Pod, error) {
	var written *corev1.Pod
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		p, err := u.Get(ctx, name)
		if err != nil {
			return err
		}
		written, err = write(p)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("edit pod %s/%s: %w", u.namespace, name, err)
	}
	return written, nil
}
