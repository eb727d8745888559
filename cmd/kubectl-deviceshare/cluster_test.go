// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	volcano "volcano.sh/apis/pkg/client/clientset/versioned"
	volcanofake "volcano.sh/apis/pkg/client/clientset/versioned/fake"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/view"
)

func configMap(namespace, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: deviceConfigName}, Data: map[string]string{deviceConfigKey: text},
	}
}

func clients(core ...runtime.Object) (*fake.Clientset, *volcanofake.Clientset) {
	plain := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	core = append(core, node("node-1", device("node-1", 0, "A30", sharing.HAMiCore)), asking("default", "train", "gang", 1024, 0), plain)
	return fake.NewClientset(core...), volcanofake.NewSimpleClientset(group("default", "gang", "research", 2), queue("research", 4, 1))
}

// forbid makes the API server refuse one read.
func forbid(c *clienttesting.Fake, verb, resource string) {
	c.PrependReactor(verb, resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", fmt.Errorf("user has no right"))
	})
}

func TestAllThatIsNeededIsReadFromTheCluster(t *testing.T) {
	core, batch := clients(configMap("kube-system", "a"), configMap("volcano-system", "b"))
	s, err := readFrom(t.Context(), core, batch, "kube-system")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Nodes) != 1 || len(s.Pods) != 1 || len(s.Groups) != 1 || len(s.Queues) != 1 || s.DeviceConfig == nil || *s.DeviceConfig != "a" || len(s.Forbidden) > 0 {
		t.Errorf("got %+v", s)
	}
}

func TestTheConfigurationIsLookedForWhereTheSchedulerLooks(t *testing.T) {
	for name, c := range map[string]struct {
		maps  []runtime.Object
		first string
		want  string
	}{
		"in neither":             {nil, "kube-system", "none"},
		"only in volcano-system": {[]runtime.Object{configMap("volcano-system", "b")}, "kube-system", "b"},
		"in the one named":       {[]runtime.Object{configMap("volcano-system", "b"), configMap("mine", "c")}, "mine", "c"},
	} {
		t.Run(name, func(t *testing.T) {
			core, batch := clients(c.maps...)
			s, err := readFrom(t.Context(), core, batch, c.first)
			if err != nil {
				t.Fatal(err)
			}
			got := "none"
			if s.DeviceConfig != nil {
				got = *s.DeviceConfig
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestAMissingRightIsNamed(t *testing.T) {
	for resource, want := range map[string]string{
		"nodes": "you need the right to list nodes in the whole cluster", "pods": "you need the right to list pods in the whole cluster",
	} {
		core, batch := clients()
		forbid(&core.Fake, "list", resource)
		if _, err := readFrom(t.Context(), core, batch, "kube-system"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error that says %q", resource, err, want)
		}
	}
}

func TestWithoutTheRightToReadVolcanosObjectsTheRestIsShown(t *testing.T) {
	core, batch := clients()
	forbid(&core.Fake, "get", "configmaps")
	forbid(&batch.Fake, "list", "*")
	s, err := readFrom(t.Context(), core, batch, "kube-system")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"list queues.scheduling.volcano.sh", "list podgroups.scheduling.volcano.sh", "get configmaps/volcano-vgpu-device-config -n kube-system"}
	if !slices.Equal(s.Forbidden, want) {
		t.Errorf("forbidden %q, want %q", s.Forbidden, want)
	}
	path := file(t, s)
	text, err := run(t, "status", "--from", path)
	if err != nil || strings.Count(text, "do: kubectl auth can-i ") != len(want) {
		t.Errorf("the status names not all rights that are missing: %v\n%s", err, text)
	}
	w, _ := view.Read(s, factory.New()).Why("default", "train")
	if said := w.Text(view.Paint{}, true); strings.Contains(said, "does not exist") {
		t.Errorf("a group that may not be read is said not to exist: %s", said)
	}
}

func TestWithoutVolcanoTheRestIsShown(t *testing.T) {
	core, batch := clients()
	batch.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(a.GetResource().GroupResource(), "")
	})
	if s, err := readFrom(t.Context(), core, batch, "kube-system"); err != nil || len(s.Pods) != 1 || len(s.Forbidden) > 0 {
		t.Errorf("got %+v %v", s, err)
	}
}

// The server gives one object a page.
func TestEveryPageOfALongListIsRead(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/pods" && r.URL.Path != "/api/v1/nodes" {
			http.NotFound(w, r)
			return
		}
		names := []string{"a", "b", "c"}
		at := max(0, slices.Index(names, r.URL.Query().Get("continue")))
		p := asking("default", names[at], "gang", 1024, 0)
		list := &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []corev1.Pod{*p}}
		if at+1 < len(names) {
			list.Continue = names[at+1]
		}
		if r.URL.Path == "/api/v1/nodes" {
			list.Kind, list.Items, list.Continue = "NodeList", nil, ""
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(list); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	s, err := readFrom(t.Context(), kubernetes.NewForConfigOrDie(config), volcano.NewForConfigOrDie(config), "kube-system")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range s.Pods {
		names = append(names, p.Name)
	}
	if !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("read the pods %v", names)
	}
}
