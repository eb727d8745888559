// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"deviceshare/e2e/user"
)

// Every example of manifests/examples is applied as a user would. A pod that
// restarts never ends with success, since its steps check what its README says;
// every other pod keeps running. What each container saw equals its annotation.
func testExamples(t *testing.T, w *world) {
	const root = "../../manifests/examples"
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	var lanes errgroup.Group // most of the time a pod waits for its kubelet
	lanes.SetLimit(3)
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		seen++
		lanes.Go(func() error {
			part(t, e.Name(), func(t *testing.T) {
				ctx, u := w.user(t, "example-"+e.Name(), 4*time.Minute)
				w.apply(ctx, t, u.Namespace(), filepath.Join(root, e.Name()))
				everyPodDoesItsWork(ctx, t, u)
			})
			return nil
		})
	}
	_ = lanes.Wait() // each example reports by itself
	if seen < 10 {
		t.Errorf("%d examples in %s: the folder is not where this suite looks", seen, root)
	}
}

// apply creates every object of every YAML file of a folder, and removes what is
// not a pod at the end.
func (w *world) apply(ctx context.Context, t *testing.T, namespace, folder string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no YAML in %s: %v", folder, err)
	}
	resources := w.resources(t)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects(t, text) {
			object.SetNamespace(namespace)
			resource := resources(object)
			if _, err := resource.Create(ctx, object, metav1.CreateOptions{}); err != nil {
				t.Fatalf("create %s %s: %v", object.GetKind(), object.GetName(), err)
			}
			if object.GetKind() == "Pod" {
				continue
			}
			t.Cleanup(func() {
				background := metav1.DeletePropagationBackground
				if err := resource.Delete(context.Background(), object.GetName(), metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
					t.Errorf("delete %s %s: %v", object.GetKind(), object.GetName(), err)
				}
			})
		}
	}
}

// resources returns what finds the place of an object at the API server.
func (w *world) resources(t *testing.T) func(*unstructured.Unstructured) dynamic.ResourceInterface {
	t.Helper()
	config := w.cluster.RestConfig()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(kinds))
	return func(object *unstructured.Unstructured) dynamic.ResourceInterface {
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			t.Fatal(err)
		}
		if mapping.Scope.Name() == meta.RESTScopeNameRoot {
			return client.Resource(mapping.Resource)
		}
		return client.Resource(mapping.Resource).Namespace(object.GetNamespace())
	}
}

// objects decodes YAML.
func objects(t *testing.T, text []byte) []*unstructured.Unstructured {
	t.Helper()
	var found []*unstructured.Unstructured
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var object map[string]any
		err := d.Decode(&object)
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if len(object) > 0 {
			found = append(found, &unstructured.Unstructured{Object: object})
		}
	}
}

// everyPodDoesItsWork waits for the pods that the objects bring about.
func everyPodDoesItsWork(ctx context.Context, t *testing.T, u *user.User) {
	t.Helper()
	pods, err := u.Pods(ctx)
	for err == nil && len(pods) == 0 { // a controller makes them
		sleep(ctx, 100*time.Millisecond)
		pods, err = u.Pods(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods {
		p, err := waitWork(ctx, u, &pods[i])
		if err != nil {
			t.Error(err)
			continue
		}
		if p.Status.Phase == corev1.PodFailed {
			log, _ := u.Log(ctx, p.Name, p.Spec.Containers[0].Name)
			t.Errorf("pod %s failed:\n%s", p.Name, log)
			continue
		}
		placement, err := user.Placement(p)
		if err != nil {
			t.Error(err)
			continue
		}
		t.Logf("%s: %s, %d containers with devices", p.Name, strings.ToLower(string(p.Status.Phase)), len(placement.Containers))
	}
}

func waitWork(ctx context.Context, u *user.User, p *corev1.Pod) (*corev1.Pod, error) {
	if p.Spec.RestartPolicy == corev1.RestartPolicyNever {
		return u.WaitDone(ctx, p.Name)
	}
	return u.WaitRunning(ctx, p.Name)
}
