// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"fmt"
	"strings"
)

// Alias is a metric of Volcano or HAMi, made of ours.
type Alias struct {
	Name, Query string
	// Zone is the value of HAMi's label zone, "" for none.
	Zone string
}

// label is how a label of ours is called in an alias. Prefix is what its values begin with there.
type label struct{ ours, theirs, prefix string }

// Metrics of the scheduler lack a device's index and model: they are those that its node tells.
const withIndex = " * on (node, device) group_left (index, model) group by (node, device, index, model) (deviceshare_node_device_healthy)"

const mebibyte = " / 1048576"

// Aliases returns the metrics of Volcano, of HAMi since 2.9, and of HAMi before it. What nobody
// here knows is left out: labels for the index of a device within a container, and for the
// parts of memory.
func Aliases() []Alias {
	return append(append(volcanoAliases(), hamiAliases()...), hamiLegacy()...)
}

// volcanoAliases are the metrics of Volcano's scheduler, with memory in MiB.
func volcanoAliases() []Alias {
	device := []label{{ours: "device", theirs: "devID"}, {ours: "node", theirs: "NodeName"}}
	pod := append(device, label{ours: "pod", theirs: "podName"})
	const name = "volcano_vgpu_device_"
	return []Alias{
		{Name: name + "shared_number", Query: renameLabels("deviceshare_device_shares", device)},
		{Name: name + "allocated_memory", Query: renameLabels("deviceshare_device_memory_allocated_bytes"+mebibyte, device)},
		{Name: name + "allocated_cores", Query: renameLabels("deviceshare_device_cores_allocated_percent", device)},
		{Name: name + "memory_limit", Query: renameLabels("deviceshare_device_memory_bytes"+mebibyte, device)},
		{Name: name + "memory_allocation_for_a_certain_pod", Query: renameLabels("deviceshare_node_share_memory_bytes"+mebibyte, pod)},
		{Name: name + "core_allocation_for_a_certain_pod", Query: renameLabels("deviceshare_node_share_cores_percent", pod)},
	}
}

// hamiAliases are the metrics of HAMi since 2.9. Its ratios of compute go to 100.
func hamiAliases() []Alias {
	host := []label{{ours: "index", theirs: "device_index"}, {ours: "device", theirs: "device_uuid"}, {ours: "model", theirs: "device_type", prefix: "NVIDIA-"}}
	device := append([]label{{ours: "node", theirs: "node"}}, host...)
	container := []label{{ours: "namespace", theirs: "namespace"}, {ours: "pod", theirs: "pod"}, {ours: "container", theirs: "container"},
		{ours: "device", theirs: "device_uuid"}}
	placed := append([]label{{ours: "node", theirs: "node"}}, container...)
	return withZone([]Alias{
		{Name: "hami_gpu_memory_limit_bytes", Query: renameLabels("deviceshare_device_memory_bytes"+withIndex, device)},
		{Name: "hami_gpu_core_limit_ratio", Query: renameLabels("deviceshare_device_cores_percent"+withIndex, device)},
		{Name: "hami_gpu_memory_allocated_bytes", Query: renameLabels("deviceshare_device_memory_allocated_bytes"+withIndex, device)},
		{Name: "hami_gpu_core_allocated_ratio", Query: renameLabels("deviceshare_device_cores_allocated_percent"+withIndex, device)},
		{Name: "hami_gpu_shared_count", Query: renameLabels("deviceshare_device_shares"+withIndex, device)},
		{Name: "hami_node_gpu_memory_allocated_ratio",
			Query: renameLabels("deviceshare_device_memory_allocated_bytes / deviceshare_device_memory_bytes"+withIndex, device[:3])},
		{Name: "hami_vgpu_memory_allocated_bytes", Query: renameLabels("deviceshare_node_share_memory_bytes", placed)},
		{Name: "hami_vgpu_core_allocated_ratio", Query: renameLabels("deviceshare_node_share_cores_percent", placed)},
		{Name: "hami_host_gpu_memory_used_bytes", Query: renameLabels("deviceshare_node_device_memory_used_bytes", device)},
		{Name: "hami_host_gpu_utilization_ratio", Query: renameLabels("deviceshare_node_device_compute_used_ratio * 100", device)},
		{Name: "hami_vgpu_memory_used_bytes", Query: renameLabels("deviceshare_container_memory_used_bytes", container)},
		{Name: "hami_vgpu_memory_limit_bytes", Query: renameLabels("deviceshare_container_memory_limit_bytes", container)},
		{Name: "hami_container_device_utilization_ratio", Query: renameLabels("deviceshare_container_compute_used_ratio * 100", container)},
	})
}

