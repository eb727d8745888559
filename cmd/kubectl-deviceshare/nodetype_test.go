// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/fake"
)

func TestANodesTypeIsWrittenByTheNamesOfTheConfiguration(t *testing.T) {
	n := publishing(t, "")
	n.Status.Allocatable = quantities(80, 327680, 0)
	n.Status.Allocatable["example.com/shares"] = n.Status.Allocatable["volcano.sh/vgpu-number"]
	renamed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "volcano-vgpu-device-config"}, Data: map[string]string{"device-config.yaml": "nvidia:\n  resourceCountName: example.com/shares\n"}}
	for name, c := range map[string]struct {
		core       *fake.Clientset
		autoscaler string
		output     string
		want, err  string
	}{
		"the default names":  {fake.NewClientset(n), "aws", "table", "k8s.io/cluster-autoscaler/node-template/resources/volcano.sh/vgpu-number=80\nk8s.io/cluster-autoscaler/node-template/resources/volcano.sh/vgpu-memory=327680\n", ""},
		"names of their own": {fake.NewClientset(n, renamed), "cluster-api", "table", "capacity.cluster-autoscaler.kubernetes.io/gpu-type=example.com/shares\ncapacity.cluster-autoscaler.kubernetes.io/gpu-count=80\n", ""},
		"for a program":      {fake.NewClientset(n, renamed), "aws", "json", "{\n  \"offers\": [\n    {\n      \"resource\": \"example.com/shares\",\n      \"amount\": \"80\"\n    },\n", ""},
		"no such node":       {fake.NewClientset(), "aws", "table", "", "there is no node n1"},
		"no devices":         {fake.NewClientset(publishing(t, "")), "aws", "table", "", "does the device plugin run there?"},
		"no such autoscaler": {fake.NewClientset(n), "gke", "table", "", `--for: unknown autoscaler "gke"`},
		"no such output":     {fake.NewClientset(n), "aws", "xml", "", `unknown output "xml"`},
	} {
		streams, _, out, _ := genericiooptions.NewTestIOStreams()
		o := &options{streams: streams, output: c.output, configNamespace: "kube-system"}
		err := o.showNodeType(t.Context(), c.core, "n1", c.autoscaler)
		if c.err == "" && (err != nil || !strings.HasPrefix(out.String(), c.want)) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %q, %v; want %q, %s", name, out, err, c.want, c.err)
		}
	}
}
