// SPDX-License-Identifier: Apache-2.0

// Package metrics has the scheduler's metrics of devices.
package metrics

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"deviceshare/plugins/deviceshare/holds"
	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/deviceshare/waiting"
	"deviceshare/plugins/deviceshare/waiting/news"
	"deviceshare/sharing"
	"deviceshare/sharing/quota"
	"deviceshare/sharing/wire"
)

// Metrics counts what the plugin does. What it knows is read from a State when
// somebody asks, so that keeping it up to date costs sessions nothing.
type Metrics struct {
	// SessionOpen is the time that the beginning of a session takes, in seconds.
	SessionOpen prometheus.Histogram
	// ArgumentMistakes is how many mistakes the plugin's arguments have.
	ArgumentMistakes prometheus.Gauge

	refusals         [sharing.Reasons]prometheus.Counter
	refusalsByReason *prometheus.CounterVec
	placementWait    prometheus.Histogram
	evictions        *prometheus.CounterVec
	gauges           gauges
}

// State is what the plugin knows.
type State struct {
	// TakesPart says that the plugin took part in the last session, IsAside that there was one in
	// which it did not: what was true in its last session need not be true now.
	TakesPart, IsAside bool
	// Config is which configuration is in force, nil if none was read.
	Config  *wire.ConfigVersions
	Cluster *nodes.Cluster
	// Waiting is who waits, nil if that is not known.
	Waiting *waiting.Counts
	// MeasureFree says how much of devices is free, and how much of that the next pods can use; nil
	// before enough pods have arrived.
	MeasureFree func([][]sharing.View) (free, usable float64, ok bool)
	// Holds is for how many jobs room is being made, HoldEnds how many of these ended in each
	// outcome.
	Holds    int
	HoldEnds [holds.Outcomes]int
	// Namespaces is what namespaces have of their limits.
	Namespaces []quota.Usage
	// NodesNeeded is how many new nodes waiting pods need, by type.
	NodesNeeded map[string]int
}

// New returns metrics of a plugin that has done nothing.
func New() *Metrics {
	m := &Metrics{
		gauges: newGauges(),
		refusalsByReason: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "deviceshare_predicate_refusals_total",
			Help: "Nodes refused to a pod, by each reason a device of the node was refused for.",
		}, []string{"reason"}),
		SessionOpen: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "deviceshare_session_open_seconds",
			Help:    "Time to bring the ledgers up to date at the begin of a session.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 12),
		}),
		ArgumentMistakes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "deviceshare_argument_mistakes",
			Help: "Mistakes in the arguments of the plugin. Above zero, earlier arguments stay in force.",
		}),
	}
	m.placementWait = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "deviceshare_placement_wait_seconds",
		Help:    "Time from the creation of a pod with devices to its placement. Creation is known to the second.",
		Buckets: []float64{1, 2, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600},
	})
	m.evictions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "deviceshare_evictions_total",
		Help: "Pods with devices that were evicted so that others have room, by the action of Volcano.",
	}, []string{"action"})
	for _, action := range []string{"preempt", "reclaim", "consolidate", "shuffle"} {
		m.evictions.WithLabelValues(action) // so that a graph has something to show
	}
	for r := sharing.Fits + 1; r < sharing.Reasons; r++ {
		m.refusals[r] = m.refusalsByReason.WithLabelValues(r.String())
	}
	return m
}

// CountRefusals counts a refused node. Safe for concurrent use.
func (m *Metrics) CountRefusals(r *sharing.Refusals) {
	for reason, devices := range &r.Count {
		if devices > 0 && sharing.Reason(reason) != sharing.Fits {
			m.refusals[reason].Inc()
		}
	}
}

// ObservePlacement counts a pod with devices that was bound so long after it was made. Safe for
// concurrent use.
func (m *Metrics) ObservePlacement(after time.Duration) {
	m.placementWait.Observe(max(0, after.Seconds()))
}

// CountEvictions counts pods with devices that an action of Volcano has evicted.
func (m *Metrics) CountEvictions(action string, pods int) {
	m.evictions.WithLabelValues(action).Add(float64(pods))
}

// gauge is one thing read from the plugin when somebody asks.
type gauge struct{ desc *prometheus.Desc }

func newGauge(name, help string, labels ...string) gauge {
	return gauge{prometheus.NewDesc("deviceshare_"+name, help, labels, nil)}
}

func (g gauge) sendValue(out chan<- prometheus.Metric, v float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, v, labels...)
}

