// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/procfs"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/driver"
	"deviceshare/sharing"
)

// busyDevices is a driver that knows of each device, or partition, how much of it is in use and
// who keeps it busy.
type busyDevices struct {
	perDevice
	loads map[string]driver.Load
	busy  map[sharing.DeviceID]map[int]float64
}

func (b busyDevices) BusyByProcess(id sharing.DeviceID, _ time.Duration) (map[int]float64, error) {
	by, known := b.busy[id]
	if !known {
		return nil, driver.ErrUnsupported
	}
	return maps.Clone(by), nil
}

func (b busyDevices) Load(id string) (driver.Load, error) {
	load, known := b.loads[id]
	if !known {
		return driver.Load{}, driver.ErrLost
	}
	return load, nil
}

// partition is a share that is a partition, prepared as the MIG device of this name.
func partition(id sharing.DeviceID, start int, uuid string) checkpoint.DeviceAndShare {
	share := part(id, 500)
	share.Cores, share.Partition = 14, checkpoint.Partition{Profile: "1g.5gb", Start: start, Size: 1, UUID: uuid}
	return share
}

// shared is a node with a time-sliced device of two pods, and one that is cut into partitions.
func shared(t *testing.T) *Survey {
	t.Helper()
	return NewSurvey(SurveyConfig{
		StateDir: t.TempDir(), States: known(), // GPU-a and GPU-b work, GPU-c is broken
		Records: recorded{
			in(sharing.TimeSlicing, uid, "main", part("GPU-a", 500)), in(sharing.TimeSlicing, other, "main", part("GPU-a", 100)),
			in(sharing.MIG, other, "cut", partition("GPU-b", 0, "MIG-0"), partition("GPU-b", 1, "MIG-1"), partition("GPU-b", 2, "")),
		},
		Pods: statuses{uid: {"main": "aaa", "side": "bbb"}, other: {"main": "ddd", "cut": "eee"}},
		Host: groups{
			1: "/kubepods/pod" + uid + "/aaa", 2: "/kubepods/pod" + uid + "/bbb", 3: "/user.slice", 4: "/kubepods/pod" + other + "/ddd",
			5: "/kubepods/pod" + other + "/ddd", 6: "/kubepods/pod" + other + "/eee",
		},
		Devices: busyDevices{
			perDevice: perDevice{"GPU-a": {{PID: 1, Memory: 60}}, "GPU-b": {{PID: 6, Memory: 7}}},
			loads: map[string]driver.Load{
				"GPU-a": {Memory: 1000, Used: 90, Busy: .75, IsBusyKnown: true}, "GPU-b": {Memory: 2000, Used: 12}, "GPU-c": {Memory: 1, Used: 1},
				"MIG-0": {Memory: 510, Used: 5}, "MIG-1": {Memory: 511, Used: 7},
			},
			busy: map[sharing.DeviceID]map[int]float64{"GPU-a": {1: .25, 2: .1, 3: .2, 4: .8, 5: .7}},
		},
	})
}

func TestEachContainerHasTheTimeThatItsOwnProcessesHad(t *testing.T) {
	got := map[string]DeviceUsage{}
	for _, c := range shared(t).Report(context.Background()).Containers {
		got[string(c.Record.Owner)+"/"+c.Record.Container] = c.Devices[0]
	}
	for who, want := range map[string]float64{
		uid + "/main":   .25, // its own, and neither its neighbour's without a share nor the host's
		other + "/main": 1,   // two processes, which cannot have more than all
	} {
		if d := got[who]; !d.IsComputeKnown || d.Compute != want {
			t.Errorf("%s had %v (%v), want %v", who, d.Compute, d.IsComputeKnown, want)
		}
	}
	if d, there := got[other+"/cut"]; !there || d.IsComputeKnown {
		t.Errorf("of a partition the driver does not tell: %+v", d)
	}
}

func TestPIDsThatMeanNothingHereSayNothingOfCompute(t *testing.T) {
	s := shared(t)
	s.cfg.Host = endedProcesses{}
	for _, c := range s.Report(context.Background()).Containers {
		if c.Devices[0].IsComputeKnown {
			t.Errorf("container %s had %v", c.Record.Container, c.Devices[0].Compute)
		}
	}
}

func TestDevicesAndPartitionsAreToldAsTheDriverSays(t *testing.T) {
	code, text := serve(t, New("node-1", known(), shared(t)), func() error { return nil })("/metrics")
	device := func(id, index string) string {
		return `{device="` + id + `",index="` + index + `",mode="hami-core",model="A30",node="node-1"} `
	}
	place := func(start string) string {
		return `{container="cut",device="GPU-b",namespace="ns",node="node-1",pod="p",profile="1g.5gb",start="` + start + `"} `
	}
	for _, want := range []string{
		"deviceshare_node_device_memory_used_bytes" + device("GPU-a", "0") + "90",
		"deviceshare_node_device_memory_used_bytes" + device("GPU-b", "1") + "12",
		"deviceshare_node_device_compute_used_ratio" + device("GPU-a", "0") + "0.75",
		"deviceshare_node_partition_memory_used_bytes" + place("0") + "5",
		"deviceshare_node_partition_memory_used_bytes" + place("1") + "7",
		"deviceshare_node_partition_memory_limit_bytes" + place("1") + "511",
		"deviceshare_node_partition_memory_given_bytes" + place("1") + "500",
		"deviceshare_node_partition_cores_given_percent" + place("0") + "14",
		`deviceshare_node_device_cores_given_percent{device="GPU-a",index="0",mode="hami-core",model="A30",node="node-1"} 60`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("missing: %s", want)
		}
	}
	for what, never := range map[string]string{
		"a broken device": "memory_used_bytes" + device("GPU-c", "2"), "compute of a device that is cut": "compute_used_ratio" + device("GPU-b", "1"),
		"a partition that is not prepared": `start="2"`,
	} {
		if strings.Contains(text, never) {
			t.Errorf("%d: %s is told", code, what)
		}
	}
}

func TestTheMetricsAreNamedAsPrometheusWantsIt(t *testing.T) {
	_, text := serve(t, New("node-1", known(), shared(t)), func() error { return nil })("/metrics")
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// endedProcesses are those of another namespace of PIDs: here nobody has these numbers.
type endedProcesses struct{}

func (endedProcesses) Cgroups(int) ([]procfs.Cgroup, error) {
	return nil, errors.New("no such process")
}
