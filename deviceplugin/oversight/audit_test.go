// SPDX-License-Identifier: Apache-2.0

package oversight

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/metrics/occupancy"
	"deviceshare/sharing"
)

// Pods are named in control groups by UIDs of this form.
func uidOf(n int) sharing.Owner {
	return sharing.Owner(fmt.Sprintf("00000000-0000-0000-0000-%012d", n))
}

func idOf(pod int, container string) string { return fmt.Sprintf("%s%060d", container[:1], pod) }

// audited is a node with processes on devices, as an Audit sees it.
type audited struct {
	guarded
	loop
	offered   []sharing.DeviceID
	processes map[int]occupancy.Process
	paths     map[int]string
	told      []string
	*audit
}

func newAudited(exempt Exemptions) *audited {
	a := &audited{offered: []sharing.DeviceID{"GPU-0", "GPU-1"}, processes: map[int]occupancy.Process{}, paths: map[int]string{}}
	a.guarded = guarded{pods: map[sharing.Owner]*corev1.Pod{}, users: map[sharing.DeviceID][]int{}}
	a.audit = newAudit(&Config{Exempt: exempt, Records: a, Pods: a, Agent: a, Devices: a, processes: a, Observer: a})
	return a
}

func (a *audited) lookAll() { a.audit.lookAll() }

func (a *audited) Uses() []occupancy.Use { return (&Oversight{audit: a.audit}).Uses() }

func (a *audited) Offered() []sharing.DeviceID { return a.offered }

func (a *audited) MemoryByProcess(id sharing.DeviceID) ([]driver.Process, error) {
	var out []driver.Process
	for _, pid := range a.users[id] {
		out = append(out, driver.Process{PID: pid, Memory: sharing.MiB})
	}
	return out, a.mute
}

func (a *audited) identifyProcess(pid int) (occupancy.Process, []procfs.Cgroup, error) {
	p, ok := a.processes[pid]
	if !ok {
		return p, nil, errors.New("no such process")
	}
	return p, []procfs.Cgroup{{Path: a.paths[pid]}}, nil
}

func (a *audited) Stranger(pod *corev1.Pod, use occupancy.Use) {
	on := "node"
	if pod != nil {
		on = pod.Namespace + "/" + pod.Name
	}
	a.told = append(a.told, on+": "+use.String())
}

// begin makes a process of a program, with a control group, that uses a device.
func (a *audited) begin(pid int, program, path string, id sharing.DeviceID) {
	a.processes[pid] = occupancy.Process{PID: pid, Started: uint64(1000 + pid), Name: program}
	a.paths[pid] = path
	a.users[id] = append(a.users[id], pid)
}

// pod makes a pod with containers main and side that run. main has a share of devices.
func (a *audited) pod(n int, namespace string, devices ...sharing.DeviceID) {
	owner := uidOf(n)
	a.place(string(owner), idOf(n, "main"), "", sharing.HAMiCore, false)
	last := &a.records[len(a.records)-1]
	last.Devices = last.Devices[:0]
	for _, id := range devices {
		last.Devices = append(last.Devices, checkpoint.DeviceAndShare{Device: id})
	}
	p := a.pods[owner]
	p.Namespace, p.Name = namespace, fmt.Sprintf("p%d", n)
	p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, runs("side", idOf(n, "side")))
}

// cgroup is the control group of a container of a pod.
func cgroup(n int, container string) string {
	return "/kubepods/burstable/pod" + string(uidOf(n)) + "/" + idOf(n, container)
}

