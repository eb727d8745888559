// SPDX-License-Identifier: Apache-2.0

package oversight

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/metrics/occupancy"
	"deviceshare/sharing"
)

// AuditOptions is whom an Audit leaves alone.
type AuditOptions struct {
	// Namespaces are those whose pods may use devices without a share: monitoring, MPS daemons.
	Namespaces []string
	// ServiceAccounts are those, as namespace/name, whose pods may do so too.
	ServiceAccounts []string
	// Programs are names of programs that may do so outside of all pods.
	Programs []string
}

// Identities tell what a process is.
type Identities interface {
	// Identity looks at a process; an error if it has ended.
	Identity(pid int) (occupancy.Process, []procfs.Cgroup, error)
}

// AuditConfig is how an Audit works. Zero durations take the defaults.
type AuditConfig struct {
	AuditOptions
	Records interface{ All() []checkpoint.Record }
	Pods    occupancy.PodSource
	Offered interface{ Offered() []sharing.DeviceID }
	Devices interface {
		// MemoryByProcess lists those of one device, or is driver.ErrUnsupported.
		MemoryByProcess(id sharing.DeviceID) ([]driver.Process, error)
	}
	Processes Identities
	Observer  AuditObserver
	Look      time.Duration // between looks; 4 s
}

// AuditObserver is told once of each process that uses a device without a share. pod is nil for
// a program of the host and for a pod that this node does not know.
type AuditObserver interface {
	Stranger(pod *corev1.Pod, use occupancy.Use)
}

// Audit looks who uses devices without a share: a program of the host, a pod that asks for nothing
// and gets all devices from NVIDIA's runtime, a privileged pod, what a pod has left behind. It
// tells, and ends nobody: it cannot know what an administrator has started on purpose.
type Audit struct {
	cfg AuditConfig

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

// NewAudit returns an audit that has seen nothing yet.
func NewAudit(cfg AuditConfig) *Audit {
	cfg.Look = cmp.Or(cfg.Look, 4*time.Second)
	return &Audit{cfg: cfg, seen: map[sighting]int{}}
}

// Run looks until ctx ends. It does not wait then for a driver that does not answer.
func (a *Audit) Run(ctx context.Context) error { return lookEvery(ctx, a.cfg.Look, a.LookAll) }

// Uses are those that were told about and were there at the last look, in no order.
func (a *Audit) Uses() []occupancy.Use {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.uses)
}

// LookAll looks at every device. It belongs to one goroutine.
func (a *Audit) LookAll() {
	tenants := occupancy.ByDevice(a.cfg.Records.All(), a.cfg.Pods)
	seen := map[sighting]int{}
	var uses []occupancy.Use
	for _, id := range a.cfg.Offered.Offered() {
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
func (a *Audit) useWithoutShare(id sharing.DeviceID, pods occupancy.Pods, p driver.Process) (occupancy.Use, bool) {
	process, groups, err := a.cfg.Processes.Identity(p.PID)
	if err != nil {
		return occupancy.Use{}, false
	}
	who := pods.Of(groups)
	use := occupancy.Use{Process: process, Occupant: who, Device: id, Memory: p.Memory}
	switch who.Kind {
	case occupancy.Host:
		return use, !slices.Contains(a.cfg.Programs, process.Name)
	case occupancy.Stranger:
		pod, known := a.cfg.Pods.Pod(who.Owner)
		if known {
			use.Namespace, use.Pod = pod.Namespace, pod.Name
			use.Container = occupancy.ContainerOf(pod, groups)
		}
		return use, !known || !a.cfg.isExempt(pod)
	}
	return occupancy.Use{}, false
}

// isExempt reports whether a pod may use devices without a share.
func (o *AuditOptions) isExempt(pod *corev1.Pod) bool {
	return slices.Contains(o.Namespaces, pod.Namespace) || slices.Contains(o.ServiceAccounts, pod.Namespace+"/"+pod.Spec.ServiceAccountName)
}

func (a *Audit) reportUse(use occupancy.Use) {
	pod, _ := a.cfg.Pods.Pod(use.Owner)
	a.cfg.Observer.Stranger(pod, use)
}
