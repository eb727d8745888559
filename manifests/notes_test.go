// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"strings"
	"testing"
)

func TestTheNotesWarnOfWhatIsLeftOut(t *testing.T) {
	for name, c := range map[string]struct {
		set  values
		want []string // in the notes
		not  string
	}{
		"the defaults":             {nil, []string{"in namespace team", "kubectl -n team get pods", "2 replica(s)"}, "WARNING"},
		"no webhook":               {values{"webhook.enabled": false}, []string{"webhook        none", "WARNING: without the webhook"}, ""},
		"no keeper":                {values{"keeper.enabled": false}, []string{"keeper         none: no device is offered in mode mps"}, ""},
		"devices nobody asked for": {values{"unaskedDevices.policy": "void"}, []string{"get none from NVIDIA's runtime"}, "WARNING"},
		"privileged pods refused": {values{"unaskedDevices.policy": "deny", "webhook.enabled": false}, []string{
			"WARNING: privileged pods", "kube-node-lease, team, gpu-operator.", "an image that names every device"}, ""},
		"no scheduler":              {values{"scheduler.replicas": 0}, []string{"WARNING: no scheduler runs"}, ""},
		"Volcano's scheduler":       {values{"scheduler.enabled": false, "scheduler.replicas": 0}, []string{"scheduler      none: Volcano's own places pods"}, "WARNING"},
		"own configuration":         {values{"createConfig": false}, []string{"which are yours"}, ""},
		"another scheduler's name":  {values{"schedulerName": "gpu"}, []string{"schedulerName: gpu", `"schedulerName":"gpu"`, "NOTE: the scheduler's name is gpu"}, ""},
		"selected nodes for GPUs":   {values{"devicePlugin.nodeSelector": map[string]any{"a": "b"}}, []string{"on the selected nodes"}, "every node"},
		"the GPU operator":          {values{"gpuOperator.enabled": true}, []string{"on nodes with the label nvidia.com/gpu.deploy.client=true; driver"}, ""},
		"a driver in its container": {values{"devicePlugin.driverRoot": "/run/nvidia/driver"}, []string{"driver at /run/nvidia/driver"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := runHelm(t, c.set, "install", "deviceshare", "chart", "--namespace=team", "--dry-run=client")
			if err != nil {
				t.Fatal(err)
			}
			_, notes, _ := strings.Cut(out, "\nNOTES:\n")
			for _, want := range c.want {
				if !strings.Contains(notes, want) {
					t.Errorf("the notes lack %q:\n%s", want, notes)
				}
			}
			if c.not != "" && strings.Contains(notes, c.not) {
				t.Errorf("the notes have %q:\n%s", c.not, notes)
			}
		})
	}
}
