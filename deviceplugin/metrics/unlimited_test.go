// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/driver"
	"deviceshare/sharing"
)

// statuses are pods by their UIDs, each with the runtime's ids of its containers.
type statuses map[sharing.Owner]map[string]string

func (s statuses) Pod(owner sharing.Owner) (*corev1.Pod, bool) {
	ids, known := s[owner]
	pod := &corev1.Pod{}
	for name, id := range ids {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, ContainerID: "containerd://" + id})
	}
	return pod, known
}

// perDevice are the processes of each device; of those that are missing the driver does not tell.
type perDevice map[sharing.DeviceID][]driver.Process

func (p perDevice) MemoryByProcess(id sharing.DeviceID) ([]driver.Process, error) {
	list, known := p[id]
	if !known {
		return nil, driver.ErrUnsupported
	}
	return list, nil
}

func (perDevice) BusyByProcess(sharing.DeviceID, time.Duration) (map[int]float64, error) {
	return nil, driver.ErrUnsupported
}

func (perDevice) Load(string) (driver.Load, error) { return driver.Load{}, driver.ErrUnsupported }

// in returns a record of a container in one mode.
func in(mode sharing.Mode, owner sharing.Owner, container string, devices ...checkpoint.DeviceAndShare) checkpoint.Record {
	return checkpoint.Record{ID: string(owner) + container, Owner: owner, Namespace: "ns", Pod: "p", Container: container, Mode: mode, Devices: devices}
}

func part(id sharing.DeviceID, memory sharing.Bytes) checkpoint.DeviceAndShare {
	return checkpoint.DeviceAndShare{Device: id, Memory: memory}
}

func all(id sharing.DeviceID) checkpoint.DeviceAndShare {
	return checkpoint.DeviceAndShare{Device: id, Memory: 1000, Whole: true}
}

func TestWhatNobodyLimitsIsAskedOfTheDriver(t *testing.T) {
	pods := statuses{uid: {"main": "aaa", "side": "bbb", "idle": "ccc"}, other: {"main": "ddd"}}
	host := groups{
		1: "/kubepods/pod" + uid + "/aaa", 2: "/kubepods/pod" + uid + "/bbb", 3: "/kubepods/pod" + uid + "/ccc",
		4: "/kubepods/pod" + other + "/ddd", 5: "/user.slice", 6: "/kubepods/pod" + uid + "/new", 7: "/kubepods/pod" + other + "/new",
	}
	cases := map[string]struct {
		records []checkpoint.Record
		devices perDevice
		want    []DeviceUsage
	}{
		"a partition": {
			[]checkpoint.Record{in(sharing.MIG, uid, "main", part("GPU-a", 500))}, perDevice{"GPU-a": {{PID: 1, Memory: 60}, {PID: 4, Memory: 7}}},
			[]DeviceUsage{{ID: "GPU-a", Limit: 500, Used: 60, Processes: 1}}},
		"two partitions of one device: the first has it all": {
			[]checkpoint.Record{in(sharing.MIG, uid, "main", part("GPU-a", 500), part("GPU-a", 200))}, perDevice{"GPU-a": {{PID: 1, Memory: 60}}},
			[]DeviceUsage{{ID: "GPU-a", Limit: 500, Used: 60, Processes: 1}, {ID: "GPU-a", Limit: 200}}},
		"time slices, two containers of one pod, a program of the host": {
			[]checkpoint.Record{in(sharing.TimeSlicing, uid, "main", part("GPU-a", 500)), in(sharing.TimeSlicing, uid, "side", part("GPU-a", 100))},
			perDevice{"GPU-a": {{PID: 1, Memory: 60}, {PID: 2, Memory: 5}, {PID: 2, Memory: 6}, {PID: 5, Memory: 900}}},
			[]DeviceUsage{{ID: "GPU-a", Used: 60, Processes: 1}, {ID: "GPU-a", Used: 11, Processes: 2}}},
		"a whole device": {
			[]checkpoint.Record{in(sharing.HAMiCore, other, "main", all("GPU-a"))}, perDevice{"GPU-a": {{PID: 4, Memory: 70}}},
			[]DeviceUsage{{ID: "GPU-a", Used: 70, Processes: 1}}},
		"a container of the pod that was given nothing": {
			[]checkpoint.Record{in(sharing.TimeSlicing, uid, "main", part("GPU-a", 500))}, perDevice{"GPU-a": {{PID: 3, Memory: 60}}},
			[]DeviceUsage{{ID: "GPU-a"}}},
		"a container that has just started, the only one that it can be": {
			[]checkpoint.Record{in(sharing.TimeSlicing, uid, "main", part("GPU-a", 500))}, perDevice{"GPU-a": {{PID: 6, Memory: 60}}},
			[]DeviceUsage{{ID: "GPU-a", Used: 60, Processes: 1}}},
		"a container that has just started, one of two": {
			[]checkpoint.Record{in(sharing.TimeSlicing, uid, "main", part("GPU-a", 500)), in(sharing.TimeSlicing, uid, "side", part("GPU-a", 100))},
			perDevice{"GPU-a": {{PID: 6, Memory: 60}}},
			[]DeviceUsage{{ID: "GPU-a"}, {ID: "GPU-a"}}},
		"a process that has ended": {
			[]checkpoint.Record{in(sharing.TimeSlicing, uid, "main", part("GPU-a", 500))}, perDevice{"GPU-a": {{PID: 99, Memory: 60}}},
			[]DeviceUsage{{ID: "GPU-a"}}},
		"a driver that does not tell of one of two devices": {
			[]checkpoint.Record{in(sharing.TimeSlicing, uid, "main", part("GPU-a", 500), part("GPU-b", 500))}, perDevice{"GPU-a": {{PID: 1, Memory: 60}}}, nil},
		"a container with limits is counted by its library": {
			[]checkpoint.Record{in(sharing.HAMiCore, uid, "main", part("GPU-a", 500))}, perDevice{"GPU-a": {{PID: 1, Memory: 60}}}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := NewSurvey(SurveyConfig{StateDir: t.TempDir(), Records: recorded(c.records), Pods: pods, Devices: c.devices, Host: host})
			var got []DeviceUsage
			for _, u := range s.measureUnlimited(context.Background()) {
				got = append(got, u.Devices...)
			}
			if len(got) != len(c.want) {
				t.Fatalf("the usage is %+v, want %+v", got, c.want)
			}
			for i := range got {
				if got[i] != c.want[i] {
					t.Errorf("the usage is %+v, want %+v", got[i], c.want[i])
				}
			}
		})
	}
}

func TestAReportHasContainersWithAndWithoutLimits(t *testing.T) {
	records := recorded{record(uid), in(sharing.MIG, other, "main", part("GPU-b", 500))}
	s := NewSurvey(SurveyConfig{
		StateDir: t.TempDir(), Records: records, Pods: statuses{other: {"main": "ddd"}}, Host: groups{4: "/kubepods/pod" + other + "/ddd"},
		Devices: perDevice{"GPU-a": {}, "GPU-b": {{PID: 4, Memory: 9}}},
	})
	got := s.Report(context.Background()).Containers
	if len(got) != 2 || got[0].Record.Owner != uid || got[1].Devices[0].Used != 9 {
		t.Errorf("the report is %+v", got)
	}
}
