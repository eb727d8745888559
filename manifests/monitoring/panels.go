// SPDX-License-Identifier: Apache-2.0

package monitoring

// Board is a dashboard.
type Board struct {
	// Name is the name of its file, Title what people see.
	Name, Title string
	// Variable is the label by which people choose what they see, "" for all. Values is a metric
	// that has it.
	Variable, Values string
	Panels           []Panel
}

// Panel is a graph of a dashboard.
type Panel struct {
	Title string
	// Unit is one of Grafana's.
	Unit string
	// Lines are what the graph shows.
	Lines []Line
}

// Line is a query, and what its series are called.
type Line struct{ Query, Legend string }

// Units of Grafana.
const (
	ratio   = "percentunit"
	memory  = "bytes"
	seconds = "s"
	count   = "short"
	persec  = "ops"
)

// Boards returns the dashboards.
func Boards() []Board {
	return []Board{clusterBoard(), nodeBoard(), namespaceBoard(), queueBoard()}
}

func clusterBoard() Board {
	return Board{Name: "cluster", Title: "deviceshare: cluster", Panels: []Panel{
		{"Memory of all devices", ratio, []Line{
			{"cluster:deviceshare_memory_allocated:ratio", "allocated"}, {"cluster:deviceshare_memory_used:ratio", "used"}}},
		{"Compute of all devices", ratio, []Line{{"cluster:deviceshare_cores_allocated:ratio", "allocated"}}},
		{"Allocated memory by node, the fullest 20", ratio, []Line{{"topk(20, node:deviceshare_memory_allocated:ratio)", "{{node}}"}}},
		{"Devices by mode", count, []Line{{"count by (mode) (deviceshare_device_memory_bytes)", "{{mode}}"}}},
		{"Broken devices", count, []Line{{"count(deviceshare_device_healthy == 0) or vector(0)", "broken"}}},
		{"Pods that wait, by reason", count, []Line{{"sum by (reason) (deviceshare_waiting_pods)", "{{reason}}"}}},
		{"Memory that waiting pods ask for", memory, []Line{
			{"sum(deviceshare_waiting_memory_bytes)", "asked for"},
			{"sum(deviceshare_device_memory_bytes - deviceshare_device_memory_allocated_bytes)", "free"}}},
		{"From creation to placement", seconds, []Line{
			{"histogram_quantile(0.5, sum by (le) (rate(deviceshare_placement_wait_seconds_bucket[15m])))", "half"},
			{"cluster:deviceshare_placement_wait_seconds:p95", "95 of 100"}}},
		{"Free devices", count, []Line{{"deviceshare_free_devices", "free"}, {"deviceshare_free_devices * deviceshare_free_usable_ratio", "of use to recent pods"}}},
		{"Evictions by action", persec, []Line{{"sum by (action) (rate(deviceshare_evictions_total[15m]))", "{{action}}"}}},
		{"Nodes refused to pods, by reason", persec, []Line{{"sum by (reason) (rate(deviceshare_predicate_refusals_total[5m]))", "{{reason}}"}}},
		{"Begin of a session, 99 of 100", seconds, []Line{
			{"histogram_quantile(0.99, sum by (le) (rate(deviceshare_session_open_seconds_bucket[5m])))", "sessions"}}},
	}}
}