// gauges are the things read from the plugin.
type gauges struct {
	enabled                              gauge
	undecodable, edited, unplaced        gauge
	blocked, setAside, assumed, warming  gauge
	memory, memoryUsed, cores, coresUsed gauge
	shares, healthy, cordoned            gauge
	config, disagreeing                  gauge
	waitingPods, waitingMemory           gauge
	freeDevices, freeUsable              gauge
	holds                                gauge
	holdEnds                             gauge
	nodesNeeded                          gauge
	namespaceUsed, namespaceLimit        gauge
}

func newGauges() gauges {
	device, why, namespace := []string{"node", "device", "mode"}, []string{"queue", "reason"}, []string{"namespace", "quota", "resource"}
	return gauges{
		enabled: newGauge("plugin_enabled",
			"1 if the plugin took part in the last session of the scheduler. If not, gauges of nodes, devices and waiting pods are left out."),
		undecodable: newGauge("undecodable_pods", "Pods on a node whose devices cannot be read."),
		edited:      newGauge("edited_pods", "Pods whose placement was changed after they were bound. They count as holding what they were bound with."),
		unplaced:    newGauge("unplaced_pods", "Pods that ask for devices and were bound without a placement. They cannot start and count as holding nothing."),
		blocked:     newGauge("blocked_nodes", "Nodes whose devices all count as taken, because a pod on them cannot be read."),
		setAside:    newGauge("set_aside_nodes", "Nodes whose inventory cannot be read."),
		assumed:     newGauge("assumed_placements", "Placements decided here that the API server has not shown yet."),
		warming:     newGauge("warming_nodes", "Nodes not used yet because their pods have not all been seen since the start, or since the node appeared."),
		memory:      newGauge("device_memory_bytes", "Memory of a device that may be given out.", device...),
		memoryUsed:  newGauge("device_memory_allocated_bytes", "Memory of a device that is given out.", device...),
		cores:       newGauge("device_cores_percent", "Compute of a device that may be given out.", device...),
		coresUsed:   newGauge("device_cores_allocated_percent", "Compute of a device that is given out.", device...),
		shares:      newGauge("device_shares", "Shares of a device in use.", device...),
		healthy:     newGauge("device_healthy", "1 if the node reports the device as healthy.", device...),
		cordoned:    newGauge("device_cordoned", "1 if people keep new pods off the device.", device...),
		waitingPods: newGauge("waiting_pods", "Pods with devices that waited after the last session, by what would have to change.", why...),
		waitingMemory: newGauge("waiting_memory_bytes",
			"Device memory that these pods ask for. A part of a device counts as that of the largest one.", why...),
		freeDevices: newGauge("free_devices", "Free parts of devices that take pods, in whole devices: of memory or compute, the scarcer one."),
		freeUsable: newGauge("free_usable_ratio",
			"Part of the free devices that an average pod of those that arrived last can use: less is more fragmented."),
		holds:       newGauge("holds", "Jobs for which room is being made: pods leave, and their devices are kept."),
		nodesNeeded: newGauge("nodes_needed", "New nodes that waiting pods need, where nodes are asked for.", "type"),
		namespaceUsed: newGauge("namespace_quota_used",
			"What pods of a namespace have of a limit of devices in its ResourceQuota: memory in bytes, compute in percent of one device, shares.", namespace...),
		namespaceLimit: newGauge("namespace_quota_limit", "That limit, in the same units.", namespace...),
		holdEnds:       newGauge("hold_ends_total", "Holds that ended: placed, abandoned because nobody waited any more, or failed.", "outcome"),
		config:         newGauge("config_info", "Always 1. The hashes of the configuration in force.", "device", "node", "geometry"),
		disagreeing:    newGauge("config_disagreeing_nodes", "Nodes whose device plugin goes by another device configuration."),
	}
}

// Collect sends every metric. Safe for concurrent use.
func (m *Metrics) Collect(out chan<- prometheus.Metric, s State) {
	m.refusalsByReason.Collect(out)
	m.SessionOpen.Collect(out)
	m.placementWait.Collect(out)
	m.evictions.Collect(out)
	enabled := 0.0
	if s.TakesPart {
		enabled = 1
	}
	m.gauges.enabled.sendValue(out, enabled)
	m.gauges.collectHolds(out, &s)
	if s.IsAside {
		return
	}
	m.ArgumentMistakes.Collect(out)

	known := s.Cluster.Copy()
	m.gauges.collectConfig(out, s.Config, known)
	m.gauges.collectNodes(out, known)
	for name, n := range s.NodesNeeded {
		m.gauges.nodesNeeded.sendValue(out, float64(n), name)
	}
	for i := range s.Namespaces {
		u := &s.Namespaces[i]
		m.gauges.namespaceUsed.sendValue(out, float64(u.Used), u.Namespace, u.Quota, u.Limit.Name)
		m.gauges.namespaceLimit.sendValue(out, float64(u.Limit.Amount), u.Namespace, u.Quota, u.Limit.Name)
	}
	m.gauges.collectFree(out, s.MeasureFree, known)
	if s.Waiting != nil {
		s.Waiting.Each(func(queue string, cause news.Cause, pods int, memory sharing.Bytes) {
			m.gauges.waitingPods.sendValue(out, float64(pods), queue, cause.String())
			m.gauges.waitingMemory.sendValue(out, float64(memory), queue, cause.String())
		})
	}
	m.gauges.assumed.sendValue(out, float64(s.Cluster.Pods().Decisions()))
	m.gauges.warming.sendValue(out, float64(len(s.Cluster.Pods().Awaited())))
}

