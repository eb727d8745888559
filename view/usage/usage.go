// SPDX-License-Identifier: Apache-2.0

// Package usage reads what containers use of devices from the metrics of a device plugin. It is
// pure: who fetches the page is package forward.
package usage

import (
	"fmt"
	"io"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// The metrics that are read; docs/metrics.md and docs/operate.md say what they mean.
const (
	memoryUsed  = "deviceshare_container_memory_used_bytes"
	memoryLimit = "deviceshare_container_memory_limit_bytes"
	gpuSeconds  = "deviceshare_container_gpu_seconds_total"
	strangers   = "deviceshare_device_stranger_memory_bytes"
)

// Metrics are the names of the metrics that are read.
func Metrics() []string { return []string{memoryUsed, memoryLimit, gpuSeconds, strangers} }

// Holder is one container on one device. Its partitions of the device are one holder.
type Holder struct{ Namespace, Pod, Container, Device string }

// Use is what a holder uses.
type Use struct {
	// Memory is what counts against the limit, and Limit is that; 0 is no limit. In bytes.
	Memory, Limit int64
	// Seconds of GPU time since the container began, and whether anybody measures them.
	Seconds  float64
	Measured bool
}

// Page is what the device plugin of one node said at one moment.
type Page struct {
	Uses map[Holder]Use
	// Strangers is the memory, by device, of processes that were given nothing of the device.
	Strangers map[string]int64
}

// Read reads a page in Prometheus' text format. Metrics that it does not know are passed over.
func Read(r io.Reader) (*Page, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return nil, fmt.Errorf("read the metrics: %w", err)
	}
	p := &Page{Uses: map[Holder]Use{}, Strangers: map[string]int64{}}
	p.addMetric(families[memoryUsed], func(u *Use, v float64) { u.Memory += int64(v) })
	p.addMetric(families[memoryLimit], func(u *Use, v float64) { u.Limit += int64(v) })
	p.addMetric(families[gpuSeconds], func(u *Use, v float64) { u.Seconds, u.Measured = u.Seconds+v, true })
	for _, m := range families[strangers].GetMetric() {
		p.Strangers[labelValue(m, "device")] += int64(metricValue(m))
	}
	return p, nil
}

func (p *Page) addMetric(family *dto.MetricFamily, add func(*Use, float64)) {
	for _, m := range family.GetMetric() {
		h := Holder{Namespace: labelValue(m, "namespace"), Pod: labelValue(m, "pod"), Container: labelValue(m, "container"), Device: labelValue(m, "device")}
		u := p.Uses[h]
		add(&u, metricValue(m))
		p.Uses[h] = u
	}
}

func labelValue(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// metricValue is the number of a metric; none is negative.
func metricValue(m *dto.Metric) float64 {
	v := max(m.GetGauge().GetValue(), m.GetCounter().GetValue(), m.GetUntyped().GetValue())
	if v != v || v < 0 { // not a number
		return 0
	}
	return min(v, 1<<62)
}