// hamiLegacy are the metrics of HAMi before 2.9, which Volcano's device plugin has too.
func hamiLegacy() []Alias {
	device := []label{{ours: "node", theirs: "nodeid"}, {ours: "device", theirs: "deviceuuid"}, {ours: "index", theirs: "deviceidx"}}
	host := []label{{ours: "node", theirs: "node_name"}, {ours: "index", theirs: "deviceidx"}, {ours: "device", theirs: "deviceuuid"},
		{ours: "model", theirs: "devicetype", prefix: "NVIDIA-"}}
	container := []label{{ours: "namespace", theirs: "podnamespace"}, {ours: "pod", theirs: "podname"}, {ours: "container", theirs: "ctrname"},
		{ours: "device", theirs: "deviceuuid"}}
	placed := []label{container[0], container[1], container[3], {ours: "node", theirs: "nodename"}}
	return withZone([]Alias{
		{Name: "GPUDeviceMemoryLimit", Query: renameLabels("deviceshare_device_memory_bytes"+withIndex, device)},
		{Name: "GPUDeviceCoreLimit", Query: renameLabels("deviceshare_device_cores_percent"+withIndex, device)},
		{Name: "GPUDeviceMemoryAllocated", Query: renameLabels("deviceshare_device_memory_allocated_bytes"+withIndex, device)},
		{Name: "GPUDeviceCoreAllocated", Query: renameLabels("deviceshare_device_cores_allocated_percent"+withIndex, device)},
		{Name: "GPUDeviceSharedNum", Query: renameLabels("deviceshare_device_shares"+withIndex, device)},
		{Name: "nodeGPUMemoryPercentage", Query: renameLabels("deviceshare_device_memory_allocated_bytes / deviceshare_device_memory_bytes"+withIndex, device)},
		{Name: "vGPUMemoryAllocated", Query: renameLabels("deviceshare_node_share_memory_bytes", placed)},
		{Name: "vGPUCoreAllocated", Query: renameLabels("deviceshare_node_share_cores_percent", placed)},
		{Name: "HostGPUMemoryUsage", Query: renameLabels("deviceshare_node_device_memory_used_bytes", host)},
		{Name: "HostCoreUtilization", Query: renameLabels("deviceshare_node_device_compute_used_ratio * 100", host)},
		{Name: "vGPU_device_memory_usage_in_bytes", Query: renameLabels("deviceshare_container_memory_used_bytes", container)},
		{Name: "vGPU_device_memory_limit_in_bytes", Query: renameLabels("deviceshare_container_memory_limit_bytes", container)},
		{Name: "Device_memory_desc_of_container", Query: renameLabels("deviceshare_container_memory_used_bytes", container)},
		{Name: "Device_utilization_desc_of_container", Query: renameLabels("deviceshare_container_compute_used_ratio * 100", container)},
	})
}

// withZone gives aliases the label zone that HAMi's metrics have.
func withZone(all []Alias) []Alias {
	for i := range all {
		all[i].Zone = "vGPU"
	}
	return all
}

// renameLabels is a query with labels as an alias has them, and no others.
func renameLabels(query string, labels []label) string {
	var names []string
	for _, l := range labels {
		names = append(names, l.theirs)
		if l.ours != l.theirs || l.prefix != "" {
			query = fmt.Sprintf(`label_replace(%s, "%s", "%s$1", "%s", "(.+)")`, query, l.theirs, l.prefix, l.ours)
		}
	}
	return fmt.Sprintf("sum by (%s) (%s)", strings.Join(names, ", "), query)
}

// aliasRules returns the file with the recording rules of the aliases.
func aliasRules() ([]byte, error) {
	g := group{Name: "deviceshare.aliases"}
	for _, a := range Aliases() {
		r := rule{Record: a.Name, Expr: a.Query}
		if a.Zone != "" {
			r.Labels = map[string]string{"zone": a.Zone}
		}
		g.Rules = append(g.Rules, r)
	}
	return marshalRules("aliases", ruleFile{Groups: []group{g}})
}