func (g *gauges) collectHolds(out chan<- prometheus.Metric, s *State) {
	g.holds.sendValue(out, float64(s.Holds))
	for outcome, n := range s.HoldEnds {
		out <- prometheus.MustNewConstMetric(g.holdEnds.desc, prometheus.CounterValue, float64(n), holds.Outcome(outcome).String())
	}
}

func (g *gauges) collectNodes(out chan<- prometheus.Metric, known map[string]*nodes.Node) {
	undecodable, edited, unplaced, blocked, setAside := 0, 0, 0, 0, 0
	for _, n := range known {
		undecodable, edited, unplaced = undecodable+len(n.Blocking), edited+len(n.Edited), unplaced+len(n.Unplaced)
		if len(n.Blocking) > 0 {
			blocked++
		}
		if n.SetAside != nil {
			setAside++
		}
		if n.Inventory != nil {
			g.collectDevices(out, n)
		}
	}
	g.undecodable.sendValue(out, float64(undecodable))
	g.edited.sendValue(out, float64(edited))
	g.unplaced.sendValue(out, float64(unplaced))
	g.blocked.sendValue(out, float64(blocked))
	g.setAside.sendValue(out, float64(setAside))
}

// collectConfig sends which configuration is in force here and how many nodes have
// another one. A node that does not say is not counted: its device plugin is older.
func (g *gauges) collectConfig(out chan<- prometheus.Metric, inForce *wire.ConfigVersions, known map[string]*nodes.Node) {
	var ours wire.ConfigVersions // empty until one was read
	if inForce != nil {
		ours = *inForce
	}
	g.config.sendValue(out, 1, ours.Device, ours.Node, ours.Geometry)
	disagreeing := 0
	for _, n := range known {
		if ours.Device == "" || n.Object == nil || n.Inventory == nil {
			continue
		}
		theirs, err := wire.DecodeConfig(n.Object.Annotations[wire.NodeConfig])
		if err == nil && theirs.Device != ours.Device {
			disagreeing++
		}
	}
	g.disagreeing.sendValue(out, float64(disagreeing))
}

// collectFree sends how much is free, and how much of it is usable to pods as they arrived last.
// Nothing is sent before enough pods have arrived, nor a ratio while nothing is free.
func (g *gauges) collectFree(out chan<- prometheus.Metric, measure func([][]sharing.View) (free, usable float64, ok bool), known map[string]*nodes.Node) {
	if measure == nil {
		return
	}
	var all [][]sharing.View
	for _, name := range slices.Sorted(maps.Keys(known)) { // sums of floats depend on the order
		if n := known[name]; n.Inventory != nil && n.Unusable == nil && len(n.Blocking) == 0 {
			all = append(all, n.Ledger.Views())
		}
	}
	free, usable, ok := measure(all)
	if !ok {
		return
	}
	g.freeDevices.sendValue(out, free)
	if free > 0 {
		g.freeUsable.sendValue(out, usable/free)
	}
}

func (g *gauges) collectDevices(out chan<- prometheus.Metric, n *nodes.Node) {
	views := n.Ledger.Views()
	for i := range views {
		v := &views[i]
		labels := []string{n.Name, string(v.Device.ID), string(v.Device.Mode)}
		healthy, cordoned := 0.0, 0.0
		if v.Device.Healthy {
			healthy = 1
		}
		if v.Device.Cordon != nil {
			cordoned = 1
		}
		g.memory.sendValue(out, float64(v.Device.Memory), labels...)
		g.memoryUsed.sendValue(out, float64(v.UsedMemory()), labels...)
		g.cores.sendValue(out, float64(v.Device.Cores), labels...)
		g.coresUsed.sendValue(out, float64(v.UsedCores()), labels...)
		g.shares.sendValue(out, float64(v.Sharers()), labels...)
		g.healthy.sendValue(out, healthy, labels...)
		g.cordoned.sendValue(out, cordoned, labels...)
	}
}
