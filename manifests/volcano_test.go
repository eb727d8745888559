// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"deviceshare/sharing/rivals"
)

// kinds are the API that the chart uses, by group and version: each plural with its kind.
func kinds() map[string]map[string]string {
	return map[string]map[string]string{
		"v1":      {"namespaces": "Namespace", "serviceaccounts": "ServiceAccount", "secrets": "Secret", "configmaps": "ConfigMap", "services": "Service"},
		"apps/v1": {"deployments": "Deployment", "daemonsets": "DaemonSet"}, "batch/v1": {"jobs": "Job", "cronjobs": "CronJob"},
		"policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"}, "coordination.k8s.io/v1": {"leases": "Lease"},
		"rbac.authorization.k8s.io/v1": {"roles": "Role", "rolebindings": "RoleBinding", "clusterroles": "ClusterRole", "clusterrolebindings": "ClusterRoleBinding"},
		"admissionregistration.k8s.io/v1": {"mutatingwebhookconfigurations": "MutatingWebhookConfiguration",
			"validatingwebhookconfigurations":   "ValidatingWebhookConfiguration",
			"validatingadmissionpolicies":       "ValidatingAdmissionPolicy",
			"validatingadmissionpolicybindings": "ValidatingAdmissionPolicyBinding"},
	}
}

// discovery are the answers to what the API server knows, by their paths.
func discovery() map[string]any {
	groups := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	out := map[string]any{
		"/version": version.Info{Major: "1", Minor: "34", GitVersion: "v1.34.1"},
		"/api":     metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}},
	}
	for groupVersion, resources := range kinds() {
		list := metav1.APIResourceList{GroupVersion: groupVersion}
		for plural, kind := range resources {
			isGlobal := kind == "Namespace" || strings.HasPrefix(kind, "Cluster") || groupVersion == "admissionregistration.k8s.io/v1"
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: plural, Kind: kind, Namespaced: !isGlobal, Verbs: metav1.Verbs{"get", "list"}})
		}
		group, _, named := strings.Cut(groupVersion, "/")
		if !named {
			out["/api/v1"] = list
			continue
		}
		out["/apis/"+groupVersion] = list
		v := metav1.GroupVersionForDiscovery{GroupVersion: groupVersion, Version: "v1"}
		groups.Groups = append(groups.Groups, metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
	}
	out["/apis"] = groups
	return out
}

// cluster is a cluster with one Deployment, one namespace and some ConfigMaps, as far as helm looks
// at it before it installs something.
func cluster(t *testing.T, d appsv1.Deployment, settings ...corev1.ConfigMap) (address string) {
	t.Helper()
	d.Namespace, d.Name = "batch", "its-scheduler"
	answers := discovery()
	answers["/apis/apps/v1/deployments"] = appsv1.DeploymentList{TypeMeta: metav1.TypeMeta{Kind: "DeploymentList", APIVersion: "apps/v1"}, Items: []appsv1.Deployment{d}}
	answers["/api/v1/namespaces/kube-system"] = corev1.Namespace{TypeMeta: metav1.TypeMeta{Kind: "Namespace", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}
	for _, m := range settings {
		m.TypeMeta = metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}
		answers["/api/v1/namespaces/"+m.Namespace+"/configmaps/"+m.Name] = m
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, known := answers[r.URL.Path]
		if !known {
			w.WriteHeader(http.StatusNotFound)
			answer = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: "NotFound", Code: 404}
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// renderIn is template with a cluster at hand, as `helm install` renders.
func renderIn(t *testing.T, address string, v values, more ...string) (string, error) {
	t.Helper()
	return runHelm(t, v, append([]string{"template", "deviceshare", "chart", "--namespace=deviceshare-system",
		"--dry-run=server", "--disable-openapi-validation", "--kube-apiserver=" + address}, more...)...)
}

// The scheduler itself refuses the same, while it runs.
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
		"which places the pods":          {&one, corev1.Container{Image: image}, values{"scheduler.enabled": false}, false},
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
			if _, off := c.set["volcano.checkScheduler"]; !off && c.set["scheduler.enabled"] == nil {
				ours, _ := c.set["schedulerName"].(string)
				words := slices.Concat(c.container.Command, c.container.Args)
				found := rivals.Find(&rivals.Facts{Names: []string{cmp.Or(ours, "volcano")}, Deployments: []rivals.Deployment{
					{Object: rivals.Object{Namespace: "batch", Name: "its-scheduler"}, Replicas: *c.replicas, Containers: []rivals.Container{{Image: c.container.Image, Words: words}}}}})
				if refused := len(found) > 0; refused != c.refused {
					t.Errorf("the scheduler refuses to work: %v, Helm to install it: %v", refused, c.refused)
				}
			}
			_, err := renderIn(t, cluster(t, d), c.set)
			if !c.refused {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "kubectl -n batch scale deployment its-scheduler --replicas=0") {
				t.Errorf("got %v", err)
			}
		})
	}
}