func nodeBoard() Board {
	return Board{Name: "node", Title: "deviceshare: node", Variable: "node", Values: "deviceshare_node_device_memory_bytes", Panels: []Panel{
		{"Memory allocated", ratio, []Line{
			{`deviceshare_device_memory_allocated_bytes{node=~"$node"} / deviceshare_device_memory_bytes{node=~"$node"}`, "{{device}} {{mode}}"}}},
		{"Memory used", ratio, []Line{
			{`deviceshare_node_device_memory_used_bytes{node=~"$node"} / deviceshare_node_device_memory_bytes{node=~"$node"}`, "{{index}} {{model}} {{mode}}"}}},
		{"Compute used", ratio, []Line{{`deviceshare_node_device_compute_used_ratio{node=~"$node"}`, "{{index}} {{model}} {{mode}}"}}},
		{"Shares", count, []Line{{`deviceshare_node_device_shares{node=~"$node"}`, "{{index}} {{model}} {{mode}}"}}},
		{"Memory used by container", memory, []Line{
			{`deviceshare_container_memory_used_bytes{node=~"$node"}`, "{{namespace}}/{{pod}}/{{container}} {{device}}"}}},
		{"Memory used by partition", memory, []Line{
			{`deviceshare_node_partition_memory_used_bytes{node=~"$node"}`, "{{namespace}}/{{pod}} {{profile}} at {{start}}"}}},
		{"Devices that take pods", count, []Line{
			{`sum by (node) (deviceshare_node_device_ready{node=~"$node"})`, "{{node}} take pods"},
			{`count by (node) (deviceshare_node_device_healthy{node=~"$node"} == 0) or 0 * group by (node) (deviceshare_node_device_healthy{node=~"$node"})`,
				"{{node}} broken"}}},
		{"Memory outside of shares", memory, []Line{
			{`sum by (node) (deviceshare_device_stranger_memory_bytes{node=~"$node"}) or 0 * group by (node) (deviceshare_node_device_healthy{node=~"$node"})`,
				"{{node}} without a share"},
			{`sum by (node) (deviceshare_device_memory_untracked_bytes{node=~"$node"})`, "{{node}} past the library"}}},
		{"Time to prepare a container, 95 of 100", seconds, []Line{
			{`histogram_quantile(0.95, sum by (le, mode) (rate(deviceshare_node_prepare_seconds_bucket{node=~"$node"}[15m])))`, "{{mode}}"}}},
		{"Problems and refused starts", count, []Line{
			{`sum by (kind) (increase(deviceshare_node_problems_total{node=~"$node"}[15m]))`, "{{kind}}"},
			{`sum(increase(deviceshare_node_start_refusals_total{node=~"$node"}[15m]))`, "refused starts"}}},
	}}
}

func namespaceBoard() Board {
	const of = `{namespace=~"$namespace"}`
	return Board{Name: "namespace", Title: "deviceshare: namespace", Variable: "namespace", Values: "deviceshare_node_share_memory_bytes", Panels: []Panel{
		{"Memory", memory, []Line{
			{"namespace:deviceshare_memory_given_bytes:sum" + of, "{{namespace}} given"}, {"namespace:deviceshare_memory_used_bytes:sum" + of, "{{namespace}} used"}}},
		{"Compute given, in devices", count, []Line{{"sum by (namespace) (deviceshare_node_share_cores_percent" + of + ") / 100", "{{namespace}}"}}},
		{"Memory used by container", memory, []Line{{"deviceshare_container_memory_used_bytes" + of, "{{pod}}/{{container}}"}}},
		{"Part of the limit that is used", ratio, []Line{
			{"deviceshare_container_memory_used_bytes" + of + " / (deviceshare_container_memory_limit_bytes" + of + " > 0)", "{{pod}}/{{container}}"}}},
		{"Compute used, in devices", ratio, []Line{
			{"rate(deviceshare_container_gpu_seconds_total" + of + "[5m])", "{{pod}}/{{container}} by its limit"},
			{"deviceshare_container_compute_used_ratio" + of, "{{pod}}/{{container}} by the driver"}}},
		{"Processes on devices", count, []Line{{"sum by (namespace, pod) (deviceshare_container_processes" + of + ")", "{{pod}}"}}},
	}}
}

func queueBoard() Board {
	const of = `{queue=~"$queue"}`
	return Board{Name: "queue", Title: "deviceshare: queue", Variable: "queue", Values: "deviceshare_waiting_pods", Panels: []Panel{
		{"Pods that wait", count, []Line{{"queue:deviceshare_waiting_pods:sum" + of, "{{queue}}"}}},
		{"Pods that wait, by reason", count, []Line{{"sum by (queue, reason) (deviceshare_waiting_pods" + of + ")", "{{queue}} {{reason}}"}}},
		{"Memory that waiting pods ask for", memory, []Line{{"sum by (queue) (deviceshare_waiting_memory_bytes" + of + ")", "{{queue}}"}}},
		{"Held by a limit of the queue", count, []Line{
			{`sum by (queue) (deviceshare_waiting_pods{queue=~"$queue",reason=~"quota|queue|enqueue"})`, "{{queue}}"}}},
	}}
}
