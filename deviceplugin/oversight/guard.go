// SPDX-License-Identifier: Apache-2.0

package oversight

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/metrics/occupancy"
	"deviceshare/sharing"
)

// program is what one process is.
type program struct {
	occupancy.Process
	groups []procfs.Cgroup
	mapped []string // the files that it has mapped; none while it starts or ends
}

// guard ends containers of which a process uses a device past its share. libvgpu.so holds a process
// to the share only if the loader has read /etc/ld.so.preload: static programs and those for musl
// have all of the device. So the guard asks the driver who uses a device, which nobody can hide
// from, and looks whether the library is in that process.
type guard struct {
	cfg  *Config
	seen map[process]int // in how many looks in a row it had a device and no library
	told map[string]bool // containers, by the runtime's id
}

// process is one process, not another one with its number.
type process struct {
	pid     int
	started uint64
}

func newGuard(c *Config) *guard {
	return &guard{cfg: c, seen: map[process]int{}, told: map[string]bool{}}
}

// limitedContainer is a container that runs and has a share which the library holds it to.
type limitedContainer struct {
	pod       *corev1.Pod
	container string
	id        string // the runtime's
}

// lookAll looks at every device of which somebody has such a share. It belongs to one goroutine.
func (g *guard) lookAll() {
	seen, running := map[process]int{}, map[string]bool{}
	for device, containers := range g.limitedContainers() {
		for _, c := range containers {
			running[c.id] = true
		}
		users, err := g.cfg.Devices.MemoryByProcess(device)
		if err != nil {
			klog.V(3).InfoS("the driver does not say who uses a device", "device", device, "why", err)
			continue
		}
		for _, user := range users {
			g.inspectProcess(device, containers, user.PID, seen)
		}
	}
	g.seen = seen
	for id := range g.told {
		if !running[id] {
			delete(g.told, id)
		}
	}
}

func (g *guard) limitedContainers() map[sharing.DeviceID][]limitedContainer {
	out := map[sharing.DeviceID][]limitedContainer{}
	for _, r := range g.cfg.Records.All() {
		pod, live := g.cfg.Pods.Pod(r.Owner)
		if !live {
			continue
		}
		id, runs := runtimeIDOf(pod, r.Container)
		for i := range r.Devices {
			if device := r.Devices[i].Device; runs && id != "" && r.IsLimited(i) {
				out[device] = append(out[device], limitedContainer{pod, r.Container, id})
			}
		}
	}
	return out
}

func (g *guard) inspectProcess(device sharing.DeviceID, containers []limitedContainer, pid int, seen map[process]int) {
	p, err := g.cfg.processes.readProgram(pid)
	if err != nil || len(p.mapped) == 0 || slices.ContainsFunc(p.mapped, isLibrary) {
		return
	}
	i := slices.IndexFunc(containers, func(c limitedContainer) bool { return occupancy.IsOf(p.groups, c.id) })
	if i < 0 {
		return // of a container with a whole device, or of the host
	}
	key := process{pid, p.Started}
	if seen[key] = g.seen[key] + 1; seen[key] < minSightings {
		return
	}
	g.handleUnlimited(&containers[i], fmt.Sprintf("process %d (%s) uses device %s without libvgpu.so, so nothing holds it to its share", pid, p.Name, device))
}

// isLibrary reports whether a mapped file says that the library is in a process: itself, or the
// driver's own beside which it stands in.
func isLibrary(file string) bool {
	name := path.Base(strings.TrimSuffix(file, " (deleted)"))
	return name == "libvgpu.so" || strings.HasSuffix(name, ".so.driver")
}

func (g *guard) handleUnlimited(c *limitedContainer, what string) {
	if !g.cfg.OnlyTells {
		if err := g.cfg.processes.killAll(c.id); err != nil {
			klog.ErrorS(err, "a container that nothing limits cannot be ended", "pod", klog.KObj(c.pod), "container", c.container)
		} else {
			what += ": the container was ended"
		}
	}
	if !g.told[c.id] {
		g.told[c.id] = true
		g.cfg.Observer.Unlimited(c.pod, c.container, what)
	}
}
