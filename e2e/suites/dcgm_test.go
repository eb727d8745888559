// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"deviceshare/deviceplugin/kubelet"
	"deviceshare/e2e/report"
	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// testDCGM asks which pod has which device as NVIDIA's DCGM exporter does, with virtual GPUs: each
// container of each mode is under the devices that its placement says and under no other, after
// restarts of device plugin and kubelet, and when a pod has gone.
func testDCGM(t *testing.T, w *world) {
	ctx, u := w.user(t, "dcgm", 8*time.Minute)
	w.upgrade(ctx, t, "devicePlugin.podResources.enabled=true")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
		defer cancel()
		w.upgrade(ctx, t)
	})
	w.enterManyModes(ctx, t, u)
	t.Cleanup(func() { w.leaveManyModes(t, u) })
	share := workload.Ask{Number: 1, Memory: 1024}
	for _, p := range []*workload.Pod{
		pod("core").App("main", share, "forever").Annotate(wire.UserMode, string(sharing.HAMiCore)),
		pod("beside").App("main", share, "forever").Annotate(wire.UserMode, string(sharing.HAMiCore)).Annotate(wire.UserPolicy, "binpack"),
		pod("two-containers").App("first", share, "forever").App("second", share, "forever"),
		pod("two-devices").App("main", workload.Ask{Number: 2, Memory: 1024}, "forever").Annotate(wire.UserMode, string(sharing.HAMiCore)),
		pod("whole").App("main", workload.Ask{Number: 1}, "forever").Annotate(wire.UserMode, string(sharing.HAMiCore)),
		pod("sliced").App("main", share, "forever").Annotate(wire.UserMode, string(sharing.TimeSlicing)),
		pod("part").App("main", share, "forever").Annotate(wire.UserMode, string(sharing.MIG)),
		pod("part-2").App("main", share, "forever").Annotate(wire.UserMode, string(sharing.MIG)),
	} {
		running(ctx, t, u, p.Build())
	}
	w.exporterAgrees(ctx, t, u, "pods were started")
	w.deletePod(ctx, t, w.onlyPodOf(ctx, t, sandbox.DevicePlugin))
	w.exporterAgrees(ctx, t, u, "the device plugin was restarted")
	if err := w.cluster.Kill(sandbox.Kubelet); err != nil {
		t.Fatal(err)
	}
	w.exporterAgrees(ctx, t, u, "the kubelet was killed")
	if err := u.Delete(ctx, "part", "core"); err != nil {
		t.Fatal(err)
	}
	running(ctx, t, u, pod("core").App("main", share, "forever").Annotate(wire.UserMode, string(sharing.TimeSlicing)).Build())
	w.exporterAgrees(ctx, t, u, "a pod came back under its name elsewhere")
}

// exporterAgrees waits until an exporter finds what placements and hardware say.
func (w *world) exporterAgrees(ctx context.Context, t *testing.T, u *user.User, after string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, slack*time.Minute)
	defer cancel()
	askUntil(ctx, t, "an exporter to find what is placed after "+after, func() (bool, error) {
		found, err := w.asDCGM(ctx, u.Namespace())
		if err != nil {
			return false, err
		}
		want, err := w.asPlaced(ctx, u)
		if err != nil {
			return false, err
		}
		if !maps.EqualFunc(found, want, slices.Equal) {
			return false, fmt.Errorf("it finds\n%v\nwant\n%v", found, want)
		}
		t.Logf("after %s an exporter finds %v", after, found)
		return true, nil
	})
}

// asDCGM returns the containers of a namespace by device or partition, as the exporter reads it.
func (w *world) asDCGM(ctx context.Context, namespace string) (map[string][]string, error) {
	client, conn, err := kubelet.DialLister(kubelet.Directory(w.cluster.KubeletDir(sandbox.NodeName)).TruePodResources())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	list, err := client.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	found := map[string][]string{}
	for _, p := range list.GetPodResources() {
		for _, c := range p.GetContainers() {
			for _, d := range c.GetDevices() {
				if p.GetNamespace() != namespace || d.GetResourceName() != "nvidia.com/gpu" && !strings.HasPrefix(d.GetResourceName(), "nvidia.com/mig-") {
					continue
				}
				for _, id := range d.GetDeviceIds() {
					key, _, _ := strings.Cut(id, "::")
					found[key] = append(found[key], p.GetName()+"/"+c.GetName())
				}
			}
		}
	}
	return sortedLists(found), nil
}

// asPlaced returns the same by the placements of pods that run, and by the hardware's partitions.
func (w *world) asPlaced(ctx context.Context, u *user.User) (map[string][]string, error) {
	pods, err := u.Pods(ctx)
	if err != nil {
		return nil, err
	}
	show, err := w.cluster.FakeGPU(ctx, "show")
	if err != nil {
		return nil, err
	}
	instances, placed := report.Instances(show), map[string][]string{}
	for i := range pods {
		placement, err := user.Placement(&pods[i])
		if err != nil {
			return nil, err
		}
		for _, c := range placement.Containers {
			for _, s := range c.Shares {
				key := string(s.Device)
				if s.Mode == sharing.MIG {
					at := slices.IndexFunc(instances, func(x report.Instance) bool {
						return x.Device == key && x.Profile == s.Partition.Profile && x.Start == s.Partition.Start
					})
					if at < 0 {
						return nil, fmt.Errorf("pod %s has partition %+v, which does not exist", pods[i].Name, s.Partition)
					}
					key = instances[at].UUID
				}
				placed[key] = append(placed[key], pods[i].Name+"/"+c.Container)
			}
		}
	}
	return sortedLists(placed), nil
}

func sortedLists(m map[string][]string) map[string][]string {
	for _, list := range m {
		slices.Sort(list)
	}
	return m
}
