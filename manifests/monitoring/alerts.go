// SPDX-License-Identifier: Apache-2.0

package monitoring

// Recordings returns the recording rules, in the order in which they are evaluated.
func Recordings() []Recording {
	return []Recording{
		{"cluster:deviceshare_memory_allocated:ratio", "sum(deviceshare_device_memory_allocated_bytes) / sum(deviceshare_device_memory_bytes)"},
		{"cluster:deviceshare_cores_allocated:ratio", "sum(deviceshare_device_cores_allocated_percent) / sum(deviceshare_device_cores_percent)"},
		{"cluster:deviceshare_memory_used:ratio", "sum(deviceshare_node_device_memory_used_bytes) / sum(deviceshare_node_device_memory_bytes)"},
		{"node:deviceshare_memory_allocated:ratio",
			"sum by (node) (deviceshare_device_memory_allocated_bytes) / sum by (node) (deviceshare_device_memory_bytes)"},
		{"node:deviceshare_cores_allocated:ratio",
			"sum by (node) (deviceshare_device_cores_allocated_percent) / sum by (node) (deviceshare_device_cores_percent)"},
		{"node:deviceshare_memory_used:ratio",
			"sum by (node) (deviceshare_node_device_memory_used_bytes) / sum by (node) (deviceshare_node_device_memory_bytes)"},
		{"namespace:deviceshare_memory_given_bytes:sum", "sum by (namespace) (deviceshare_node_share_memory_bytes)"},
		{"namespace:deviceshare_memory_used_bytes:sum", "sum by (namespace) (deviceshare_container_memory_used_bytes)"},
		{"queue:deviceshare_waiting_pods:sum", "sum by (queue) (deviceshare_waiting_pods)"},
		{"cluster:deviceshare_placement_wait_seconds:p95",
			"histogram_quantile(0.95, sum by (le) (rate(deviceshare_placement_wait_seconds_bucket[15m])))"},
	}
}

// mayFit selects the reasons for which a pod waits that free devices could end.
const mayFit = `{reason=~"nodes|queue|enqueue|turn"}`

// Alerts returns the alerts.
func Alerts() []Alert { return append(alertsOfNodes(), alertsOfScheduling()...) }

func alertsOfNodes() []Alert {
	const container = "on (namespace, pod, container, device)"
	return []Alert{
		{"DeviceshareDeviceBroken", Warning, "deviceshare_node_device_healthy == 0", "5m",
			"Device {{ $labels.device }} ({{ $labels.model }}) of node {{ $labels.node }} is broken.",
			"The node's events say what the driver reports. Pods on it end; new ones go elsewhere. Reset or replace the device."},
		{"DeviceshareDeviceTakesNoPods", Warning, "deviceshare_node_device_ready == 0 and deviceshare_node_device_healthy == 1", "30m",
			"Device {{ $labels.device }} of node {{ $labels.node }} works and takes no pods.",
			"It is on the way into another mode: the node's events say what it waits for, mostly pods of the mode before."},
		{"DeviceshareShareNotEnforced", Critical,
			`(deviceshare_container_memory_limit_bytes{mode=~"hami-core|mps"} == 0) and ` + container + " (deviceshare_container_processes > 0) and " +
				container + " (deviceshare_node_share_memory_bytes < on (device) group_left () deviceshare_node_device_memory_bytes)", "1m",
			"Container {{ $labels.container }} of pod {{ $labels.namespace }}/{{ $labels.pod }} uses a share of device {{ $labels.device }} without a limit.",
			"Delete the pod. If its next one is without a limit too, see whether the runtime reads CDI specifications: deviceshare-device-plugin's log."},
		{"DeviceshareMemoryUntracked", Warning, "deviceshare_device_memory_untracked_bytes > 64 * 1024 * 1024", "5m",
			"Containers have {{ $value | humanize1024 }}B of device {{ $labels.device }} of node {{ $labels.node }} that their limits do not know of.",
			"A program goes past the library, or a container writes its region. kubectl deviceshare top NODE shows who has more than it was given."},
		{"DeviceshareDeviceUsedWithoutShare", Warning, "deviceshare_device_stranger_memory_bytes > 0", "2m",
			"{{ if $labels.pod }}Pod {{ $labels.namespace }}/{{ $labels.pod }}{{ else }}A process of the host{{ end }} uses device {{ $labels.device }} " +
				"of node {{ $labels.node }} without a share.",
			"Event DeviceUsedWithoutShare names the processes. Value unaskedDevices.policy of the chart keeps such pods out."},
		{"DeviceshareStartsRefused", Warning, "increase(deviceshare_node_start_refusals_total[15m]) > 10", "5m",
			"Containers with devices are refused on node {{ $labels.node }} again and again.",
			"The pods' events say why. The kubelet tries again by itself."},
		{"DeviceshareNodeProblem", Warning, "increase(deviceshare_node_problems_total[15m]) > 0", "0m",
			"Node {{ $labels.node }} has a problem with devices: {{ $labels.kind }}.", "The node's events say what it is and what to do."},
		{"DeviceshareDevicePluginAbsent", Critical,
			"group by (node) (deviceshare_device_memory_bytes) unless on (node) group by (node) (deviceshare_node_device_memory_bytes)", "10m",
			"The device plugin of node {{ $labels.node }} tells nothing.",
			"See its pod: kubectl -n deviceshare-system get pods -o wide. Pods that are placed on the node wait for it meanwhile."},
	}
}

