// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"strings"
	"testing"
	"time"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/sharing"
)

// Report implements UsageSource.
func (u Usage) Report(context.Context) Usage { return u }

func TestTheMetricsSayWhatContainersUse(t *testing.T) {
	c := ContainerUsage{
		Record:  checkpoint.Record{Namespace: "ns", Pod: "p", Container: "main", Mode: sharing.HAMiCore},
		Devices: []DeviceUsage{{ID: "GPU-a", Limit: 100, Used: 60, Imported: 2, Overflow: 1, Processes: 2, Busy: 1500 * time.Millisecond, Measured: true}},
	}
	next := c // of the same name, while the one before is being taken back
	next.Devices = []DeviceUsage{{ID: "GPU-a", Limit: 100, Used: 5}, {ID: "GPU-b"}}
	usage := Usage{Containers: []ContainerUsage{c, next}, Untracked: map[sharing.DeviceID]sharing.Bytes{"GPU-a": 7}}
	code, text := serve(t, New("node-1", known(), usage), func() error { return nil })("/metrics")
	labels := `{container="main",device="GPU-a",mode="hami-core",namespace="ns",node="node-1",pod="p"} `
	for _, want := range []string{
		"deviceshare_container_memory_used_bytes" + labels + "65",
		"deviceshare_container_memory_limit_bytes" + labels + "200",
		"deviceshare_container_memory_imported_bytes" + labels + "2",
		"deviceshare_container_memory_host_bytes" + labels + "1",
		"deviceshare_container_gpu_seconds_total" + labels + "1.5",
		"deviceshare_container_processes" + labels + "2",
		`deviceshare_device_memory_untracked_bytes{device="GPU-a",node="node-1"} 7`,
		`deviceshare_node_problems_total{kind="usage",node="node-1"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("missing: %s", want)
		}
	}
	if code != 200 || strings.Contains(text, `gpu_seconds_total{container="main",device="GPU-b"`) || strings.Contains(text, `untracked_bytes{device="GPU-b"`) {
		t.Errorf("%d: something is told that nobody measured", code)
	}
}
