// SPDX-License-Identifier: Apache-2.0

package oversight

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/metrics/occupancy"
	"deviceshare/sharing"
)

// guarded is a node with processes on devices, as a Guard sees it.
type guarded struct {
	processes
	Observer
	records  []checkpoint.Record
	pods     map[sharing.Owner]*corev1.Pod
	programs map[int]program
	users    map[sharing.DeviceID][]int
	mute     error  // of the driver
	hang     func() // in the driver
	ended    []string
	told     []string
	*guard
}

func newGuarded(onlyTells bool) *guarded {
	g := &guarded{pods: map[sharing.Owner]*corev1.Pod{}, programs: map[int]program{}, users: map[sharing.DeviceID][]int{}}
	g.guard = newGuard(&Config{Records: g, Pods: g, Devices: g, processes: g, Observer: g, OnlyTells: onlyTells})
	return g
}

func (g *guarded) Unlimited(pod *corev1.Pod, container, what string) {
	g.told = append(g.told, pod.Name+"/"+container+": "+what)
}

func (g *guarded) All() []checkpoint.Record { return g.records }

func (g *guarded) Pod(owner sharing.Owner) (*corev1.Pod, bool) {
	p, ok := g.pods[owner]
	return p, ok
}

func (g *guarded) MemoryByProcess(id sharing.DeviceID) ([]driver.Process, error) {
	if g.hang != nil {
		g.hang()
	}
	var out []driver.Process
	for _, pid := range g.users[id] {
		out = append(out, driver.Process{PID: pid})
	}
	return out, g.mute
}

func (g *guarded) readProgram(pid int) (program, error) {
	p, ok := g.programs[pid]
	if !ok {
		return program{}, errors.New("no such process")
	}
	return p, nil
}

func (g *guarded) killAll(container string) error {
	g.ended = append(g.ended, container)
	return nil
}

// place makes a pod of one container with a share of a device in a mode, which runs as id.
func (g *guarded) place(pod, id string, device sharing.DeviceID, mode sharing.Mode, whole bool) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: pod, UID: types.UID(pod)}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{runs("main", id)}
	g.pods[sharing.Owner(pod)] = p
	g.records = append(g.records, checkpoint.Record{
		ID: "allocation-" + pod, Owner: sharing.Owner(pod), Pod: pod, Container: "main", Mode: mode,
		Devices: []checkpoint.DeviceAndShare{{Device: device, Whole: whole}},
	})
}

// groups is the only control group of a process.
func groups(path string) []procfs.Cgroup { return []procfs.Cgroup{{Path: path}} }

// start lets a process in a container use a device.
func (g *guarded) start(pid int, id string, device sharing.DeviceID, mapped ...string) {
	g.programs[pid] = program{Process: occupancy.Process{Name: "python", Started: uint64(pid)}, groups: groups("/kubepods/pod1/cri-containerd-" + id + ".scope"), mapped: mapped}
	g.users[device] = append(g.users[device], pid)
}

var (
	bound = []string{"/usr/bin/python", "/usr/local/vgpu/libvgpu.so", "/usr/lib/libcuda.so.580.1"}
	loose = []string{"/usr/bin/python", "/lib/ld-musl-x86_64.so.1", "/usr/lib/libcuda.so.580.1"}
)

func TestAContainerIsEndedOfWhichAProcessGoesPastTheLibrary(t *testing.T) {
	tests := map[string]struct {
		mode   sharing.Mode
		whole  bool
		in     string // the container of the process
		mapped []string
		ended  bool
	}{
		"it has the library":                       {mapped: bound},
		"it has not":                               {mapped: loose, ended: true},
		"it has not, in mode mps":                  {mode: sharing.MPS, mapped: loose, ended: true},
		"the library was replaced since":           {mapped: []string{"/usr/local/vgpu/libvgpu.so (deleted)"}},
		"the library stands in for the driver's":   {mapped: []string{"/usr/lib/libcuda.so.1", "/usr/lib/libcuda.so.driver"}},
		"it has a file that is named alike":        {mapped: append([]string{"/tmp/notlibvgpu.so"}, loose...), ended: true},
		"the device is its container's alone":      {whole: true, mapped: loose},
		"the device is partitioned":                {mode: sharing.MIG, mapped: loose},
		"nothing limits the mode":                  {mode: sharing.TimeSlicing, mapped: loose},
		"it is of another container":               {in: "c2", mapped: loose},
		"it ends just now, and maps nothing":       {},
		"it is of a host that has no such program": {in: "none", mapped: loose},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := newGuarded(false)
			if tc.mode == "" {
				tc.mode = sharing.HAMiCore
			}
			if tc.in == "" {
				tc.in = "c1"
			}
			g.place("a", "c1", "GPU-1", tc.mode, tc.whole)
			g.start(7, tc.in, "GPU-1", tc.mapped...)
			if g.lookAll(); len(g.ended) > 0 {
				t.Error("one look was enough: a process may just be on its way")
			}
			g.lookAll()
			if ended := slices.Equal(g.ended, []string{"c1"}); ended != tc.ended || ended != (len(g.told) == 1) {
				t.Errorf("ended are %v, told %q", g.ended, g.told)
			}
			if tc.ended && !strings.Contains(g.told[0], "a/main: process 7 (python) uses device GPU-1 without libvgpu.so") {
				t.Errorf("told is %q", g.told)
			}
		})
	}
}

