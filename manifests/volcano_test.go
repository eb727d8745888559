// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
)

// cluster answers what helm asks while it renders a chart: versions, kinds, and the
// Deployments, of which it has one. It knows no other kind, so helm ends after that.
func cluster(t *testing.T, d appsv1.Deployment) string {
	t.Helper()
	d.Namespace, d.Name = "batch", "its-scheduler"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := func(v any) {
			if err := json.NewEncoder(w).Encode(v); err != nil {
				t.Error(err)
			}
		}
		apps := metav1.GroupVersionForDiscovery{GroupVersion: "apps/v1", Version: "v1"}
		switch r.URL.Path {
		case "/version":
			answer(version.Info{Major: "1", Minor: "34", GitVersion: "v1.34.1"})
		case "/api":
			answer(metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
		case "/apis":
			answer(metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{
				{Name: "apps", Versions: []metav1.GroupVersionForDiscovery{apps}, PreferredVersion: apps}}})
		case "/api/v1":
			answer(metav1.APIResourceList{GroupVersion: "v1"})
		case "/apis/apps/v1":
			answer(metav1.APIResourceList{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{
				{Name: "deployments", Namespaced: true, Kind: "Deployment", Verbs: metav1.Verbs{"get", "list"}}}})
		case "/apis/apps/v1/deployments":
			answer(appsv1.DeploymentList{TypeMeta: metav1.TypeMeta{Kind: "DeploymentList", APIVersion: "apps/v1"}, Items: []appsv1.Deployment{d}})
		default:
			w.WriteHeader(http.StatusNotFound)
			answer(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: "NotFound", Code: 404})
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestTheChartRefusesAClusterWhereVolcanosSchedulerRunsUnderTheSameName(t *testing.T) {
	none, one := int32(0), int32(1)
	const image = "docker.io/volcanosh/vc-scheduler:v1.14.1"
	for name, c := range map[string]struct {
		replicas  *int32
		container corev1.Container
		set       values
		refused   bool
	}{
		"as Volcano's chart installs it": {&one, corev1.Container{Image: image, Args: []string{"--logtostderr", "--leader-elect=true"}}, nil, true},
		"scaled to nothing":              {&none, corev1.Container{Image: image}, nil, false},
		"without the check":              {&one, corev1.Container{Image: image}, values{"volcano.checkScheduler": false}, false},
		"of another name":                {&one, corev1.Container{Image: image, Args: []string{"--scheduler-name=batch"}}, nil, false},
		"of another name, as two words":  {&one, corev1.Container{Image: image, Args: []string{"--scheduler-name", "batch"}}, nil, false},
		"of several names":               {&one, corev1.Container{Image: image, Args: []string{"--scheduler-name=batch,volcano"}}, nil, true},
		"of our other name":              {&one, corev1.Container{Image: image, Args: []string{"--scheduler-name=batch"}}, values{"schedulerName": "batch"}, true},
		"while ours has another name":    {&one, corev1.Container{Image: image}, values{"schedulerName": "batch"}, false},
		"from a mirror of the image":     {&one, corev1.Container{Image: "mirror.example.com/s:1", Command: []string{"/vc-scheduler", "-v=3"}}, nil, true},
		"which is our own":               {&one, corev1.Container{Image: "deviceshare/scheduler:v0.1.0", Args: []string{"--scheduler-name=volcano"}}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: c.replicas,
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{c.container}}}}}
			_, err := runHelm(t, c.set, "template", "deviceshare", "chart", "--dry-run=server", "--disable-openapi-validation", "--kube-apiserver="+cluster(t, d))
			if !c.refused {
				if err == nil || !strings.HasPrefix(err.Error(), "Error: unable to build kubernetes objects") {
					t.Errorf("the chart was not rendered: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "kubectl -n batch scale deployment its-scheduler --replicas=0") {
				t.Errorf("got %v", err)
			}
		})
	}
}