func TestWhoUsesADeviceWithoutAShareIsTold(t *testing.T) {
	const what = " has 1MiB of device GPU-0, of which it was given nothing"
	cases := map[string]struct {
		begin func(a *audited)
		want  string // "" for nothing
	}{
		"a container with a share": {func(a *audited) { a.begin(1, "python", cgroup(1, "main"), "GPU-0") }, ""},
		"a container beside one with a share": {
			func(a *audited) { a.begin(1, "python", cgroup(1, "side"), "GPU-0") }, "team/p1: process 1 (python) of container side" + what},
		"a pod with a share of another device": {
			func(a *audited) { a.begin(1, "python", cgroup(2, "main"), "GPU-0") }, "team/p2: process 1 (python) of container main" + what},
		"a pod with nothing": {
			func(a *audited) { a.pod(3, "team"); a.begin(1, "python", cgroup(3, "main"), "GPU-0") }, "team/p3: process 1 (python) of container main" + what},
		"a container that has just started beside one with a share": {
			func(a *audited) { a.begin(1, "python", cgroup(1, "later"), "GPU-0") }, ""},
		"a pod that is gone": {
			func(a *audited) { a.begin(1, "python", cgroup(9, "main"), "GPU-0") },
			"node: process 1 (python) of the pod with UID " + string(uidOf(9)) + ", which this node does not know any more," + what},
		"a program of the host": {
			func(a *audited) { a.begin(1, "Xorg", "/user.slice", "GPU-0") }, "node: process 1 (Xorg) of the host, outside of all pods," + what},
		"the MPS server on the host": {func(a *audited) { a.begin(1, "nvidia-cuda-mps", "/system.slice", "GPU-0") }, ""},
		"a container named like the MPS server": {
			func(a *audited) { a.begin(1, "nvidia-cuda-mps", cgroup(2, "main"), "GPU-0") }, "team/p2: process 1 (nvidia-cuda-mps) of container main" + what},
		"a pod of an exempt namespace": {func(a *audited) { a.pod(3, "ours"); a.begin(1, "dcgm", cgroup(3, "main"), "GPU-0") }, ""},
		"a pod with an exempt service account": {
			func(a *audited) {
				a.pods[uidOf(2)].Spec.ServiceAccountName = "dcgm"
				a.begin(1, "dcgm", cgroup(2, "main"), "GPU-0")
			}, ""},
		"a pod with the exempt service account of another namespace": {
			func(a *audited) {
				a.pod(3, "elsewhere")
				a.pods[uidOf(3)].Spec.ServiceAccountName = "dcgm"
				a.begin(1, "dcgm", cgroup(3, "main"), "GPU-0")
			}, "elsewhere/p3: process 1 (dcgm) of container main" + what},
		"a device that is not offered": {func(a *audited) { a.begin(1, "python", cgroup(2, "main"), "GPU-7") }, ""},
		"a process that has ended":     {func(a *audited) { a.users["GPU-0"] = []int{1} }, ""},
		"a driver that does not tell": {
			func(a *audited) { a.mute = driver.ErrUnsupported; a.begin(1, "python", cgroup(2, "main"), "GPU-0") }, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			exempt := Exemptions{Programs: []string{"nvidia-cuda-mps"}}
			exempt.Namespaces, exempt.ServiceAccounts = []string{"ours"}, []string{"team/dcgm"}
			a := newAudited(exempt)
			a.pod(1, "team", "GPU-0")
			a.pod(2, "team", "GPU-1")
			c.begin(a)
			a.lookAll()
			if len(a.told) != 0 || len(a.Uses()) != 0 {
				t.Fatalf("told at the first look: %v", a.told)
			}
			for range 3 {
				a.lookAll()
			}
			if got := strings.Join(a.told, "\n"); got != c.want {
				t.Errorf("told: %s\nwant: %s", got, c.want)
			}
			if (len(a.Uses()) == 1) != (c.want != "") {
				t.Errorf("the metric shows %v", a.Uses())
			}
		})
	}
}

func TestAProcessThatIsGoneIsNotShownAndOneWithItsNumberIsToldAnew(t *testing.T) {
	a := newAudited(Exemptions{})
	a.pod(1, "team")
	a.begin(1, "python", cgroup(1, "main"), "GPU-0")
	a.lookAll()
	a.lookAll()
	a.users["GPU-0"] = nil
	a.lookAll()
	if len(a.told) != 1 || len(a.Uses()) != 0 {
		t.Fatalf("told %v, shown %v", a.told, a.Uses())
	}
	a.users["GPU-0"] = []int{1}
	a.processes[1] = occupancy.Process{PID: 1, Started: 5, Name: "other"}
	a.lookAll()
	a.lookAll()
	if len(a.told) != 2 || len(a.Uses()) != 1 {
		t.Errorf("told %v, shown %v", a.told, a.Uses())
	}
}

// TestOnlyStrangersAreTold begins and ends processes and shares in random orders. What is told is
// compared with who was without a share in two looks in a row, kept as plain sets.
func TestOnlyStrangersAreTold(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 7))
		a := newAudited(Exemptions{})
		loose := map[string]int{} // looks in a row, by process and device
		want := 0
		for n := range 5 {
			var devices []sharing.DeviceID
			for _, id := range a.offered {
				if r.IntN(2) == 0 {
					devices = append(devices, id)
				}
			}
			a.pod(n, "team", devices...)
		}
		for step := range 60 {
			switch r.IntN(3) {
			case 0:
				container := []string{"main", "side"}[r.IntN(2)]
				a.begin(100+step, "python", cgroup(r.IntN(7), container), a.offered[r.IntN(2)])
			case 1:
				id := a.offered[r.IntN(2)]
				if n := len(a.users[id]); n > 0 {
					a.users[id] = slices.Delete(a.users[id], 0, 1+r.IntN(n))
				}
			case 2: // a share is released, and given again
				i := r.IntN(len(a.records))
				if devices := a.records[i].Devices; len(devices) > 0 {
					a.records[i].Devices = nil
				} else {
					a.records[i].Devices = append(a.records[i].Devices, checkpoint.DeviceAndShare{Device: a.offered[r.IntN(2)]})
				}
			}
			now := map[string]int{}
			for _, id := range a.offered {
				for _, pid := range a.users[id] {
					if a.mayUse(pid, id) {
						continue
					}
					key := fmt.Sprint(pid, id)
					if now[key] = loose[key] + 1; now[key] == minSightings {
						want++
					}
				}
			}
			loose = now
			a.lookAll()
			if len(a.told) != want {
				t.Fatalf("seed %d, step %d: told %d times, want %d", seed, step, len(a.told), want)
			}
		}
	}
}

// mayUse reports whether a process is in container main of a pod that has a share of a device.
func (a *audited) mayUse(pid int, id sharing.DeviceID) bool {
	for _, r := range a.records {
		for _, d := range r.Devices {
			if d.Device == id && strings.Contains(a.paths[pid], string(r.Owner)) && strings.Contains(a.paths[pid], "/m0") {
				return true
			}
		}
	}
	return false
}
