// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/driver"
	"deviceshare/sharing"
)

// UIDs of two pods, as the control groups of their processes name them.
const (
	uid   = "0f3e1c2d-4b5a-6978-8899-aabbccddeeff"
	other = "11111111-4b5a-6978-8899-aabbccddeeff"
)

func noLimit() error { return nil }

func TestWhatATenantPutsInPlaceOfItsRegionIsAnError(t *testing.T) {
	cases := map[string]func(path string) error{
		"a link":        func(path string) error { return os.Symlink("/etc/passwd", path) },
		"a pipe":        func(path string) error { return syscall.Mkfifo(path, 0o666) },
		"a directory":   func(path string) error { return os.Mkdir(path, 0o755) },
		"an empty file": func(path string) error { return os.WriteFile(path, nil, 0o600) },
	}
	for name, put := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "vgpu.cache")
			if err := put(path); err != nil {
				t.Fatal(err)
			}
			if _, err := ReadRegion(path, noLimit); err == nil || errors.Is(err, os.ErrNotExist) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func TestASlotThatNobodyHasLockedIsOfADeadProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vgpu.cache")
	if err := os.WriteFile(path, newImage(), 0o600); err != nil {
		t.Fatal(err)
	}
	region, err := ReadRegion(path, noLimit)
	if err != nil || len(region.Devices) != 2 || region.Devices[0].Used != 0 || region.Devices[0].Processes != 0 {
		t.Errorf("the region is %+v, %v", region, err)
	}
}

// record is a container with a part of device GPU-a.
func record(owner sharing.Owner) checkpoint.Record {
	return checkpoint.Record{
		ID: "id-" + string(owner), Owner: owner, Namespace: "ns", Pod: "p", Container: "main", Mode: sharing.HAMiCore,
		Devices: []checkpoint.DeviceAndShare{{Device: "GPU-a", Memory: 1000, Cores: 30}},
	}
}

// recorded are the containers that were prepared.
type recorded []checkpoint.Record

func (r recorded) All() []checkpoint.Record { return r }

// noPods knows no pod: it is gone, or the watch is late.
type noPods struct{}

func (noPods) Pod(sharing.Owner) (*corev1.Pod, bool) { return nil, false }

// processes are those on every device.
type processes []driver.Process

func (p processes) MemoryByProcess(sharing.DeviceID) ([]driver.Process, error) { return p, nil }

func (processes) BusyByProcess(sharing.DeviceID, time.Duration) (map[int]float64, error) {
	return nil, driver.ErrUnsupported
}

func (processes) Load(string) (driver.Load, error) { return driver.Load{}, driver.ErrUnsupported }

// hanging is a driver that does not answer; asked is told of each question.
type hanging struct {
	processes
	asked func()
	until chan struct{}
}

func (h hanging) MemoryByProcess(sharing.DeviceID) ([]driver.Process, error) {
	h.asked()
	<-h.until
	return nil, nil
}

// groups are the control groups of processes.
type groups map[int]string

func (g groups) Cgroups(pid int) ([]procfs.Cgroup, error) {
	return []procfs.Cgroup{{Path: g[pid]}}, nil
}

func TestAReportTellsATroubleOnceAndWhatIsUntracked(t *testing.T) {
	dir, told := t.TempDir(), 0
	records := []checkpoint.Record{record(uid), record(other)}
	bad := filepath.Join(dir, "hami-core", "containers", other+"_main", "vgpu")
	if err := os.MkdirAll(bad, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(bad, "vgpu.cache")); err != nil {
		t.Fatal(err)
	}
	s := NewSurvey(SurveyConfig{
		StateDir: dir, Records: recorded(records), Pods: noPods{}, Devices: processes{{PID: 1, Memory: 30}, {PID: 2, Memory: 7}},
		Host: groups{1: "/kubepods/pod" + uid + "/x", 2: "/user.slice"},
		Trouble: func(_ checkpoint.Record, err error) {
			if told++; !strings.Contains(err.Error(), "pod ns/p") {
				t.Errorf("the error is %v", err)
			}
		},
	})
	for range 5 {
		r := s.Report(context.Background())
		if len(r.Containers) != 1 || r.Containers[0].Devices[0].Limit != 1000 || r.Untracked["GPU-a"] != 30 {
			t.Fatalf("the report is %+v", r)
		}
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}

func TestADriverThatHangsCostsOnlyWhatItWouldHaveTold(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := NewSurvey(SurveyConfig{
		StateDir: t.TempDir(), Records: recorded{record(uid)}, Pods: noPods{}, Devices: hanging{asked: cancel, until: hang}, Host: groups{},
	})
	if r := s.Report(ctx); len(r.Containers) != 1 || r.Untracked != nil {
		t.Errorf("the report is %+v", r)
	}
	again, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if r := s.Report(again); r.Containers != nil {
		t.Errorf("a second one asked too: %+v", r)
	}
}

func TestUntrackedIsWhatPodsHaveBeyondTheirRegions(t *testing.T) {
	two := []driver.Process{{PID: 1, Memory: 50}, {PID: 2, Memory: 50}}
	cases := map[string]struct {
		processes []driver.Process
		owners    []sharing.Owner
		pods      map[sharing.Owner]sharing.Bytes
		want      sharing.Bytes
		ok        bool
	}{
		"all is known":                          {two, []sharing.Owner{"a", "a"}, map[sharing.Owner]sharing.Bytes{"a": 100}, 0, true},
		"a program goes past the library":       {two, []sharing.Owner{"a", "a"}, map[sharing.Owner]sharing.Bytes{"a": 40}, 60, true},
		"one that says too much hides no other": {two, []sharing.Owner{"a", "b"}, map[sharing.Owner]sharing.Bytes{"a": 90, "b": 0}, 50, true},
		"others of the node do not count":       {two, []sharing.Owner{"a", "x"}, map[sharing.Owner]sharing.Bytes{"a": 50}, 0, true},
		"nobody is there":                       {nil, nil, map[sharing.Owner]sharing.Bytes{"a": 0}, 0, true},
		"the driver hides who is there":         {nil, nil, map[sharing.Owner]sharing.Bytes{"a": 5}, 0, false},
		"PIDs that mean nothing here":           {two, []sharing.Owner{"", ""}, map[sharing.Owner]sharing.Bytes{"a": 0}, 0, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got, ok := untrackedMemory(c.processes, c.owners, c.pods); got != c.want || ok != c.ok {
				t.Errorf("%v, %v, want %v, %v", got, ok, c.want, c.ok)
			}
		})
	}
}

func TestAPodWithAWholeDeviceIsLeftOut(t *testing.T) {
	whole, shared := record("a"), record("b")
	whole.Devices[0].Whole = true
	got := trackedMemory([]checkpoint.Record{whole, shared}, []ContainerUsage{{Record: shared, Devices: []DeviceUsage{{ID: "GPU-a", Used: 9, Overflow: 2, Uncounted: 1}}}})
	if len(got["GPU-a"]) != 1 || got["GPU-a"]["b"] != 8 {
		t.Errorf("tracked is %v", got)
	}
}
