// SPDX-License-Identifier: Apache-2.0

package frameworks

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// transformation is how Kueue is told to count one resource as others.
type transformation struct {
	Input      corev1.ResourceName `json:"input"`
	Strategy   string              `json:"strategy"`
	MultiplyBy corev1.ResourceName `json:"multiplyBy"`
	Outputs    corev1.ResourceList `json:"outputs"`
}

// Counted is what Kueue counts of a Job: what one pod asks for, limits for missing requests,
// transformed as its configuration says, times the pods. No configuration counts the resources as
// they are.
func Counted(job *unstructured.Unstructured, configuration []byte) (corev1.ResourceList, error) {
	var c struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Resources  struct {
			Transformations []transformation `json:"transformations"`
		} `json:"resources"`
	}
	if err := yaml.UnmarshalStrict(configuration, &c); err != nil {
		return nil, fmt.Errorf("read Kueue's configuration: %w", err)
	}
	pods, template := 1, corev1.PodTemplateSpec{}
	if err := field(job, &pods, "spec", "parallelism"); err != nil {
		return nil, err
	}
	if err := field(job, &template, "spec", "template"); err != nil {
		return nil, err
	}
	one := corev1.ResourceList{}
	add(one, &template, 1)
	sum := corev1.ResourceList{}
	for range pods {
		for name, quantity := range transformed(one, c.Resources.Transformations) {
			total := sum[name]
			total.Add(quantity)
			sum[name] = total
		}
	}
	return sum, nil
}

// transformed applies transformations to what one pod asks for.
func transformed(in corev1.ResourceList, by []transformation) corev1.ResourceList {
	out := in.DeepCopy()
	for _, t := range by {
		amount, there := in[t.Input]
		if !there {
			continue
		}
		if t.Strategy == "Replace" {
			delete(out, t.Input)
		}
		value := amount.Value()
		if factor, there := in[t.MultiplyBy]; there {
			value *= factor.Value()
		}
		for name, each := range t.Outputs {
			total := out[name]
			total.Add(*resource.NewQuantity(value*each.Value(), resource.DecimalSI))
			out[name] = total
		}
	}
	return out
}

// quota is the part of a ClusterQueue that says how much of what its jobs may hold.
type quota struct {
	CoveredResources []corev1.ResourceName `json:"coveredResources"`
	Flavors          []struct {
		Resources []struct {
			Name         corev1.ResourceName `json:"name"`
			NominalQuota resource.Quantity   `json:"nominalQuota"`
		} `json:"resources"`
	} `json:"flavors"`
}

// Quota is how much of each resource a ClusterQueue gives out. A job that asks for a resource that
// is not among them is never admitted.
func Quota(queue *unstructured.Unstructured) (corev1.ResourceList, error) {
	var groups []quota
	if err := field(queue, &groups, "spec", "resourceGroups"); err != nil {
		return nil, err
	}
	out := corev1.ResourceList{}
	for _, g := range groups {
		for _, f := range g.Flavors {
			for _, r := range f.Resources {
				total := out[r.Name]
				total.Add(r.NominalQuota)
				out[r.Name] = total
			}
		}
	}
	return out, nil
}
