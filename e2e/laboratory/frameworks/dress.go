// SPDX-License-Identifier: Apache-2.0

package frameworks

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"deviceshare/e2e/workload"
)

// noDevice is what a container prints that asks for none and sees none.
const noDevice = "no device"

// Checked is what a dressed container prints once it has checked what it got.
func Checked(c *corev1.Container) string {
	number := c.Resources.Limits[workload.Number]
	switch {
	case number.IsZero():
		return noDevice
	case c.Command[len(c.Command)-1] == "forever":
		return "forever pid="
	}
	return "hold seconds="
}

// templates are the places of pod specifications in the kinds that clusters know.
func templates(o *unstructured.Unstructured) [][]string {
	switch o.GetKind() {
	case "Pod":
		return [][]string{{"spec"}}
	case "Deployment", "Job":
		return [][]string{{"spec", "template", "spec"}}
	}
	return nil
}

// Dress gives the containers of an object the image of the fake CUDA client and steps that check
// what they got: all of the share that the container asks for, no more, and no device where it asks
// for none. It changes kinds only that make pods in a cluster without further operators.
func Dress(o *unstructured.Unstructured, image string) error {
	if o.GetAPIVersion() == "batch.volcano.sh/v1alpha1" {
		return dressTasks(o, image)
	}
	for _, path := range templates(o) {
		spec, found, err := unstructured.NestedMap(o.Object, path...)
		if err == nil && found {
			spec, err = dressed(spec, image)
		}
		if err == nil {
			err = unstructured.SetNestedMap(o.Object, spec, path...)
		}
		if err != nil {
			return fmt.Errorf("dress %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// dressTasks is Dress for a Job of Volcano's.
func dressTasks(o *unstructured.Unstructured, image string) error {
	tasks, _, err := unstructured.NestedSlice(o.Object, "spec", "tasks")
	if err != nil {
		return fmt.Errorf("dress Volcano's Job %s: %w", o.GetName(), err)
	}
	for i := range tasks {
		task, _ := tasks[i].(map[string]any)
		spec, _, err := unstructured.NestedMap(task, "template", "spec")
		if err == nil {
			spec, err = dressed(spec, image)
		}
		if err == nil {
			err = unstructured.SetNestedMap(task, spec, "template", "spec")
		}
		if err != nil {
			return fmt.Errorf("dress task %d of Volcano's Job %s: %w", i, o.GetName(), err)
		}
	}
	return unstructured.SetNestedSlice(o.Object, tasks, "spec", "tasks")
}

// dressed is a pod specification with the client's image and steps.
func dressed(spec map[string]any, image string) (map[string]any, error) {
	var pod corev1.PodSpec
	if err := convert(spec, &pod); err != nil {
		return nil, err
	}
	now, lasting := int64(0), pod.RestartPolicy == "" || pod.RestartPolicy == corev1.RestartPolicyAlways
	pod.TerminationGracePeriodSeconds = &now
	for i := range pod.InitContainers {
		dress(&pod.InitContainers[i], image, false)
	}
	for i := range pod.Containers {
		dress(&pod.Containers[i], image, lasting)
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(&pod)
}

// dress gives a container its steps. A lasting one goes on after them.
func dress(c *corev1.Container, image string, lasting bool) {
	c.Image, c.ImagePullPolicy, c.Args = image, corev1.PullNever, nil
	number, memory := c.Resources.Limits[workload.Number], c.Resources.Limits[workload.Memory]
	if number.IsZero() {
		line := `case "$(ls /dev)" in *nvidia*) echo a device; exit 9;; esac; echo ` + noDevice
		if lasting {
			line += "; exec sleep 100000"
		}
		c.Command = []string{"/usr/bin/sh", "-c", line}
		return
	}
	c.Command = append([]string{"/usr/bin/cudaclient", "info"}, steps(number.Value(), memory.Value())...)
	if lasting {
		c.Command = append(c.Command, "forever")
	} else {
		c.Command = append(c.Command, "hold", "1")
	}
}

// steps take nine tenths of the memory of each device, and must not get a fifth more.
func steps(devices, memory int64) []string {
	var out []string
	for i := range devices {
		out = append(out, "device", strconv.FormatInt(i, 10),
			"alloc", workload.MiB(memory*9/10), "expect", "ok", "alloc", workload.MiB(memory/5), "expect", "oom")
	}
	return out
}
