// SPDX-License-Identifier: Apache-2.0

package frameworks

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// workflowSpec is what a Workflow says, as far as its steps are known here.
type workflowSpec struct {
	Entrypoint    string             `json:"entrypoint"`
	SchedulerName string             `json:"schedulerName"`
	Templates     []workflowTemplate `json:"templates"`
}

type workflowTemplate struct {
	Name      string            `json:"name"`
	Metadata  metav1.ObjectMeta `json:"metadata"`
	Container *corev1.Container `json:"container"`
	Steps     [][]struct {
		Name     string `json:"name"`
		Template string `json:"template"`
		Sequence *struct {
			Count string `json:"count"`
		} `json:"withSequence"`
	} `json:"steps"`
}

// Steps returns the pods of a Workflow, which must have its UID: those of one element run beside
// each other, once those of the element before have succeeded.
func Steps(o *unstructured.Unstructured) ([][]*unstructured.Unstructured, error) {
	var spec workflowSpec
	if err := field(o, &spec, "spec"); err != nil {
		return nil, err
	}
	templates := map[string]*workflowTemplate{}
	for i := range spec.Templates {
		templates[spec.Templates[i].Name] = &spec.Templates[i]
	}
	entry := templates[spec.Entrypoint]
	if entry == nil {
		return nil, fmt.Errorf("make pods of Workflow %s: it has no template %q", o.GetName(), spec.Entrypoint)
	}
	var all [][]*unstructured.Unstructured
	for _, beside := range entry.Steps {
		var pods []*unstructured.Unstructured
		for _, step := range beside {
			t, count := templates[step.Template], 1
			if t == nil || t.Container == nil {
				return nil, fmt.Errorf("make pods of Workflow %s: step %s: template %q has no container", o.GetName(), step.Name, step.Template)
			}
			if step.Sequence != nil {
				n, err := strconv.Atoi(step.Sequence.Count)
				if err != nil {
					return nil, fmt.Errorf("make pods of Workflow %s: step %s: count: %w", o.GetName(), step.Name, err)
				}
				count = n
			}
			for i := range count {
				pod, err := object(stepPod(o, t, fmt.Sprintf("%s-%d", step.Name, i), spec.SchedulerName), "v1", "Pod", o)
				if err != nil {
					return nil, err
				}
				pods = append(pods, pod)
			}
		}
		all = append(all, pods)
	}
	return all, nil
}

// stepPod is the pod of one step: an init container that brings the executor, a container that
// waits for the main one, and the main one, which the executor starts.
func stepPod(o *unstructured.Unstructured, t *workflowTemplate, step, scheduler string) *corev1.Pod {
	shared := corev1.VolumeMount{Name: "var-run-argo", MountPath: "/var/run/argo"}
	executor := func(name string, command ...string) corev1.Container {
		return corev1.Container{
			Name: name, Image: "argoproj/argoexec:v4.1.2", Command: command,
			Env: variables("ARGO_CONTAINER_NAME", name), VolumeMounts: []corev1.VolumeMount{shared},
		}
	}
	main := *t.Container.DeepCopy()
	main.Name = "main"
	main.Command = append([]string{"/var/run/argo/argoexec", "emissary", "--"}, main.Command...)
	main.VolumeMounts = append(main.VolumeMounts, shared)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: o.GetName() + "-" + step, Namespace: o.GetNamespace(),
			Labels:      put(t.Metadata.Labels, map[string]string{"workflows.argoproj.io/workflow": o.GetName(), "workflows.argoproj.io/completed": "false"}),
			Annotations: put(t.Metadata.Annotations, map[string]string{"workflows.argoproj.io/node-name": o.GetName() + "." + step, "kubectl.kubernetes.io/default-container": "main"}),
		},
		Spec: corev1.PodSpec{
			SchedulerName: scheduler, RestartPolicy: corev1.RestartPolicyNever,
			Volumes:        []corev1.Volume{{Name: "var-run-argo", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
			InitContainers: []corev1.Container{executor("init", "argoexec", "init")},
			Containers:     []corev1.Container{executor("wait", "argoexec", "wait"), main},
		},
	}
	return p
}
