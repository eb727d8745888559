// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/workload"
)

// testChart gives the chart to helm and to the API server as an administrator does who is about to
// change something: wrong values are refused with their path and change nothing, and what helm
// writes for kubectl is taken without a warning.
func testChart(t *testing.T, w *world) {
	t.Run("lint", w.helmLints)
	t.Run("wrong_values", w.wrongValuesAreRefused)
	t.Run("server_dry_run", w.serverTakesTheManifests)
	part(t, "additional_nodes", w.containersGetAdditionalNodes)
}

func (w *world) helmLints(t *testing.T) {
	out, err := w.cluster.Helm(t.Context(), "lint", "--strict", w.cluster.Chart())
	if err != nil || strings.Contains(out, "[WARNING]") {
		t.Errorf("%v\n%s", err, out)
	}
}

func (w *world) wrongValuesAreRefused(t *testing.T) {
	status := func() string {
		out, err := w.cluster.Helm(t.Context(), "history", sandbox.Release)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	before := status()
	for set, want := range map[string]string{
		"image.tag=v 1":                            "at '/image/tag': 'v 1' does not match",
		"scheduler.replica=2":                      "at '/scheduler': additional properties 'replica' not allowed",
		"webhook.replicas=two":                     "at '/webhook/replicas': got string, want integer",
		"devicePlugin.driverRoot=run/nvidia":       "at '/devicePlugin/driverRoot': 'run/nvidia' does not match",
		"devicePlugin.mpsShmSize=64MB":             "at '/devicePlugin/mpsShmSize': '64MB' does not match",
		"devicePlugin.gdsEnabled=often":            "at '/devicePlugin/gdsEnabled': got string, want boolean",
		"devicePlugin.imexChannelIDs={all}":        "at '/devicePlugin/imexChannelIDs/0': got string, want integer",
		"configNamespace=default":                  "at '/configNamespace': value must be one of 'kube-system', 'volcano-system'",
		"webhook.extraArgs={v=5}":                  "at '/webhook/extraArgs/0': 'v=5' does not match",
		"scheduler.resources.requests.cpu=plenty":  "at '/scheduler/resources/requests/cpu': 'plenty' does not match",
		"monitoring.podMonitor.interval=sometimes": "at '/monitoring/podMonitor/interval': 'sometimes' does not match",
	} {
		out, err := w.cluster.Upgrade(t.Context(), "--set", set)
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("helm upgrade --set %q: %v\n%s\nwant %s", set, err, out, want)
		}
	}
	if after := status(); after != before {
		t.Errorf("the release was\n%s\nand is\n%s", before, after)
	}
}

// containersGetAdditionalNodes asks for GDRCopy and an IMEX channel on a node that has neither: the
// node says so, and containers start without. When the nodes appear, the next container has them
// and one without a share has not.
func (w *world) containersGetAdditionalNodes(t *testing.T) {
	ctx, u := w.user(t, "additional-nodes", 3*time.Minute)
	const channels = "/dev/nvidia-caps-imex-channels"
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), slack*2*time.Minute)
		defer cancel()
		if _, err := w.cluster.Run(ctx, "rm", "-rf", "/dev/gdrdrv", channels); err != nil {
			t.Error(err)
		}
		w.upgrade(ctx, t)
		w.waitHealthy(ctx, t, gpus)
	})
	w.upgrade(ctx, t, "devicePlugin.gdrcopyEnabled=true", "devicePlugin.imexChannelIDs={0,3}")
	if err := w.nodeSaid(ctx, "DeviceNodesMissing", "this node has no /dev/gdrdrv"); err != nil {
		t.Fatal(err)
	}
	w.waitHealthy(ctx, t, gpus)
	look := func(name string, ask workload.Ask) string {
		p := pod(name).App("main", ask).Edit(func(p *corev1.Pod) {
			p.Spec.Containers[0].Command = []string{"sh", "-c", "ls -d /dev/*; ls " + channels + "; true"}
		}).Build()
		if err := u.Create(ctx, p); err != nil {
			t.Fatal(err)
		}
		succeeds(ctx, t, u, name)
		log, err := u.Log(ctx, name, "main")
		if err != nil {
			t.Fatal(err)
		}
		return log
	}
	part, whole := workload.Ask{Number: 1, Memory: 1000}, workload.Ask{Number: 1}
	if log := look("before", part); strings.Contains(log, "gdrdrv") {
		t.Errorf("a node that is not there is in the container:\n%s", log)
	}
	for _, command := range []string{"mkdir " + channels, "mknod /dev/gdrdrv c 1 3", "mknod " + channels + "/channel0 c 1 3",
		"mknod " + channels + "/channel3 c 1 3", "mknod " + channels + "/channel4 c 1 3"} {
		words := strings.Fields(command)
		if _, err := w.cluster.Run(ctx, words[0], words[1:]...); err != nil {
			t.Fatal(err)
		}
	}
	for name, ask := range map[string]workload.Ask{"part": part, "whole": whole} {
		log := look(name, ask)
		for _, want := range []string{"/dev/gdrdrv", "channel0", "channel3"} {
			if !strings.Contains(log, want) {
				t.Errorf("%s: the container has no %s:\n%s", name, want, log)
			}
		}
		if strings.Contains(log, "channel4") {
			t.Errorf("%s: the container has a channel that nobody asked for:\n%s", name, log)
		}
	}
	if err := w.nodeSaid(ctx, "DeviceNodesMissingResolved", "works again"); err != nil {
		t.Error(err)
	}
	if log := look("none", workload.Ask{}); strings.Contains(log, "gdrdrv") || strings.Contains(log, "channel0") {
		t.Errorf("a container without a share has nodes:\n%s", log)
	}
}

// serverTakesTheManifests asks the API server for what `kubectl apply --server-side
// --dry-run=server` asks: one apply patch for each object, with strict validation and without an
// effect. kubectl is not part of the sandbox.
func (w *world) serverTakesTheManifests(t *testing.T) {
	ctx := t.Context()
	plain, err := os.ReadFile(filepath.Join(w.cluster.Chart(), "..", "install", "deviceshare.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string][]byte{"manifests/install/deviceshare.yaml": plain}
	for _, set := range []string{"createNamespace=true,monitoring.dashboard.enabled=true,commonLabels.team=infra", "webhook.enabled=false,createConfig=false,scheduler.replicas=1",
		"unaskedDevices.policy=deny,unaskedDevices.exemptNamespaceLabels.team=infra,unaskedDevices.exemptServiceAccounts={team/dcgm}"} {
		out, err := w.cluster.Helm(ctx, "template", sandbox.Release, w.cluster.Chart(), "--set", set)
		if err != nil {
			t.Fatal(err)
		}
		texts["helm template --set "+set] = []byte(out)
	}
	resources, yes := w.resources(t), true
	for name, text := range texts {
		all := objects(t, text)
		for _, object := range all {
			data, err := object.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			_, err = resources(object).Patch(ctx, object.GetName(), types.ApplyPatchType, data, metav1.PatchOptions{
				DryRun: []string{metav1.DryRunAll}, FieldManager: "kubectl", Force: &yes, FieldValidation: metav1.FieldValidationStrict})
			if err != nil {
				t.Errorf("%s: %s %s: %v", name, object.GetKind(), object.GetName(), err)
			}
		}
		if len(all) < 10 {
			t.Errorf("%s: only %d objects", name, len(all))
		}
		t.Logf("%s: the server takes all %d objects", name, len(all))
	}
}
