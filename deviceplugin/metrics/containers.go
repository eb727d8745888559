// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
)

// UsageSource finds out what containers use. Survey is one.
type UsageSource interface {
	// Report is what is found out within ctx.
	Report(ctx context.Context) Usage
}

// used collects what containers use, when asked.
type used struct {
	source UsageSource

	memory, limit, imported, host, seconds, processes, untracked *prometheus.Desc
}

func newUsed(source UsageSource) *used {
	share := []string{"namespace", "pod", "container", "device", "mode"}
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("deviceshare_container_"+name, help, share, nil)
	}
	return &used{
		source:    source,
		memory:    desc("memory_used_bytes", "Memory of a device that counts against the container's limit."),
		limit:     desc("memory_limit_bytes", "Memory of a device that the container may use; 0 is no limit."),
		imported:  desc("memory_imported_bytes", "Memory of other processes that is open in the container. Its makers have it in theirs."),
		host:      desc("memory_host_bytes", "The part of the memory used that lies in the host because the device was full."),
		seconds:   desc("gpu_seconds_total", "GPU time spent, where compute is limited."),
		processes: desc("processes", "Processes of the container that use the device."),
		untracked: prometheus.NewDesc("deviceshare_device_memory_untracked_bytes",
			"Memory that limited containers have of a device and libvgpu.so does not know of. Absent where the driver does not tell.",
			[]string{"device"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (u *used) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{u.memory, u.limit, u.imported, u.host, u.seconds, u.processes, u.untracked} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (u *used) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	report := u.source.Report(ctx)
	for labels, d := range perLabels(report.Containers) {
		value := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64) {
			out <- prometheus.MustNewConstMetric(desc, kind, value, labels[:]...)
		}
		value(u.memory, prometheus.GaugeValue, float64(d.Used))
		value(u.limit, prometheus.GaugeValue, float64(d.Limit))
		value(u.imported, prometheus.GaugeValue, float64(d.Imported))
		value(u.host, prometheus.GaugeValue, float64(d.Overflow))
		value(u.processes, prometheus.GaugeValue, float64(d.Processes))
		if d.Measured {
			value(u.seconds, prometheus.CounterValue, d.Busy.Seconds())
		}
	}
	for id, bytes := range report.Untracked {
		out <- prometheus.MustNewConstMetric(u.untracked, prometheus.GaugeValue, float64(bytes), string(id))
	}
}

// perLabels adds up what has the same labels: a pod of a StatefulSet, and the one
// before it of which not everything is taken back yet. Prometheus refuses a page
// that says a thing twice.
func perLabels(containers []ContainerUsage) map[[5]string]DeviceUsage {
	all := map[[5]string]DeviceUsage{}
	for i := range containers {
		r := &containers[i].Record
		for _, d := range containers[i].Devices {
			labels := [5]string{r.Namespace, r.Pod, r.Container, string(d.ID), string(r.Mode)}
			before := all[labels]
			d.Used, d.Limit = d.Used.Plus(before.Used), d.Limit.Plus(before.Limit)
			d.Imported, d.Overflow = d.Imported.Plus(before.Imported), d.Overflow.Plus(before.Overflow)
			d.Processes, d.Busy, d.Measured = d.Processes+before.Processes, d.Busy+before.Busy, d.Measured || before.Measured
			all[labels] = d
		}
	}
	return all
}
