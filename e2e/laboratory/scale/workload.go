// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"deviceshare/e2e/workload"
	"deviceshare/sharing/wire"
)

// namespace is where all pods are. Its service account is there from the start.
const namespace = metav1.NamespaceDefault

// jobSize and gangSize are how many pods a Volcano Job and a gang have.
const (
	jobSize  = 100
	gangSize = 1000
)

// Workload is what a turn creates.
type Workload struct {
	Name string
	Pods int
}

// The names of workloads.
const (
	Bare  = "bare pods"
	Jobs  = "jobs of 100"
	Gangs = "gangs of 1,000"
)

// kind tells the pods that take turns apart.
type kind int

const (
	withDevices kind = iota
	cpuOnly
)

func (k kind) String() string { return [...]string{"device", "cpu"}[k] }

// spec is a pod of a kind. Both ask for the same beside devices.
func (k kind) spec() corev1.PodSpec {
	amounts := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}
	if k == withDevices {
		amounts[wire.ResourceNumber] = resource.MustParse("1")
		amounts[wire.ResourceMemory] = resource.MustParse("4096")
		amounts[wire.ResourceCores] = resource.MustParse("25")
	}
	no := false
	return corev1.PodSpec{
		SchedulerName: "volcano", AutomountServiceAccountToken: &no, RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "main", Image: "scale/none", Resources: corev1.ResourceRequirements{Limits: amounts, Requests: amounts}}},
	}
}

func jobs() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "batch.volcano.sh", Version: "v1alpha1", Resource: "jobs"}
}

// clients are how the load talks to the API server.
type clients struct {
	pods    kubernetes.Interface
	objects dynamic.Interface
}

// create creates the pods of a turn, or what makes them.
func (c *clients) create(ctx context.Context, w Workload, k kind, turn string) error {
	switch w.Name {
	case Jobs:
		for i := range w.Pods / jobSize {
			job, err := jobOf(fmt.Sprintf("%s-%d", turn, i), k)
			if err != nil {
				return err
			}
			if _, err := c.objects.Resource(jobs()).Namespace(namespace).Create(ctx, job, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("create job %s: %w", job.GetName(), err)
			}
		}
		return nil
	case Gangs:
		for i := range w.Pods / gangSize {
			name := fmt.Sprintf("%s-%d", turn, i)
			if _, err := c.objects.Resource(workload.PodGroups()).Namespace(namespace).Create(ctx, workload.Group(name, gangSize), metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("create group %s: %w", name, err)
			}
			if err := c.createPods(ctx, name, gangSize, k.spec(), map[string]string{"scheduling.k8s.io/group-name": name}); err != nil {
				return err
			}
		}
		return nil
	}
	return c.createPods(ctx, turn, w.Pods, k.spec(), nil)
}

// createPods creates pods whose names are the prefix and a number.
func (c *clients) createPods(ctx context.Context, prefix string, n int, spec corev1.PodSpec, annotations map[string]string) error {
	return inParallel(n, func(i int) error {
		pod := &corev1.Pod{Spec: spec, ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", prefix, i), Namespace: namespace, Annotations: annotations}}
		if _, err := c.pods.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create pod %s: %w", pod.Name, err)
		}
		return nil
	})
}

// inParallel does something so often, a few at a time.
func inParallel(n int, do func(i int) error) error {
	var g errgroup.Group
	g.SetLimit(writers)
	for i := range n {
		g.Go(func() error { return do(i) })
	}
	return g.Wait()
}

// jobOf is a Volcano Job whose pods start together.
func jobOf(name string, k kind) (*unstructured.Unstructured, error) {
	spec := k.spec()
	template, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.PodTemplateSpec{Spec: spec})
	if err != nil {
		return nil, fmt.Errorf("make job %s: %w", name, err)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": jobs().GroupVersion().String(), "kind": "Job", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"schedulerName": spec.SchedulerName, "queue": "default", "minAvailable": int64(jobSize), "maxRetry": int64(3),
			"tasks": []any{map[string]any{"name": "work", "replicas": int64(jobSize), "minAvailable": int64(jobSize), "template": template}},
		},
	}}, nil
}

// deleteAll deletes what turns have created. Pods are gone at once: no kubelet has to stop them.
func (c *clients) deleteAll(ctx context.Context) error {
	now := int64(0)
	if err := c.pods.AppsV1().ReplicaSets(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete all sets: %w", err)
	}
	for _, kind := range []schema.GroupVersionResource{jobs(), workload.PodGroups()} {
		if err := c.objects.Resource(kind).Namespace(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			return fmt.Errorf("delete all %s: %w", kind.Resource, err)
		}
	}
	if err := c.pods.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete all pods: %w", err)
	}
	return nil
}

// left counts the jobs and groups that are still there.
func (c *clients) left(ctx context.Context) (int, error) {
	n := 0
	for _, kind := range []schema.GroupVersionResource{jobs(), workload.PodGroups()} {
		list, err := c.objects.Resource(kind).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return 0, fmt.Errorf("list %s: %w", kind.Resource, err)
		}
		n += len(list.Items)
	}
	return n, nil
}