func alertsOfScheduling() []Alert {
	return []Alert{
		{"DeviceshareSchedulerAbsent", Critical,
			"absent(deviceshare_session_open_seconds_count) or sum(rate(deviceshare_session_open_seconds_count[5m])) == 0", "5m",
			"No scheduler places pods with devices.", "See its pods and the lease deviceshare-scheduler. All pods of this scheduler wait until one leads."},
		{"DeviceshareConfigurationUnreadable", Critical, `sum(deviceshare_waiting_pods{reason="settings"}) > 0`, "1m",
			"{{ $value }} pods wait because the device configuration cannot be read.", "Event DeviceConfigurationInvalid on the ConfigMap lists its mistakes."},
		{"DeviceshareConfigurationDisagrees", Warning, "max(deviceshare_config_disagreeing_nodes) > 0", "5m",
			"{{ $value }} nodes go by another device configuration than the scheduler.",
			"kubectl deviceshare status names them. Nodes read the ConfigMap by themselves; one that does not has a device plugin that is stuck."},
		{"DeviceshareArgumentMistakes", Warning, "max(deviceshare_argument_mistakes) > 0", "1m",
			"The arguments of plugin deviceshare have {{ $value }} mistakes.", "The scheduler's log lists them, and what each of them does."},
		{"DeviceshareNodesBlocked", Critical, "max(deviceshare_blocked_nodes) > 0", "5m",
			"{{ $value }} nodes take no pods with devices, because a pod on them cannot be read.", "Event DevicePlacementUnreadable names the pod: delete it."},
		{"DeviceshareNodesSetAside", Warning, "max(deviceshare_set_aside_nodes) > 0", "5m",
			"The inventory of {{ $value }} nodes cannot be read; they are not used.", "Event DeviceInventoryUnreadable names them: restart their device plugins."},
		{"DeviceshareUnplacedPods", Warning, "max(deviceshare_unplaced_pods) > 0", "5m",
			"{{ $value }} pods with devices were bound by a scheduler that places no devices; they cannot start.",
			"Event DevicePlacementMissing names them. Give them this scheduler's name, and let the webhook do it."},
		{"DeviceshareEditedPods", Warning, "max(deviceshare_edited_pods) > 0", "5m",
			"The placements of {{ $value }} pods were changed after they were bound.", "Event DevicePlacementEdited names them, and what they count as."},
		{"DevicesharePodsWaitBesideFreeMemory", Warning,
			"(sum(deviceshare_waiting_memory_bytes" + mayFit + ") > 0) < sum((deviceshare_device_memory_bytes - deviceshare_device_memory_allocated_bytes) " +
				"and deviceshare_device_healthy == 1)", "15m",
			"Pods wait for {{ $value | humanize1024 }}B of device memory, and more than that is free.",
			"kubectl deviceshare why POD says what keeps each: what is free is in pieces, of another model or mode, or on nodes without CPUs."},
		{"DeviceshareCapacityFragmented", Info, "deviceshare_free_usable_ratio < 0.5 and deviceshare_free_devices > 2", "1h",
			"Recent pods can use {{ $value | humanizePercentage }} of the devices that are free.",
			"docs/placement.md: policy binpack or fragmentation leaves larger pieces; shuffling pods joins them."},
		{"DeviceshareWebhookCertificateExpires", Critical, "min(deviceshare_webhook_certificate_expiry_seconds) - time() < 20 * 86400", "5m",
			"The certificate of the webhook ends in {{ $value | humanizeDuration }}.", "Nobody has renewed it: kubectl -n deviceshare-system get jobs, and the log of the last deviceshare-webhook-ca."},
		{"DeviceshareWebhookConfigurationProblem", Warning, "increase(deviceshare_webhook_config_problems_total[15m]) > 0", "0m",
			"The webhook cannot use a ConfigMap.", "Its log lists the mistakes. What it read before stays in force."},
	}
}
