// SPDX-License-Identifier: Apache-2.0

package frameworks

import (
	"fmt"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"deviceshare/e2e/workload"
)

// taskKey is the annotation by which Volcano tells tasks of one group apart.
const taskKey = "volcano.sh/task-spec"

// replicaSpec is one role of a PyTorchJob.
type replicaSpec struct {
	Replicas      int                    `json:"replicas"`
	RestartPolicy corev1.RestartPolicy   `json:"restartPolicy"`
	Template      corev1.PodTemplateSpec `json:"template"`
}

// pyTorchSpec is what a PyTorchJob says.
type pyTorchSpec struct {
	NprocPerNode string `json:"nprocPerNode"`
	RunPolicy    struct {
		SchedulingPolicy struct {
			MinAvailable int `json:"minAvailable"`
		} `json:"schedulingPolicy"`
	} `json:"runPolicy"`
	Replicas map[string]*replicaSpec `json:"pytorchReplicaSpecs"`
}

// pyTorchJob makes a group, then the master and the workers, which wait for the master's name.
func pyTorchJob(o *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var spec pyTorchSpec
	if err := field(o, &spec, "spec"); err != nil {
		return nil, err
	}
	total, sum := 0, corev1.ResourceList{}
	for _, r := range spec.Replicas {
		total += r.Replicas
		add(sum, &r.Template, r.Replicas)
	}
	members := spec.RunPolicy.SchedulingPolicy.MinAvailable
	if members == 0 {
		members = total
	}
	made := []*unstructured.Unstructured{podGroup(o, o.GetName(), members, sum)}
	rank := 0
	for _, role := range []string{"Master", "Worker"} {
		r := spec.Replicas[role]
		if r == nil {
			continue
		}
		for i := range r.Replicas {
			pod, err := object(pyTorchPod(o, r, role, i, rank, total, spec.NprocPerNode), "v1", "Pod", o)
			if err != nil {
				return nil, err
			}
			made = append(made, pod)
			rank++
		}
	}
	return made, nil
}

// pyTorchPod is one pod of a PyTorchJob.
func pyTorchPod(o *unstructured.Unstructured, r *replicaSpec, role string, index, rank, total int, processes string) *corev1.Pod {
	kind, master := strings.ToLower(role), o.GetName()+"-master-0"
	t := r.Template.DeepCopy()
	p := &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	p.Name, p.Namespace = fmt.Sprintf("%s-%s-%d", o.GetName(), kind, index), o.GetNamespace()
	p.Labels = put(p.Labels, map[string]string{
		"training.kubeflow.org/operator-name": "pytorchjob-controller", "training.kubeflow.org/job-name": o.GetName(),
		"training.kubeflow.org/replica-type": kind, "training.kubeflow.org/replica-index": strconv.Itoa(index),
	})
	p.Annotations = put(p.Annotations, map[string]string{workload.GroupKey: o.GetName(), taskKey: kind})
	p.Spec.RestartPolicy, p.Spec.SchedulerName = r.RestartPolicy, "volcano"
	perNode, err := strconv.Atoi(processes)
	if err != nil {
		perNode = 1 // "auto" and its like are resolved in the container
	}
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		c.Env = append(c.Env, variables("PYTHONUNBUFFERED", "1", "MASTER_ADDR", master, "MASTER_PORT", "23456", "RANK", strconv.Itoa(rank),
			"WORLD_SIZE", strconv.Itoa(total*perNode), "PET_NPROC_PER_NODE", processes, "PET_NNODES", strconv.Itoa(total))...)
	}
	if role == "Worker" {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{
			Name: "init-pytorch", Image: "alpine:3.10", Command: []string{"sh", "-c", "until nslookup " + master + "; do sleep 2; done"},
			Resources: small("100m", "20Mi"),
		})
	}
	return p
}

// trainSpec is what a TrainJob says, and runtimeSpec what its runtime says.
type trainSpec struct {
	RuntimeRef struct{ Name string } `json:"runtimeRef"`
	Trainer    struct {
		NumNodes         int                         `json:"numNodes"`
		NumProcPerNode   *int                        `json:"numProcPerNode"`
		ResourcesPerNode corev1.ResourceRequirements `json:"resourcesPerNode"`
	} `json:"trainer"`
}

type runtimeSpec struct {
	PodGroupPolicy map[string]any `json:"podGroupPolicy"`
	Template       struct {
		Spec struct {
			ReplicatedJobs []replicatedJob `json:"replicatedJobs"`
		} `json:"spec"`
	} `json:"template"`
}

// trainJob makes a group, if the runtime has Volcano's policy, and a JobSet.
func trainJob(o *unstructured.Unstructured, others []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var spec trainSpec
	if err := field(o, &spec, "spec"); err != nil {
		return nil, err
	}
	var from runtimeSpec
	for _, r := range others {
		if r.GetKind() == "TrainingRuntime" && r.GetName() == spec.RuntimeRef.Name {
			if err := field(r, &from, "spec"); err != nil {
				return nil, err
			}
		}
	}
	if len(from.Template.Spec.ReplicatedJobs) != 1 {
		return nil, fmt.Errorf("make pods of TrainJob %s: runtime %q has %d jobs, want one", o.GetName(), spec.RuntimeRef.Name, len(from.Template.Spec.ReplicatedJobs))
	}
	part := from.Template.Spec.ReplicatedJobs[0]
	part.Template.Spec = nodesOf(o, &part.Template.Spec, &spec)
	var made []*unstructured.Unstructured
	if _, gang := from.PodGroupPolicy["volcano"]; gang {
		pods := &part.Template.Spec.Template
		pods.Annotations = put(pods.Annotations, map[string]string{workload.GroupKey: o.GetName()})
		sum := corev1.ResourceList{}
		add(sum, pods, spec.Trainer.NumNodes)
		made = append(made, podGroup(o, o.GetName(), spec.Trainer.NumNodes, sum))
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&struct {
		ReplicatedJobs []replicatedJob `json:"replicatedJobs"`
	}{[]replicatedJob{part}})
	if err != nil {
		return nil, fmt.Errorf("make the JobSet of TrainJob %s: %w", o.GetName(), err)
	}
	set := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": content,
		"metadata": map[string]any{"name": o.GetName(), "namespace": o.GetNamespace()},
	}}
	set.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(o, o.GroupVersionKind())})
	return append(made, set), nil
}

// nodesOf is the Job of a runtime with what a TrainJob says of it.
func nodesOf(o *unstructured.Unstructured, job *batchv1.JobSpec, spec *trainSpec) batchv1.JobSpec {
	nodes := int32(spec.Trainer.NumNodes)
	out := *job.DeepCopy()
	out.Parallelism, out.Completions = &nodes, &nodes
	out.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	processes := "auto"
	if spec.Trainer.NumProcPerNode != nil {
		processes = strconv.Itoa(*spec.Trainer.NumProcPerNode)
	}
	for i := range out.Template.Spec.Containers {
		c := &out.Template.Spec.Containers[i]
		c.Resources = spec.Trainer.ResourcesPerNode
		c.Env = append(c.Env, variables("PET_NNODES", strconv.Itoa(int(nodes)), "PET_NPROC_PER_NODE", processes,
			"PET_MASTER_ADDR", fmt.Sprintf("%s-node-0-0.%[1]s", o.GetName()), "PET_MASTER_PORT", "29500")...)
	}
	return out
}

// variables are pairs of names and values.
func variables(pairs ...string) []corev1.EnvVar {
	var out []corev1.EnvVar
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, corev1.EnvVar{Name: pairs[i], Value: pairs[i+1]})
	}
	return out
}
