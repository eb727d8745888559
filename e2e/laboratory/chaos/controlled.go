// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"deviceshare/e2e/workload"
)

// job is done when one of its pods has succeeded.
type job struct{ *batchv1.Job }

func newJob(name string, p *corev1.Pod) job {
	tries := int32(1000)
	return job{&batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{BackoffLimit: &tries, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: p.Annotations}, Spec: p.Spec}},
	}}
}

func (j job) Kind() string { return "job" }
func (j job) Name() string { return j.Job.Name }

func (j job) Create(ctx context.Context, c kubernetes.Interface) error {
	_, err := c.BatchV1().Jobs(Namespace).Create(ctx, j.Job, metav1.CreateOptions{})
	return err
}

func (j job) Done(ctx context.Context, c kubernetes.Interface) (done, failed bool, err error) {
	now, err := c.BatchV1().Jobs(Namespace).Get(ctx, j.Name(), metav1.GetOptions{})
	if err != nil {
		return false, false, err
	}
	return now.Status.Succeeded > 0, now.Status.Failed > 0, nil
}

func (j job) Delete(ctx context.Context, c kubernetes.Interface, o metav1.DeleteOptions) error {
	return c.BatchV1().Jobs(Namespace).Delete(ctx, j.Name(), o)
}

func (j job) Wake(ctx context.Context, c kubernetes.Interface) error {
	_, err := c.BatchV1().Jobs(Namespace).Patch(ctx, j.Name(), types.MergePatchType, touched(), metav1.PatchOptions{})
	return err
}

// touched is a patch that changes nothing but an annotation.
func touched() []byte {
	return fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/looked-at":%q}}}`, time.Now().Format(time.RFC3339Nano))
}

// deployment is done when all its pods are available at once.
type deployment struct{ *appsv1.Deployment }

// deployed is how many pods a deployment has.
const deployed = 2

// newDeployment has pods that take nearly all of their share, must not get more, and stay.
func newDeployment(name string, mib int64) deployment {
	p := pod(name).Annotate(modeKey, "hami-core").App("main", workload.Ask{Number: 1, Memory: mib},
		"alloc", workload.MiB(mib-100), "expect", "ok", "alloc", workload.MiB(most), "expect", "oom", "forever").Build()
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	replicas, labels := int32(deployed), map[string]string{"deployment": name}
	return deployment{&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: p.Annotations, Labels: labels}, Spec: p.Spec}},
	}}
}

func (d deployment) Kind() string { return "deployment" }
func (d deployment) Name() string { return d.Deployment.Name }

func (d deployment) Create(ctx context.Context, c kubernetes.Interface) error {
	_, err := c.AppsV1().Deployments(Namespace).Create(ctx, d.Deployment, metav1.CreateOptions{})
	return err
}

func (d deployment) Done(ctx context.Context, c kubernetes.Interface) (done, failed bool, err error) {
	now, err := c.AppsV1().Deployments(Namespace).Get(ctx, d.Name(), metav1.GetOptions{})
	if err != nil {
		return false, false, err
	}
	return now.Status.AvailableReplicas == deployed, false, nil
}

func (d deployment) Delete(ctx context.Context, c kubernetes.Interface, o metav1.DeleteOptions) error {
	return c.AppsV1().Deployments(Namespace).Delete(ctx, d.Name(), o)
}

func (d deployment) Wake(ctx context.Context, c kubernetes.Interface) error {
	_, err := c.AppsV1().Deployments(Namespace).Patch(ctx, d.Name(), types.MergePatchType, touched(), metav1.PatchOptions{})
	return err
}
