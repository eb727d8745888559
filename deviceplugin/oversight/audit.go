// SPDX-License-Identifier: Apache-2.0

package oversight

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/metrics/occupancy"
	"deviceshare/sharing"
)

// Exemptions are those who may use devices without a share.
type Exemptions struct {
	// Namespaces are those whose pods may use devices without a share: monitoring, MPS daemons.
	Namespaces []string
	// ServiceAccounts are those, as namespace/name, whose pods may do so too.
	ServiceAccounts []string
	// Programs are names of programs that may do so outside of all pods.
	Programs []string
}

// audit looks who uses devices without a share: a program of the host, a pod that asks for nothing
// and gets all devices from NVIDIA's runtime, a privileged pod, what a pod has left behind. It
// tells, and ends nobody: it cannot know what an administrator has started on purpose.
type audit struct {
	cfg *Config

	seen map[sighting]int // in how many looks in a row; it belongs to the goroutine that looks

	mu   sync.Mutex
	uses []occupancy.Use // told about and still there
}

// sighting is a process on a device.
type sighting struct {
	device  sharing.DeviceID
	pid     int
	started uint64
}

func newAudit(c *Config) *audit { return &audit{cfg: c, seen: map[sighting]int{}} }

// lookAll looks at every device. It belongs to one goroutine.
func (a *audit) lookAll() {
	tenants := occupancy.ByDevice(a.cfg.Records.All(), a.cfg.Pods)
	seen := map[sighting]int{}
	var uses []occupancy.Use
	for _, id := range a.cfg.Agent.Offered() {
		processes, err := a.cfg.Devices.MemoryByProcess(id)
		if err != nil {
			klog.V(3).InfoS("the driver does not say who uses a device", "device", id, "why", err)
			continue
		}
		for _, p := range processes {
			use, found := a.useWithoutShare(id, tenants[id], p)
			if !found {
				continue
			}
			key := sighting{id, use.PID, use.Started}
			seen[key] = min(a.seen[key]+1, minSightings+1)
			if seen[key] >= minSightings {
				uses = append(uses, use)
			}
			if seen[key] == minSightings {
				a.reportUse(use)
			}
		}
	}
	a.seen = seen
	a.mu.Lock()
	defer a.mu.Unlock()
	a.uses = uses
}

// useWithoutShare looks at one process on a device. It is false for one that may be there.
func (a *audit) useWithoutShare(id sharing.DeviceID, pods occupancy.Pods, p driver.Process) (occupancy.Use, bool) {
	process, groups, err := a.cfg.processes.identifyProcess(p.PID)
	if err != nil {
		return occupancy.Use{}, false
	}
	who := pods.Of(groups)
	use := occupancy.Use{Process: process, Occupant: who, Device: id, Memory: p.Memory}
	switch who.Kind {
	case occupancy.Host:
		return use, !slices.Contains(a.cfg.Exempt.Programs, process.Name)
	case occupancy.Stranger:
		pod, known := a.cfg.Pods.Pod(who.Owner)
		if known {
			use.Namespace, use.Pod = pod.Namespace, pod.Name
			use.Container = occupancy.ContainerOf(pod, groups)
		}
		return use, !known || !a.cfg.Exempt.isExempt(pod)
	}
	return occupancy.Use{}, false
}

func (x *Exemptions) isExempt(pod *corev1.Pod) bool {
	return slices.Contains(x.Namespaces, pod.Namespace) || slices.Contains(x.ServiceAccounts, pod.Namespace+"/"+pod.Spec.ServiceAccountName)
}

func (a *audit) reportUse(use occupancy.Use) {
	pod, _ := a.cfg.Pods.Pod(use.Owner)
	a.cfg.Observer.Stranger(pod, use)
}
