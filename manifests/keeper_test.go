// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// flagOf is the value of a flag among arguments.
func flagOf(args []string, name string) string {
	for _, a := range args {
		if value, is := strings.CutPrefix(a, "--"+name+"="); is {
			return value
		}
	}
	return ""
}

// An update that ended the keeper would end the MPS daemons, and the work of all their clients.
func TestAnUpdateOfTheChartDoesNotEndTheKeeper(t *testing.T) {
	set := daemonSets(t, "deviceshare-keeper")[0]
	if got := set.Spec.UpdateStrategy.Type; got != appsv1.OnDeleteDaemonSetStrategyType {
		t.Errorf("its pods are updated by %s", got)
	}
	spec := set.Spec.Template.Spec
	if spec.TerminationGracePeriodSeconds == nil || *spec.TerminationGracePeriodSeconds < 24*3600 {
		t.Errorf("clients have %v s to end when it is deleted", spec.TerminationGracePeriodSeconds)
	}
	for _, c := range spec.Containers {
		if c.LivenessProbe != nil || c.StartupProbe != nil {
			t.Errorf("a probe ends %s, and the MPS daemons with it", c.Name)
		}
		if len(c.Resources.Limits) > 0 {
			t.Errorf("%s has limits %v: MPS daemons that exceed them are killed", c.Name, c.Resources.Limits)
		}
	}
}

func TestTheKeeperIsWhereTheDevicePluginLooksForIt(t *testing.T) {
	specs := pods(decode(t, render(t, values{
		"devicePlugin.stateDir": "/state", "devicePlugin.mpsDir": "/meet", "devicePlugin.driverRoot": "/drv",
		"devicePlugin.nodeSelector": map[string]any{"gpu": "yes"}, "devicePlugin.extraArgs": []any{"--mps-control=other"},
	})))
	plugin, keeper := specs["deviceshare-device-plugin"], specs["deviceshare-keeper"]
	a, b := plugin.Containers[0], keeper.Containers[0]
	for _, flag := range []string{"mps-keeper-socket", "keeper-dir", "kubelet-dir", "mps-root", "driver-root", "driver-root-ctr-path", "mps-control"} {
		if x, y := flagOf(a.Args, flag), flagOf(b.Args, flag); x != y || x == "" {
			t.Errorf("--%s is %q for the device plugin and %q for the keeper", flag, x, y)
		}
	}
	if a.Image != b.Image || b.Args[0] != "keep" || plugin.NodeSelector["gpu"] != keeper.NodeSelector["gpu"] || !slices.EqualFunc(
		plugin.Tolerations, keeper.Tolerations, func(x, y corev1.Toleration) bool { return x == y }) || plugin.HostPID != keeper.HostPID {
		t.Errorf("the keeper runs %s %q elsewhere than the device plugin, or is shown other processes", b.Image, b.Args)
	}
}

func TestTheKeeperSeesWhatTheDevicePluginMounts(t *testing.T) {
	for _, m := range pods(decode(t, read(t, installFile)))["deviceshare-keeper"].Containers[0].VolumeMounts {
		if m.Name == "mps" && (m.MountPropagation == nil || *m.MountPropagation != corev1.MountPropagationHostToContainer) {
			t.Errorf("mounted with propagation %v", m.MountPropagation)
		}
	}
}
