// SPDX-License-Identifier: Apache-2.0

package occupancy

import (
	"slices"
	"strings"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/sharing"
)

// PodSource knows the pods of this node. cluster.Pods is one.
type PodSource interface {
	Pod(owner sharing.Owner) (*corev1.Pod, bool)
}

// ByDevice says for each device with a record which pods have shares of it. A pod that the source
// does not know any more keeps its shares until they are released: its containers have no ids then.
func ByDevice(records []checkpoint.Record, pods PodSource) map[sharing.DeviceID]Pods {
	out := map[sharing.DeviceID]Pods{}
	for i := range records {
		r := &records[i]
		for k := range r.Devices {
			id := r.Devices[k].Device
			if out[id] == nil {
				out[id] = Pods{}
			}
			out[id][r.Owner] = withShare(out[id][r.Owner], r, pods)
		}
	}
	return out
}

// withShare returns the containers of a record's pod, with the record's own marked.
func withShare(containers []Container, r *checkpoint.Record, pods PodSource) []Container {
	if containers == nil {
		if pod, known := pods.Pod(r.Owner); known {
			containers = containersOf(pod)
		}
	}
	i := slices.IndexFunc(containers, func(c Container) bool { return c.Name == r.Container })
	if i < 0 {
		return append(containers, Container{Name: r.Container, HasShare: true})
	}
	containers[i].HasShare = true
	return containers
}

// ContainerOf finds the container of a pod that a process with these control groups is in, "" if
// its id is not known yet.
func ContainerOf(pod *corev1.Pod, groups []procfs.Cgroup) string {
	for _, c := range containersOf(pod) {
		if c.ID != "" && IsOf(groups, c.ID) {
			return c.Name
		}
	}
	return ""
}

// containersOf lists the containers that a pod's status knows, those for debugging included.
func containersOf(pod *corev1.Pod) []Container {
	var out []Container
	s := &pod.Status
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			_, id, _ := strings.Cut(list[i].ContainerID, "://")
			out = append(out, Container{Name: list[i].Name, ID: id})
		}
	}
	return out
}
