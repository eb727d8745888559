// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"deviceshare/e2e/laboratory/frameworks"
	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
)

// defineKinds defines the kinds of the operators that are not there, so that their objects are made
// as users make them, and own what is made of them.
func (w *world) defineKinds(t *testing.T) {
	t.Helper()
	resources := w.resources(t)
	for _, k := range frameworks.Kinds() {
		scope := "Namespaced"
		if k.Cluster {
			scope = "Cluster"
		}
		definition := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": k.Plural + "." + k.Group},
			"spec": map[string]any{
				"group": k.Group, "scope": scope,
				"names": map[string]any{"kind": k.Kind, "plural": k.Plural, "singular": strings.ToLower(k.Kind)},
				"versions": []any{map[string]any{
					"name": k.Version, "served": true, "storage": true,
					"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
				}},
			},
		}}
		to := resources(definition)
		if _, err := to.Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
			t.Fatalf("define %s: %v", k.Kind, err)
		}
		t.Cleanup(func() {
			if err := to.Delete(context.Background(), definition.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Errorf("remove the definition of %s: %v", k.Kind, err)
			}
		})
		w.waitServed(t, definition, k)
	}
}

// waitServed waits until objects of a kind can be made.
func (w *world) waitServed(t *testing.T, definition *unstructured.Unstructured, k frameworks.Kind) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), slack*time.Minute)
	defer cancel()
	for {
		kinds, err := w.cluster.Client().Discovery().ServerResourcesForGroupVersion(k.Group + "/" + k.Version)
		if err == nil && slices.ContainsFunc(kinds.APIResources, func(r metav1.APIResource) bool { return r.Kind == k.Kind }) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s is not served: %v", definition.GetName(), ctx.Err())
		}
		sleep(ctx, 100*time.Millisecond)
	}
}

// make creates an object, dressed, and what its operator makes of it. What it returns is all that
// was made, the object first. The object is removed at the end, and with it what it owns.
func (w *world) make(ctx context.Context, t *testing.T, u *user.User, o *unstructured.Unstructured, others []*unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	if err := frameworks.Dress(o, sandbox.ImageCUDAClient); err != nil {
		t.Fatal(err)
	}
	o.SetNamespace(u.Namespace())
	for _, k := range frameworks.Kinds() {
		if k.Kind == o.GetKind() && k.Cluster {
			o.SetNamespace("")
		}
	}
	to := w.resources(t)(o)
	created, err := to.Create(ctx, o, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create %s %s: %v", o.GetKind(), o.GetName(), err)
	}
	t.Cleanup(func() {
		background := metav1.DeletePropagationBackground
		err := to.Delete(context.Background(), o.GetName(), metav1.DeleteOptions{PropagationPolicy: &background})
		if err != nil && len(o.GetOwnerReferences()) == 0 {
			t.Errorf("delete %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	})
	made, err := frameworks.Make(created, others)
	if err != nil {
		t.Fatal(err)
	}
	all := []*unstructured.Unstructured{created}
	for _, m := range made {
		all = append(all, w.make(ctx, t, u, m, nil)...)
		if m.GetKind() == "PodGroup" && frameworks.QueuesFirst(created) {
			w.waitQueued(ctx, t, m)
		}
	}
	return all
}

// waitQueued waits until Volcano has taken a pod group into its queue.
func (w *world) waitQueued(ctx context.Context, t *testing.T, group *unstructured.Unstructured) {
	t.Helper()
	from := w.resources(t)(group)
	for {
		g, err := from.Get(ctx, group.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatalf("wait until the pod group %s is in the queue: %v", group.GetName(), err)
		}
		if phase, _, _ := unstructured.NestedString(g.Object, "status", "phase"); phase != "" && phase != "Pending" {
			return
		}
		sleep(ctx, 100*time.Millisecond)
	}
}

// manifest reads the objects of a manifest.
func manifest(t *testing.T, name string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(frameworksRoot, name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := frameworks.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}
