// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/metrics/occupancy"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// States gives what is shown of the node's devices. Implementations are safe for
// concurrent use.
type States interface {
	Snapshot() Snapshot
}

// Snapshot is the states at one moment.
type Snapshot struct {
	// Offered is the devices as they are offered, Working as they work.
	Offered, Working sharing.Inventory
	// Config is the configuration in force.
	Config wire.ConfigVersions
	// Records are the containers that were prepared.
	Records []checkpoint.Record
	// Strangers are processes that use a device of which they were given nothing.
	Strangers []occupancy.Use
}

// states collects them when asked.
type states struct {
	from States

	healthy, ready, licensed, memory, cores, given, coresGiven, shares, shareMemory, shareCores, strangers *prometheus.Desc
}

func newStates(from States) *states {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("deviceshare_node_"+name, help, labels, nil)
	}
	device := deviceLabels()
	share := []string{"namespace", "pod", "container", "device", "mode"}
	return &states{
		from:        from,
		healthy:     desc("device_healthy", "1 if the device works, 0 if it is broken.", device...),
		ready:       desc("device_ready", "1 if the device takes pods in its mode, 0 if it is broken or not in that mode.", device...),
		licensed:    desc("device_licensed", "1 if the driver says that the vGPU has its licence, 0 if not; nothing of other devices.", device...),
		memory:      desc("device_memory_bytes", "Memory the device offers.", device...),
		cores:       desc("device_cores_percent", "Compute the device offers.", device...),
		given:       desc("device_memory_given_bytes", "Memory of the device that running containers were given.", device...),
		coresGiven:  desc("device_cores_given_percent", "Compute of the device that running containers were given.", device...),
		shares:      desc("device_shares", "Containers that were prepared on the device.", device...),
		shareMemory: desc("share_memory_bytes", "Memory a container was given of a device.", share...),
		strangers: prometheus.NewDesc("deviceshare_device_stranger_memory_bytes",
			"Memory that processes have of a device of which they were given nothing. No pod: programs of the host, pods that are gone.",
			[]string{"device", "namespace", "pod"}, nil),
		shareCores: desc("share_cores_percent", "Compute a container was given of a device; 0 is no limit.", share...),
	}
}

func (s *states) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.healthy, s.ready, s.licensed, s.memory, s.cores, s.given, s.coresGiven, s.shares, s.shareMemory, s.shareCores, s.strangers} {
		out <- d
	}
}

// holder is who a share's metrics are about: namespace, pod, container, device,
// mode. A pod that took the name of one whose devices are not released yet is the
// same holder: two series alike would cost the whole page.
type holder [5]string

// share is what a holder was given of a device, or what all were.
type share struct {
	memory sharing.Bytes
	cores  sharing.Percent
}

func (s share) plus(memory sharing.Bytes, cores sharing.Percent) share {
	return share{memory: s.memory.Plus(memory), cores: s.cores + cores}
}

func (s *states) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	given, shares := map[sharing.DeviceID]share{}, map[sharing.DeviceID]int{}
	held := map[holder]share{}
	now := s.from.Snapshot()
	for _, r := range now.Records {
		for _, d := range r.Devices {
			given[d.Device] = given[d.Device].plus(d.Memory, d.Cores)
			shares[d.Device]++
			by := holder{r.Namespace, r.Pod, r.Container, string(d.Device), string(r.Mode)}
			held[by] = held[by].plus(d.Memory, d.Cores)
		}
	}
	for by, h := range held {
		gauge(s.shareMemory, float64(h.memory), by[:]...)
		gauge(s.shareCores, float64(h.cores), by[:]...)
	}
	for by, bytes := range strangersOf(now.Strangers) {
		gauge(s.strangers, float64(bytes), by[:]...)
	}
	for i := range now.Working.Devices {
		d := &now.Working.Devices[i]
		labels := labelsOf(d)
		gauge(s.healthy, boolToFloat(d.Healthy), labels...)
		offer, there := now.Offered.Device(d.ID)
		gauge(s.ready, boolToFloat(there && offer.Healthy), labels...)
		if d.Virtual && d.Licence != sharing.LicenceUnknown {
			gauge(s.licensed, boolToFloat(d.Licence == sharing.LicenceValid), labels...)
		}
		gauge(s.memory, float64(d.Memory), labels...)
		gauge(s.cores, float64(d.Cores), labels...)
		gauge(s.given, float64(given[d.ID].memory), labels...)
		gauge(s.coresGiven, float64(given[d.ID].cores), labels...)
		gauge(s.shares, float64(shares[d.ID]), labels...)
	}
}

// mostStrangers is how many pods are named that have nothing of what they use. The rest are in one
// series of each device: whoever starts pods can make no more.
const mostStrangers = 100

// strangersOf adds up what strangers have by device, namespace and pod.
func strangersOf(uses []occupancy.Use) map[[3]string]sharing.Bytes {
	out := map[[3]string]sharing.Bytes{}
	for i := range uses {
		u := &uses[i]
		by := [3]string{string(u.Device), u.Namespace, u.Pod}
		if _, known := out[by]; !known && len(out) >= mostStrangers {
			by = [3]string{string(u.Device), "", ""}
		}
		out[by] = out[by].Plus(u.Memory)
	}
	return out
}

func boolToFloat(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// configuration collects what the device plugin goes by. Its label node is a hash: it is kept apart
// from what is labelled with the node's name.
type configuration struct {
	from States
	info *prometheus.Desc
}

func newConfiguration(from States) *configuration {
	return &configuration{from, prometheus.NewDesc("deviceshare_config_info", "Always 1. The hashes of the configuration in force.",
		[]string{"device", "node", "geometry"}, nil)}
}

func (c *configuration) Describe(out chan<- *prometheus.Desc) { out <- c.info }

func (c *configuration) Collect(out chan<- prometheus.Metric) {
	v := c.from.Snapshot().Config
	out <- prometheus.MustNewConstMetric(c.info, prometheus.GaugeValue, 1, v.Device, v.Node, v.Geometry)
}