func TestWhoOnlyTellsLeavesTheContainerAndTellsOnce(t *testing.T) {
	g := newGuarded(true)
	g.place("a", "c1", "GPU-1", sharing.HAMiCore, false)
	g.start(7, "c1", "GPU-1", loose...)
	for range 5 {
		g.lookAll()
	}
	if len(g.ended) > 0 || len(g.told) != 1 || strings.Contains(g.told[0], "ended") {
		t.Errorf("ended are %v, told %q", g.ended, g.told)
	}
	g.pods["a"].Status.ContainerStatuses[0].ContainerID = "containerd://c3" // it has started anew
	g.programs[7] = program{Process: occupancy.Process{Started: 8}, groups: groups("/c3"), mapped: loose}
	for range 3 {
		g.lookAll()
	}
	if len(g.told) != 2 {
		t.Errorf("of the container that came next is told %q", g.told[1:])
	}
}

func TestADriverThatDoesNotSayWhoUsesADeviceEndsNothing(t *testing.T) {
	g := newGuarded(false)
	g.place("a", "c1", "GPU-1", sharing.HAMiCore, false)
	g.start(7, "c1", "GPU-1", loose...)
	g.lookAll()
	g.mute = driver.ErrUnsupported
	g.lookAll()
	g.mute = nil
	if g.lookAll(); len(g.ended) > 0 {
		t.Errorf("ended are %v after looks that were not in a row", g.ended)
	}
}

func TestAGuardEndsWhileTheDriverDoesNotAnswer(t *testing.T) {
	g := newGuarded(false)
	g.place("a", "c1", "GPU-1", sharing.HAMiCore, false)
	asked, answer := make(chan struct{}), make(chan struct{})
	defer close(answer)
	first := sync.OnceFunc(func() { close(asked) })
	g.hang = func() { first(); <-answer }
	ctx, end := context.WithCancel(context.Background())
	over := make(chan error)
	go func() { over <- lookEvery(ctx, time.Millisecond, g.lookAll) }()
	<-asked
	end()
	select {
	case err := <-over:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Minute):
		t.Error("it waits for the driver")
	}
}

// Processes come, load the library or not, get numbers of others, and go, in any order. A container
// is ended when one process of it was seen on the device without the library in two looks in a row,
// and at no other time.
func TestInAnyOrderOnlyWhoIsSeenTwiceInARowIsEnded(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		g := newGuarded(false)
		for c := range 3 {
			g.place(fmt.Sprintf("p%d", c), fmt.Sprintf("c%d-", c), "GPU-1", sharing.HAMiCore, c == 2)
		}
		before := map[[2]uint64]bool{} // by number and start
		for n := range 40 {
			pid, c := 1+random.IntN(4), random.IntN(3)
			delete(g.programs, pid)
			g.users["GPU-1"] = slices.DeleteFunc(g.users["GPU-1"], func(p int) bool { return p == pid })
			if random.IntN(3) > 0 {
				g.start(pid, fmt.Sprintf("c%d-", c), "GPU-1", [][]string{bound, loose, loose}[random.IntN(3)]...)
				p := g.programs[pid]
				p.Started = uint64(n)
				g.programs[pid] = p
			}
			now, want := map[[2]uint64]bool{}, map[string]bool{}
			for pid, p := range g.programs {
				if slices.Contains(p.mapped, "/usr/local/vgpu/libvgpu.so") || strings.Contains(p.groups[0].Path, "c2-") {
					continue
				}
				key := [2]uint64{uint64(pid), p.Started}
				if now[key] = true; before[key] {
					want[strings.TrimSuffix(strings.TrimPrefix(p.groups[0].Path, "/kubepods/pod1/cri-containerd-"), ".scope")] = true
				}
			}
			before, g.ended = now, nil
			g.lookAll()
			got := map[string]bool{}
			for _, id := range g.ended {
				got[id] = true
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("seed %d, step %d: ended are %v, want %v", seed, n, got, want)
			}
		}
	}
}

func TestAProcessIsWhatTheKernelSaysOfIt(t *testing.T) {
	h, err := newHostProcesses("/proc")
	if err != nil {
		t.Fatal(err)
	}
	p, err := h.readProgram(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(p.mapped, self) || p.Started == 0 || len(p.groups) == 0 || !strings.HasPrefix(filepath.Base(self), p.Name) {
		t.Errorf("this process is %+v", p)
	}
	if _, err := h.readProgram(1 << 30); err == nil {
		t.Error("a process that is not there was looked at")
	}
}
