// SPDX-License-Identifier: Apache-2.0

package frameworks

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"deviceshare/e2e/workload"
)

// rayGroup is the head or one group of workers of a RayCluster.
type rayGroup struct {
	GroupName      string                 `json:"groupName"`
	Replicas       int                    `json:"replicas"`
	RayStartParams map[string]string      `json:"rayStartParams"`
	Template       corev1.PodTemplateSpec `json:"template"`
}

// raySpec is what a RayCluster says.
type raySpec struct {
	Head    rayGroup   `json:"headGroupSpec"`
	Workers []rayGroup `json:"workerGroupSpecs"`
}

// rayCluster makes a group, the head, and workers that wait for it, as with the operator's option
// --batch-scheduler=volcano.
func rayCluster(o *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var spec raySpec
	if err := field(o, &spec, "spec"); err != nil {
		return nil, err
	}
	spec.Head.GroupName, spec.Head.Replicas = "headgroup", 1
	members, sum := 0, corev1.ResourceList{}
	groups := append([]rayGroup{spec.Head}, spec.Workers...)
	for i := range groups {
		members += groups[i].Replicas
		add(sum, &groups[i].Template, groups[i].Replicas)
	}
	made := []*unstructured.Unstructured{podGroup(o, "ray-"+o.GetName()+"-pg", members, sum)}
	for i := range groups {
		for k := range groups[i].Replicas {
			pod, err := object(rayPod(o, &groups[i], i == 0, k), "v1", "Pod", o)
			if err != nil {
				return nil, err
			}
			made = append(made, pod)
		}
	}
	return made, nil
}

// rayPod is the head or one worker. What Ray counts is in a variable with the command that starts
// it.
func rayPod(o *unstructured.Unstructured, g *rayGroup, head bool, index int) *corev1.Pod {
	t := g.Template.DeepCopy()
	p := &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	kind, address := "worker", o.GetName()+"-head-svc."+o.GetNamespace()+".svc.cluster.local"
	if head {
		kind = "head"
	}
	p.Name, p.Namespace = fmt.Sprintf("%s-%s-%s-%d", o.GetName(), g.GroupName, kind, index), o.GetNamespace()
	p.Labels = put(p.Labels, map[string]string{
		"ray.io/is-ray-node": "yes", "ray.io/cluster": o.GetName(), "ray.io/node-type": kind, "ray.io/group": g.GroupName,
		"volcano.sh/queue-name": o.GetLabels()["volcano.sh/queue-name"], "app.kubernetes.io/created-by": "kuberay-operator",
	})
	p.Annotations = put(p.Annotations, map[string]string{workload.GroupKey: "ray-" + o.GetName() + "-pg", taskKey: g.GroupName})
	p.Spec.SchedulerName = "volcano"
	medium := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "shared-mem", VolumeSource: medium})
	c := &p.Spec.Containers[0] // Ray's own by contract
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "shared-mem", MountPath: "/dev/shm"})
	c.Env = append(c.Env, variables("FQ_RAY_IP", address, "RAY_CLUSTER_NAME", o.GetName(), "KUBERAY_GEN_RAY_START_CMD", RayCommand(g.RayStartParams, c.Resources.Limits))...)
	if !head {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{
			Name: "wait-gcs-ready", Image: c.Image, Command: []string{"sh", "-c", "until ray health-check --address " + address + ":6379; do sleep 5; done"},
			Resources: small("200m", "256Mi"),
		})
	}
	return p
}

// RayCommand is the command that starts Ray. The operator derives num-gpus, where it is not given,
// from the first resource by name that ends with gpu, and that is not zero.
func RayCommand(params map[string]string, limits corev1.ResourceList) string {
	params = maps.Clone(params)
	if params == nil {
		params = map[string]string{}
	}
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		if quantity := limits[name]; params["num-gpus"] == "" && strings.HasSuffix(string(name), "gpu") && !quantity.IsZero() {
			params["num-gpus"] = strconv.FormatInt(quantity.Value(), 10)
		}
	}
	command := []string{"ray start"}
	for _, key := range slices.Sorted(maps.Keys(params)) {
		command = append(command, "--"+key+"="+params[key])
	}
	return strings.Join(command, " ")
}

// small is what an operator gives its waiting containers.
func small(cpu, memory string) corev1.ResourceRequirements {
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	return corev1.ResourceRequirements{Limits: list, Requests: list.DeepCopy()}
}
