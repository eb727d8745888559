// SPDX-License-Identifier: Apache-2.0

package frameworks

import (
	"fmt"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// replicatedJob is a part of a JobSet.
type replicatedJob struct {
	Name     string                  `json:"name"`
	Replicas *int                    `json:"replicas"`
	Template batchv1.JobTemplateSpec `json:"template"`
}

// jobs is how many Jobs it stands for.
func (r *replicatedJob) jobs() int {
	if r.Replicas == nil {
		return 1
	}
	return *r.Replicas
}

// jobSet makes a headless Service and a Job for each replica. It makes no group.
func jobSet(o *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var parts []replicatedJob
	if err := field(o, &parts, "spec", "replicatedJobs"); err != nil {
		return nil, err
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: o.GetName(), Namespace: o.GetNamespace()},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true,
			Selector: map[string]string{"jobset.sigs.k8s.io/jobset-name": o.GetName()},
		},
	}
	first, err := object(service, "v1", "Service", o)
	if err != nil {
		return nil, err
	}
	made := []*unstructured.Unstructured{first}
	for i := range parts {
		for k := range parts[i].jobs() {
			job, err := object(jobOf(o, &parts[i], k), "batch/v1", "Job", o)
			if err != nil {
				return nil, err
			}
			made = append(made, job)
		}
	}
	return made, nil
}

// jobOf is one Job of a JobSet. It and its pods carry the same marks, as labels and annotations.
func jobOf(o *unstructured.Unstructured, part *replicatedJob, index int) *batchv1.Job {
	name := fmt.Sprintf("%s-%s-%d", o.GetName(), part.Name, index)
	marks := map[string]string{
		"jobset.sigs.k8s.io/jobset-name":            o.GetName(),
		"jobset.sigs.k8s.io/jobset-uid":             string(o.GetUID()),
		"jobset.sigs.k8s.io/replicatedjob-name":     part.Name,
		"jobset.sigs.k8s.io/replicatedjob-replicas": strconv.Itoa(part.jobs()),
		"jobset.sigs.k8s.io/restart-attempt":        "0",
		"jobset.sigs.k8s.io/job-index":              strconv.Itoa(index),
	}
	template := part.Template.DeepCopy()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: o.GetNamespace(),
			Labels: put(template.Labels, marks), Annotations: put(template.Annotations, marks),
		},
		Spec: template.Spec,
	}
	running, indexed := false, batchv1.IndexedCompletion
	job.Spec.Suspend, job.Spec.CompletionMode = &running, &indexed
	pods := &job.Spec.Template
	pods.Labels, pods.Annotations = put(pods.Labels, marks), put(pods.Annotations, marks)
	pods.Spec.Subdomain = o.GetName()
	return job
}
