// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/sharing"
)

// States is where the numbers that are states come from.
type States struct {
	Inventory func() (sharing.Inventory, bool)
	Records   func() []checkpoint.Record
}

// states collects them when asked.
type states struct {
	from States

	healthy, memory, cores, given, shares, shareMemory, shareCores *prometheus.Desc
}

func newStates(from States) *states {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("deviceshare_node_"+name, help, labels, nil)
	}
	device := []string{"device", "index", "model", "mode"}
	share := []string{"namespace", "pod", "container", "device", "mode"}
	return &states{
		from:        from,
		healthy:     desc("device_healthy", "1 if the device works, 0 if it is broken.", device...),
		memory:      desc("device_memory_bytes", "Memory the device offers.", device...),
		cores:       desc("device_cores_percent", "Compute the device offers.", device...),
		given:       desc("device_memory_given_bytes", "Memory of the device that running containers were given.", device...),
		shares:      desc("device_shares", "Containers that were prepared on the device.", device...),
		shareMemory: desc("share_memory_bytes", "Memory a container was given of a device.", share...),
		shareCores:  desc("share_cores_percent", "Compute a container was given of a device; 0 is no limit.", share...),
	}
}

// Describe implements prometheus.Collector.
func (s *states) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.healthy, s.memory, s.cores, s.given, s.shares, s.shareMemory, s.shareCores} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (s *states) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	given, shares := map[sharing.DeviceID]sharing.Bytes{}, map[sharing.DeviceID]int{}
	for _, r := range s.from.Records() {
		for _, d := range r.Devices {
			given[d.Device] = given[d.Device].Plus(d.Memory)
			shares[d.Device]++
			labels := []string{r.Namespace, r.Pod, r.Container, string(d.Device), string(r.Mode)}
			gauge(s.shareMemory, float64(d.Memory), labels...)
			gauge(s.shareCores, float64(d.Cores), labels...)
		}
	}
	inv, _ := s.from.Inventory()
	for i := range inv.Devices {
		d := &inv.Devices[i]
		labels := []string{string(d.ID), strconv.Itoa(d.Index), d.Model, string(d.Mode)}
		healthy := 0.0
		if d.Healthy {
			healthy = 1
		}
		gauge(s.healthy, healthy, labels...)
		gauge(s.memory, float64(d.Memory), labels...)
		gauge(s.cores, float64(d.Cores), labels...)
		gauge(s.given, float64(given[d.ID]), labels...)
		gauge(s.shares, float64(shares[d.ID]), labels...)
	}
}
