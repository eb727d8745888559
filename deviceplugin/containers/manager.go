// SPDX-License-Identifier: Apache-2.0

// Package containers carries each allocation of devices from the kubelet's first call to the end of
// its pod. Package node decides whether a container may start, and modes prepare it.
package containers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"deviceshare/deviceplugin/agent"
	"deviceshare/deviceplugin/cdi"
	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/node"
	"deviceshare/deviceplugin/settings"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// pods are those of this node.
type pods interface {
	kubelet.Pods
	// Pod returns a live pod; it must not be changed.
	Pod(owner sharing.Owner) (*corev1.Pod, bool)
	// Fetch asks the API server, past every cache.
	Fetch(ctx context.Context, name types.NamespacedName) (*corev1.Pod, error)
}

// Config is what a Manager works with. All fields but Signatures are needed.
type Config struct {
	Pods pods
	// Resolver says who holds slots.
	Resolver interface {
		Resolve(ctx context.Context, slots []string) (kubelet.Identity, error)
	}
	Preparers []modes.Preparer
	Store     *checkpoint.Store
	Base      cdi.Base
	Specs     *cdi.Directory
	Node      interface{ State() node.State }
	// Devices has one lock per device, by its id. It is shared with whoever changes
	// devices.
	Devices *agent.KeyedLock
	Terms   interface{ Terms() settings.Terms }
	// Kubelet is the kubelet's own record, and Resource the name of ours in it.
	Kubelet  kubelet.CheckpointReader
	Resource kubelet.Resource
	// Settle is how long to wait at least after writing a specification, so that the
	// runtime's cache has seen it: fsnotify is asynchronous. Without a wait 1 of
	// 60 starts missed it and was retried; none was wrong.
	Settle time.Duration
	// Reader finds out whether the runtime needs longer.
	Reader *cdi.Reader
	// Wait is how long a pod that has not begun waits for a device that takes no pods.
	Wait time.Duration
	// Signatures says why no scheduler vouches for a placement; nil does not check.
	Signatures interface {
		Require(signature string, what wire.Signed) error
	}
	Observer Observer
}

// Observer is told what happened. It must not block.
type Observer interface {
	Allocated()
	Prepared(pod *corev1.Pod, c modes.Claim, took time.Duration)
	// Refused is told about a start that was refused; pod is nil when it is not
	// known whose it was.
	Refused(pod *corev1.Pod, err error)
	// Edited is told about a start of a pod whose annotations say, about a container that was
	// prepared before, something else than what it got.
	Edited(pod *corev1.Pod, container string)
	Released(owner sharing.Owner, err error)
}

// Manager carries allocations from the kubelet's first call to the end of their pods:
//
//	Allocate   names an allocation; nothing is read or written
//	Start      finds out whose it is, records it, prepares it, writes the CDI
//	           specification under that name; repeated at every container start
//	Release    takes everything back when the pod is gone
//	Reconcile  repairs what a restart, a crash or a lost file left behind
//
// The record is written before the first effect, so that whatever exists on the
// host has an owner in the checkpoint. Every step may be repeated. It is safe for concurrent use.
type Manager struct {
	cfg    Config
	memory kubelet.Allocations
	waits  *waits
	starts agent.KeyedLock // one per owner: containers of a pod start one by one
	// patience is how long Reconcile waits for releases.
	patience time.Duration
}

// New returns a manager that remembers no allocation.
func New(cfg Config) *Manager {
	return &Manager{cfg: cfg, waits: newWaits(cfg.Wait, clock.RealClock{}), patience: time.Minute}
}

// Allocate names an allocation for slots, as a CDI device. It touches nothing but memory: the
// kubelet blocks all pods of the node meanwhile.
func (m *Manager) Allocate(slots []string) (string, error) {
	id, err := cdi.NewID()
	if err != nil {
		return "", err
	}
	m.rememberAllocation(slots, id)
	return cdi.Name(id), nil
}

// Allocated remembers an allocation that a kubelet.Proxy named. A name that is not one of ours is
// ignored.
func (m *Manager) Allocated(slots []string, name string) {
	if id, ours := cdi.ID(name); ours {
		m.rememberAllocation(slots, id)
	}
}

func (m *Manager) rememberAllocation(slots []string, id string) {
	if m.memory.Put(slots, id) {
		m.cfg.Observer.Allocated()
	}
}

// Forget forgets the names of allocations: others may have named later ones of the same slots.
// Those of containers that have started are recorded.
func (m *Manager) Forget() { m.memory.Clear() }

// Remembered is the allocation id of a container with exactly these slots: the
// recorded one, else that of the latest allocation of the slots, which is the one
// of the container that has them now.
func (m *Manager) Remembered(owner sharing.Owner, container string, slots []string) (string, bool) {
	slots = slices.Sorted(slices.Values(slots))
	for _, r := range m.cfg.Store.Of(owner) {
		if r.Container == container && slices.Equal(r.Slots, slots) {
			return r.ID, true
		}
	}
	return m.memory.Get(slots)
}

