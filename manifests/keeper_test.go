// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"maps"
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

// A driver's container mounts its root anew when another version comes. Programs see that only
// through the folder around it.
func TestTheDriversRootIsSeenThroughTheFolderAroundIt(t *testing.T) {
	for root, want := range map[string][2]string{
		"/":                   {"/", "/driver-root"},
		"/run/nvidia/driver":  {"/run/nvidia", "/driver-root/driver"},
		"/run/nvidia/driver/": {"/run/nvidia", "/driver-root/driver"},
		"/opt/drivers/nvidia": {"/opt/drivers", "/driver-root/nvidia"},
		"/drv":                {"/", "/driver-root/drv"},
	} {
		specs := pods(decode(t, render(t, values{"devicePlugin.driverRoot": root})))
		for _, name := range []string{"deviceshare-device-plugin", "deviceshare-keeper"} {
			spec := specs[name]
			c := spec.Containers[0]
			v := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == "driver" })
			m := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "driver" })
			if got := [2]string{spec.Volumes[v].HostPath.Path, flagOf(c.Args, "driver-root-ctr-path")}; got != want || flagOf(c.Args, "driver-root") != root {
				t.Errorf("%s: %s mounts and sees %q, want %q", root, name, got, want)
			}
			if at := c.VolumeMounts[m]; at.MountPath != "/driver-root" || !at.ReadOnly || at.MountPropagation == nil || *at.MountPropagation != corev1.MountPropagationHostToContainer {
				t.Errorf("%s: %s mounts it as %+v", root, name, at)
			}
		}
	}
}

// The operator waits for the pods of DaemonSets that have its label among their node selectors.
func TestTheOperatorTakesEverythingThatUsesTheDriverOffANode(t *testing.T) {
	const evicts = "--deviceshare-evict-for-driver-upgrades"
	for name, c := range map[string]struct {
		values values
		want   map[string]string
		evicts bool
	}{
		"as shipped":      {nil, nil, false},
		"with it":         {values{"gpuOperator.enabled": true}, map[string]string{"nvidia.com/gpu.deploy.client": "true"}, true},
		"an older one":    {values{"gpuOperator.enabled": true, "gpuOperator.clientLabel": "a/b"}, map[string]string{"a/b": "true"}, true},
		"on some nodes":   {values{"gpuOperator.enabled": true, "devicePlugin.nodeSelector": map[string]any{"gpu": "yes"}}, map[string]string{"gpu": "yes", "nvidia.com/gpu.deploy.client": "true"}, true},
		"who else evicts": {values{"gpuOperator.enabled": true, "gpuOperator.evict": false}, map[string]string{"nvidia.com/gpu.deploy.client": "true"}, false},
	} {
		specs := pods(decode(t, render(t, c.values)))
		for _, workload := range []string{"deviceshare-device-plugin", "deviceshare-keeper"} {
			if got := specs[workload].NodeSelector; !maps.Equal(got, c.want) {
				t.Errorf("%s: %s has the node selector %v, want %v", name, workload, got, c.want)
			}
		}
		if got := slices.Contains(specs["deviceshare-scheduler"].Containers[0].Args, evicts); got != c.evicts {
			t.Errorf("%s: the scheduler evicts: %t", name, got)
		}
	}
}

func TestTheKeeperSeesWhatTheDevicePluginMounts(t *testing.T) {
	for _, m := range pods(decode(t, read(t, installFile)))["deviceshare-keeper"].Containers[0].VolumeMounts {
		if m.Name == "mps" && (m.MountPropagation == nil || *m.MountPropagation != corev1.MountPropagationHostToContainer) {
			t.Errorf("mounted with propagation %v", m.MountPropagation)
		}
	}
}
