// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"deviceshare/sharing"
)

// UsageSource finds out what containers use. Survey is one.
type UsageSource interface {
	// Report is what is found out within ctx.
	Report(ctx context.Context) Usage
}

// used collects what containers use, when asked.
type used struct {
	source UsageSource

	memory, limit, imported, host, seconds, compute, processes, untracked *prometheus.Desc

	deviceUsed, deviceCompute                                     *prometheus.Desc
	partitionUsed, partitionGiven, partitionLimit, partitionCores *prometheus.Desc
}

func newUsed(source UsageSource) *used {
	share := []string{"namespace", "pod", "container", "device", "mode"}
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("deviceshare_container_"+name, help, share, nil)
	}
	device := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("deviceshare_node_device_"+name, help, deviceLabels(), nil)
	}
	partition := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("deviceshare_node_partition_"+name, help,
			[]string{"namespace", "pod", "container", "device", "profile", "start"}, nil)
	}
	return &used{
		source:    source,
		memory:    desc("memory_used_bytes", "Memory of a device that counts against the container's limit."),
		limit:     desc("memory_limit_bytes", "Memory of a device that the container may use; 0 is no limit."),
		imported:  desc("memory_imported_bytes", "Memory of other processes that is open in the container. Its makers have it in theirs."),
		host:      desc("memory_host_bytes", "The part of the memory used that lies in the host because the device was full."),
		seconds:   desc("gpu_seconds_total", "GPU time spent, where compute is limited."),
		compute:   desc("compute_used_ratio", "Part of the device's time in the last seconds in which the container's kernels ran, by the driver."),
		processes: desc("processes", "Processes of the container that use the device."),
		untracked: prometheus.NewDesc("deviceshare_device_memory_untracked_bytes",
			"Memory that limited containers have of a device and libvgpu.so does not know of. Absent where the driver does not tell.",
			[]string{"device"}, nil),
		deviceUsed:     device("memory_used_bytes", "Memory of the device that programs have, of containers and others, by the driver."),
		deviceCompute:  device("compute_used_ratio", "Part of the last moments in which a kernel ran on the device, by the driver."),
		partitionUsed:  partition("memory_used_bytes", "Memory of a container's partition that is in use, by the driver."),
		partitionGiven: partition("memory_given_bytes", "Memory that the partition counts for where devices are given out."),
		partitionLimit: partition("memory_limit_bytes", "Memory that programs can have in the partition, by the driver."),
		partitionCores: partition("cores_given_percent", "Compute of the device that the partition counts for."),
	}
}

// deviceLabels are the labels of what is told of a device.
func deviceLabels() []string { return []string{"device", "index", "model", "mode"} }

func (u *used) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		u.memory, u.limit, u.imported, u.host, u.seconds, u.compute, u.processes, u.untracked, u.deviceUsed, u.deviceCompute,
		u.partitionUsed, u.partitionGiven, u.partitionLimit, u.partitionCores,
	} {
		out <- d
	}
}

func (u *used) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
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
		if d.IsComputeKnown {
			value(u.compute, prometheus.GaugeValue, d.Compute)
		}
	}
	for id, bytes := range report.Untracked {
		out <- prometheus.MustNewConstMetric(u.untracked, prometheus.GaugeValue, float64(bytes), string(id))
	}
	u.collectLoads(out, &report)
}

// collectLoads sends what the driver says of devices and partitions as a whole.
func (u *used) collectLoads(out chan<- prometheus.Metric, report *Usage) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for i := range report.Devices {
		d := &report.Devices[i]
		labels := labelsOf(&d.Device)
		gauge(u.deviceUsed, float64(d.Used), labels...)
		if d.IsBusyKnown {
			gauge(u.deviceCompute, d.Busy, labels...)
		}
	}
	for labels, p := range perPlace(report.Partitions) {
		gauge(u.partitionUsed, float64(p.Used), labels[:]...)
		gauge(u.partitionLimit, float64(p.Memory), labels[:]...)
		gauge(u.partitionGiven, float64(p.Record.Devices[p.Share].Memory), labels[:]...)
		gauge(u.partitionCores, float64(p.Record.Devices[p.Share].Cores), labels[:]...)
	}
}

// labelsOf are the values of deviceLabels.
func labelsOf(d *sharing.Device) []string {
	return []string{string(d.ID), strconv.Itoa(d.Index), d.Model, string(d.Mode)}
}

// perPlace has each partition once: a pod that took the name of one whose partition is not
// taken back yet has the same labels.
func perPlace(partitions []PartitionLoad) map[[6]string]*PartitionLoad {
	all := map[[6]string]*PartitionLoad{}
	for i := range partitions {
		r := &partitions[i].Record
		d := &r.Devices[partitions[i].Share]
		all[[6]string{r.Namespace, r.Pod, r.Container, string(d.Device), d.Partition.Profile, strconv.Itoa(d.Partition.Start)}] = &partitions[i]
	}
	return all
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
			d.Compute, d.IsComputeKnown = d.Compute+before.Compute, d.IsComputeKnown || before.IsComputeKnown
			all[labels] = d
		}
	}
	return all
}
