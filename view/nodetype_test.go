// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"deviceshare/sharing/factory"
	"deviceshare/view"
	"deviceshare/view/capture"
)

// offering is a node of a type with these amounts of what pods ask for.
func offering(instance string, amounts map[string]string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{}}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse("96")}}}
	if instance != "" {
		n.Labels["node.kubernetes.io/instance-type"] = instance
	}
	for name, amount := range amounts {
		n.Status.Allocatable[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return n
}

func TestEachAutoscalerIsToldInItsOwnForm(t *testing.T) {
	n := offering("p4d.24xlarge", map[string]string{"volcano.sh/vgpu-number": "80", "volcano.sh/vgpu-memory": "320k", "volcano.sh/vgpu-cores": "800", "nvidia.com/gpu": "8"})
	got, ok := view.Read(&capture.State{}, factory.New()).NodeTypeOf(n)
	if !ok {
		t.Fatal("the node offers nothing")
	}
	tags := "k8s.io/cluster-autoscaler/node-template/resources/volcano.sh/vgpu-number=80\n" +
		"k8s.io/cluster-autoscaler/node-template/resources/volcano.sh/vgpu-memory=320000\n" +
		"k8s.io/cluster-autoscaler/node-template/resources/volcano.sh/vgpu-cores=800\n"
	for autoscaler, want := range map[string]string{
		"aws": tags, "tencent": tags,
		"azure": "k8s.io_cluster-autoscaler_node-template_resources_volcano.sh_vgpu-number=80\n" +
			"k8s.io_cluster-autoscaler_node-template_resources_volcano.sh_vgpu-memory=320000\n" +
			"k8s.io_cluster-autoscaler_node-template_resources_volcano.sh_vgpu-cores=800\n",
		"cluster-api": "capacity.cluster-autoscaler.kubernetes.io/gpu-type=volcano.sh/vgpu-number\ncapacity.cluster-autoscaler.kubernetes.io/gpu-count=80\n",
		"karpenter": "apiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata:\n  name: deviceshare-p4d.24xlarge\nspec:\n  requirements:\n" +
			"  - {key: node.kubernetes.io/instance-type, operator: In, values: [\"p4d.24xlarge\"]}\n" +
			"  capacity:\n    volcano.sh/vgpu-number: \"80\"\n    volcano.sh/vgpu-memory: \"320000\"\n    volcano.sh/vgpu-cores: \"800\"\n",
	} {
		text, err := got.Text(autoscaler)
		if err != nil || text != want {
			t.Errorf("%s is told\n%s%v\nwant\n%s", autoscaler, text, err, want)
		}
		if autoscaler == "karpenter" {
			var read struct {
				Spec struct{ Capacity corev1.ResourceList }
			}
			err := yaml.Unmarshal([]byte(text), &read)
			if memory := read.Spec.Capacity["volcano.sh/vgpu-memory"]; err != nil || memory.Value() != 320000 {
				t.Errorf("read as %v, %v", read, err)
			}
		}
	}
	for _, name := range view.Autoscalers() {
		if _, err := got.Text(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := got.Text("gke"); err == nil || !strings.Contains(err.Error(), "want one of aws, azure, cluster-api, karpenter, tencent") {
		t.Errorf("%v", err)
	}
}

func TestANodeTypeIsOneThatOffersDevices(t *testing.T) {
	names := "nvidia:\n  resourceCountName: example.com/shares\n"
	c := view.Read(&capture.State{DeviceConfig: &names}, factory.New())
	for name, n := range map[string]*corev1.Node{
		"no devices": offering("a", nil), "none left": offering("a", map[string]string{"example.com/shares": "0"}), "another name": offering("a", map[string]string{"volcano.sh/vgpu-number": "80"}),
		"memory only": offering("a", map[string]string{"volcano.sh/vgpu-memory": "80"}),
	} {
		if got, ok := c.NodeTypeOf(n); ok {
			t.Errorf("%s: %+v", name, got)
		}
	}
	got, ok := c.NodeTypeOf(offering("", map[string]string{"example.com/shares": "80"}))
	if text, err := got.Text("aws"); !ok || err != nil || text != "k8s.io/cluster-autoscaler/node-template/resources/example.com/shares=80\n" {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := got.Text("karpenter"); err == nil || !strings.Contains(err.Error(), "node.kubernetes.io/instance-type") {
		t.Errorf("a node without a type: %v", err)
	}
	got.Instance = "Standard_ND96asr_v4"
	if text, err := got.Text("karpenter"); err != nil || !strings.Contains(text, "name: deviceshare-standard-nd96asr-v4\n") || !strings.Contains(text, `["Standard_ND96asr_v4"]`) {
		t.Errorf("%s, %v", text, err)
	}
	got.Instance = "a\nb: c"
	if text, err := got.Text("karpenter"); err == nil {
		t.Errorf("a hostile type gives %s", text)
	}
}
