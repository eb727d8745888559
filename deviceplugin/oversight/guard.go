// SPDX-License-Identifier: Apache-2.0

package oversight

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/metrics/occupancy"
	"deviceshare/sharing"
)

// Programs are the processes of the host, by what they are.
type Programs interface {
	// Program looks at a process; an error if it has ended or cannot be looked at.
	Program(pid int) (Program, error)
	// End kills every process of a container.
	End(container string) error
}

// Program is what one process is.
type Program struct {
	occupancy.Process
	Groups []procfs.Cgroup
	Mapped []string // the files that it has mapped; none while it starts or ends
}

// GuardConfig is how a Guard works. Zero durations take the defaults.
type GuardConfig struct {
	Records interface{ All() []checkpoint.Record }
	Pods    interface {
		Pod(owner sharing.Owner) (*corev1.Pod, bool)
	}
	Devices interface {
		// MemoryByProcess lists those of one device, or is driver.ErrUnsupported.
		MemoryByProcess(id sharing.DeviceID) ([]driver.Process, error)
	}
	Programs Programs
	// Found is told of a container with a process that nothing limits, once.
	Found func(pod *corev1.Pod, container, what string)
	// OnlyTells leaves such containers alone.
	OnlyTells bool
	Look      time.Duration // between looks; 4 s
}

// Guard ends containers of which a process uses a device past its share. libvgpu.so holds a process
// to the share only if the loader has read /etc/ld.so.preload: static programs and those for musl
// have all of the device. So the guard asks the driver who uses a device, which nobody can hide
// from, and looks whether the library is in that process.
type Guard struct {
	cfg  GuardConfig
	seen map[process]int // in how many looks in a row it had a device and no library
	told map[string]bool // containers, by the runtime's id
}

// process is one process, not another one with its number.
type process struct {
	pid     int
	started uint64
}

// NewGuard returns a guard that has seen nothing yet.
func NewGuard(cfg GuardConfig) *Guard {
	cfg.Look = cmp.Or(cfg.Look, 4*time.Second)
	return &Guard{cfg: cfg, seen: map[process]int{}, told: map[string]bool{}}
}

// Run looks until ctx ends. It does not wait then for a driver that does not answer.
func (g *Guard) Run(ctx context.Context) error { return lookEvery(ctx, g.cfg.Look, g.LookAll) }

// limitedContainer is a container that runs and has a share which the library holds it to.
type limitedContainer struct {
	pod       *corev1.Pod
	container string
	id        string // the runtime's
}

// LookAll looks at every device of which somebody has such a share. It belongs to one goroutine.
func (g *Guard) LookAll() {
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

// limitedContainers are the containers with shares, by their devices.
func (g *Guard) limitedContainers() map[sharing.DeviceID][]limitedContainer {
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

// inspectProcess looks at a process that uses a device.
func (g *Guard) inspectProcess(device sharing.DeviceID, containers []limitedContainer, pid int, seen map[process]int) {
	p, err := g.cfg.Programs.Program(pid)
	if err != nil || len(p.Mapped) == 0 || slices.ContainsFunc(p.Mapped, isLibrary) {
		return
	}
	i := slices.IndexFunc(containers, func(c limitedContainer) bool { return occupancy.IsOf(p.Groups, c.id) })
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

func (g *Guard) handleUnlimited(c *limitedContainer, what string) {
	if !g.cfg.OnlyTells {
		if err := g.cfg.Programs.End(c.id); err != nil {
			klog.ErrorS(err, "a container that nothing limits cannot be ended", "pod", klog.KObj(c.pod), "container", c.container)
		} else {
			what += ": the container was ended"
		}
	}
	if !g.told[c.id] {
		g.told[c.id] = true
		g.cfg.Found(c.pod, c.container, what)
	}
}
