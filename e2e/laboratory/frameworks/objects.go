// SPDX-License-Identifier: Apache-2.0

package frameworks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	resourcehelper "k8s.io/component-helpers/resource"

	"deviceshare/e2e/workload"
)

// Read decodes the objects of a manifest.
func Read(text []byte) ([]*unstructured.Unstructured, error) {
	var found []*unstructured.Unstructured
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var object map[string]any
		err := d.Decode(&object)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decode object %d of the manifest: %w", len(found), err)
		}
		if len(object) > 0 {
			found = append(found, &unstructured.Unstructured{Object: object})
		}
	}
}

// field copies what is at a path of an object into a value; nothing if there is nothing.
func field(o *unstructured.Unstructured, into any, path ...string) error {
	value, found, err := unstructured.NestedFieldNoCopy(o.Object, path...)
	if err == nil && found {
		err = convert(value, into)
	}
	if err != nil {
		return fmt.Errorf("read %v of %s %s: %w", path, o.GetKind(), o.GetName(), err)
	}
	return nil
}

// convert copies a decoded value into a typed one, whose fields have the same names.
func convert(value, into any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// object is a typed object of an owner as the API server takes it.
func object(o runtime.Object, apiVersion, kind string, owner *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("make a %s of %s %s: %w", kind, owner.GetKind(), owner.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())})
	delete(u.Object, "status")
	return u, nil
}

// podGroup is a group of an owner that starts only with so many members. Its resources are those of
// all templates.
func podGroup(owner *unstructured.Unstructured, name string, members int, resources corev1.ResourceList) *unstructured.Unstructured {
	g := workload.Group(name, members)
	sum := map[string]any{}
	for resource, quantity := range resources {
		sum[string(resource)] = quantity.String()
	}
	g.Object["spec"].(map[string]any)["minResources"] = sum
	g.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())})
	return g
}

// add adds what so many pods of a template ask for.
func add(sum corev1.ResourceList, template *corev1.PodTemplateSpec, pods int) {
	requests := resourcehelper.PodRequests(&corev1.Pod{Spec: *limitsAsRequests(&template.Spec)}, resourcehelper.PodResourcesOptions{})
	for name, quantity := range requests {
		total := sum[name]
		for range pods {
			total.Add(quantity)
		}
		sum[name] = total
	}
}

// limitsAsRequests is the specification as the API server completes it: a limit is a request where
// there is none.
func limitsAsRequests(spec *corev1.PodSpec) *corev1.PodSpec {
	spec = spec.DeepCopy()
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			r := &list[i].Resources
			if r.Requests == nil {
				r.Requests = corev1.ResourceList{}
			}
			for name, quantity := range r.Limits {
				if _, there := r.Requests[name]; !there {
					r.Requests[name] = quantity
				}
			}
		}
	}
	return spec
}

// put sets keys of a map that may be nil.
func put(m map[string]string, values map[string]string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	for k, v := range values {
		m[k] = v
	}
	return m
}
