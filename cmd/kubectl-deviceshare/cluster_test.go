// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	volcano "volcano.sh/apis/pkg/client/clientset/versioned"
	volcanofake "volcano.sh/apis/pkg/client/clientset/versioned/fake"

	"deviceshare/config"
	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/view"
	"deviceshare/view/capture"
)

func configMap(namespace, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: config.DeviceName}, Data: map[string]string{config.DeviceKey: text},
	}
}

func clients(core ...runtime.Object) (*fake.Clientset, *volcanofake.Clientset) {
	plain := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	core = append(core, node("node-1", device("node-1", 0, "A30", sharing.HAMiCore)), asking("default", "train", "gang", 1024, 0), plain)
	return fake.NewClientset(core...), volcanofake.NewSimpleClientset(group("default", "gang", "research", 2), queue("research", 4, 1))
}

// readFrom reads what the views need from two clients.
func readFrom(ctx context.Context, core kubernetes.Interface, batch volcano.Interface, configNamespace string) (*capture.State, error) {
	s := &capture.State{}
	return s, readInto(ctx, core, batch, configNamespace, s)
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
	if said := w.Text(view.Paint{}); strings.Contains(said, "does not exist") {
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
	target := &rest.Config{Host: server.URL}
	s, err := readFrom(t.Context(), kubernetes.NewForConfigOrDie(target), volcano.NewForConfigOrDie(target), "kube-system")
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

func TestACaptureHasWhatASimulationNeeds(t *testing.T) {
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 7}
	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "here", Name: schedulerConfigName}, Data: map[string]string{schedulerConfigKey: "actions"},
	}
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 3},
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{"team": "a"}}}
	core, batch := clients(class, config, budget, namespace)
	s := &capture.State{Scheduling: &capture.Scheduling{}}
	if err := errors.Join(readInto(t.Context(), core, batch, "kube-system", s), readScheduling(t.Context(), core, "here", s)); err != nil {
		t.Fatal(err)
	}
	got := s.Scheduling
	if len(got.Nodes) != 1 || len(got.Pods) != 2 || len(got.Queues) != 1 || len(got.Classes) != 1 || got.Classes[0].Value != 7 || got.Config == nil || *got.Config != "actions" {
		t.Errorf("got %+v", got)
	}
	if len(got.Budgets) != 1 || got.Budgets[0].Status.DisruptionsAllowed != 3 || len(got.Namespaces) != 1 || got.Namespaces[0].Labels["team"] != "a" {
		t.Errorf("got budgets %+v and namespaces %+v", got.Budgets, got.Namespaces)
	}
	if len(s.Pods) != 1 {
		t.Errorf("views see %d pods, want the one with devices", len(s.Pods))
	}
}

func TestWithoutTheRightToReadWhatOnlySimulationsNeedTheRestIsCaptured(t *testing.T) {
	core, batch := clients()
	forbid(&core.Fake, "get", "configmaps")
	for _, resource := range []string{"priorityclasses", "poddisruptionbudgets", "namespaces"} {
		forbid(&core.Fake, "list", resource)
	}
	s := &capture.State{Scheduling: &capture.Scheduling{}}
	if err := errors.Join(readInto(t.Context(), core, batch, "kube-system", s), readScheduling(t.Context(), core, "here", s)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"list priorityclasses.scheduling.k8s.io", "list poddisruptionbudgets.policy", "list namespaces", "get configmaps/" + schedulerConfigName + " -n here"} {
		if !slices.Contains(s.Forbidden, want) {
			t.Errorf("forbidden %q, want %q among it", s.Forbidden, want)
		}
	}
}

// The program stands in for the simulator: it prints what it was given.
func TestSimulateHandsItsArgumentsToTheProgramBesideIt(t *testing.T) {
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir+"/", ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	self := filepath.Join(dir, "kubectl-deviceshare")
	alone := exec.Command(self, "simulate", "x")
	alone.Env = []string{"PATH=/nowhere"}
	if out, err := alone.CombinedOutput(); err == nil || !strings.Contains(string(out), "docs/simulate.md") {
		t.Errorf("without the simulator: %v %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, simulator), []byte("#!/bin/sh\necho \"$@\"; exit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(self, "simulate", "cluster.jsonl", "--add", "-", "-o", "json").CombinedOutput()
	var status *exec.ExitError
	if string(out) != "cluster.jsonl --add - -o json\n" || !errors.As(err, &status) || status.ExitCode() != 3 {
		t.Errorf("got %q, %v", out, err)
	}
}