// Start makes everything ready for the container that is about to start with
// these slots. An error means it must not start.
func (m *Manager) Start(ctx context.Context, slots []string) error {
	slots = slices.Sorted(slices.Values(slots))
	pod, err := m.prepareSlots(ctx, slots)
	if err != nil {
		if pod != nil {
			err = fmt.Errorf("prepare devices of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		klog.ErrorS(err, "container start refused", "slots", strings.Join(slots, ","))
		m.cfg.Observer.Refused(pod, err)
	}
	return err
}

func (m *Manager) prepareSlots(ctx context.Context, slots []string) (*corev1.Pod, error) {
	id, err := m.cfg.Resolver.Resolve(ctx, slots)
	if err != nil {
		return nil, err
	}
	// A start that hangs holds the lock for ever. The kubelet gives up and asks
	// again; without an end to the waiting each time would leave a goroutine behind.
	unlock, err := m.starts.LockContext(ctx, string(id.Owner))
	if err != nil {
		pod, _ := m.cfg.Pods.Pod(id.Owner)
		return pod, fmt.Errorf("pod %s: an earlier start of one of its containers is not over: %w", id.Pod, err)
	}
	defer unlock()
	pod, err := m.findPod(ctx, id)
	if err != nil {
		return nil, err
	}
	// The kubelet's record has no order; the same start must do the same each time.
	slices.SortFunc(id.Containers, func(a, b kubelet.Container) int {
		return cmp.Compare(containerIndex(pod, a.Name), containerIndex(pod, b.Name))
	})
	wrote := false
	for _, c := range id.Containers {
		if !c.IsOurs() {
			klog.InfoS("container keeps what another device plugin gave it", "pod", id.Pod, "container", c.Name)
			continue
		}
		changed, err := m.prepareContainer(ctx, pod, c, slots)
		if err != nil {
			return pod, err
		}
		wrote = wrote || changed
	}
	if !wrote {
		return pod, nil
	}
	return pod, m.cfg.Reader.Await(ctx, m.cfg.Settle)
}

// findPod returns the pod with its placement: from the watch, else from the API
// server, if that pod is still the same one.
func (m *Manager) findPod(ctx context.Context, id kubelet.Identity) (*corev1.Pod, error) {
	pod, ok := m.cfg.Pods.Pod(id.Owner)
	if ok && hasPlacement(pod) {
		return pod, nil
	}
	fetched, err := m.cfg.Pods.Fetch(ctx, id.Pod)
	switch {
	case err != nil && ok:
		return pod, nil // the refusal will say what the pod lacks
	case err != nil:
		return nil, err
	case sharing.Owner(fetched.UID) != id.Owner:
		return nil, fmt.Errorf("pod %s was replaced: the kubelet starts %s, the API server has %s", id.Pod, id.Owner, fetched.UID)
	}
	return fetched, nil
}

// prepareContainer does one container and reports whether its specification changed.
func (m *Manager) prepareContainer(ctx context.Context, pod *corev1.Pod, c kubelet.Container, slots []string) (bool, error) {
	began := time.Now()
	cl, err := m.admitContainer(ctx, pod, c, slots)
	if err != nil {
		return false, err
	}
	preparer, err := m.preparerOf(&cl)
	if err != nil {
		return false, err
	}
	in, err := preparer.Prepare(ctx, cl)
	if err != nil {
		return false, err
	}
	if err := m.cfg.Store.Put(withMade(newRecord(&cl, slots), in)); err != nil {
		return false, err
	}
	changed, err := m.writeSpecs(ctx, cl.ID, in)
	if err != nil {
		return false, fmt.Errorf("container %s: %w", c.Name, err)
	}
	klog.InfoS("container prepared", "pod", klog.KObj(pod), "container", c.Name, "allocation", cl.ID, "mode", preparer.Mode(), "devices", in.Devices)
	m.cfg.Observer.Prepared(pod, cl, time.Since(began))
	return changed, nil
}

// writeSpecs writes the specifications that a container is started with, and reports whether one
// changed.
func (m *Manager) writeSpecs(ctx context.Context, id string, in modes.Injection) (bool, error) {
	common, err := m.cfg.Base.Common(ctx)
	if err != nil {
		return false, err
	}
	base, err := m.cfg.Base.Edits(ctx, in.Devices)
	if err != nil {
		return false, err
	}
	driver, err := cdi.DriverSpec(common)
	if err != nil {
		return false, err
	}
	text, err := cdi.Spec(id, common, base, in)
	if err != nil {
		return false, err
	}
	return m.cfg.Specs.Write(id, driver, text)
}

func newRecord(c *modes.Claim, slots []string) checkpoint.Record {
	r := checkpoint.Record{
		ID: c.ID, Owner: c.Owner, Namespace: c.Namespace, Pod: c.Pod, Container: c.Container,
		Slots: slots, Mode: c.Devices[0].Share.Mode,
	}
	for i := range c.Devices {
		s := &c.Devices[i].Share
		r.Devices = append(r.Devices, checkpoint.DeviceAndShare{
			Device: s.Device, Memory: s.Memory, Cores: s.Cores, Whole: s.Whole,
			Partition: checkpoint.Partition{Profile: s.Partition.Profile, Start: s.Partition.Start, Size: s.Partition.Size},
		})
	}
	return r
}

// recordWithPartitions is the record of a claim with the MIG devices that the allocation had
// when it was last prepared, so that a restart changes nothing on disk.
func (m *Manager) recordWithPartitions(c *modes.Claim, slots []string) checkpoint.Record {
	r := newRecord(c, slots)
	for _, old := range m.cfg.Store.Of(r.Owner) {
		if old.ID != r.ID || len(old.Devices) != len(r.Devices) {
			continue
		}
		for i := range r.Devices {
			before := old.Devices[i].Partition
			before.UUID = ""
			if before == r.Devices[i].Partition {
				r.Devices[i].Partition.UUID = old.Devices[i].Partition.UUID
			}
		}
	}
	return r
}

// withMade is the record with the MIG devices that an injection names.
func withMade(r checkpoint.Record, in modes.Injection) checkpoint.Record {
	r.Devices = slices.Clone(r.Devices)
	for i := range r.Devices {
		if r.Devices[i].Partition.Size > 0 && i < len(in.Devices) {
			r.Devices[i].Partition.UUID = string(in.Devices[i])
		}
	}
	return r
}
