// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/agent"
	"deviceshare/deviceplugin/cluster"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing/podspec"
)

// HoldingsWatch keeps the node's state informed of what its pods hold, as the kubelet counts it. It
// is safe for concurrent use.
type HoldingsWatch struct {
	m     *Manager
	agent *agent.Agent
	pods  *cluster.Pods
	// resources is asked where the kubelet's checkpoint cannot be read.
	resources kubelet.Resources

	mu     sync.Mutex // held while looking
	looked bool
	last   node.Holdings
}

// NewHoldingsWatch returns a watch that has not looked yet.
func NewHoldingsWatch(m *Manager, a *agent.Agent, pods *cluster.Pods, resources kubelet.Resources) *HoldingsWatch {
	return &HoldingsWatch{m: m, agent: a, pods: pods, resources: resources}
}

// Begin records live allocations that a lost checkpoint forgot, and looks for the first time. It
// asks nobody but this machine, so that devices can be told apart from idle ones at once. It comes
// before anything is published or offered: less than pods hold would end them.
func (w *HoldingsWatch) Begin(ctx context.Context) {
	held, _ := w.m.readHeldSlots()
	w.m.recallAllocations(held)
	w.Look(ctx)
}

// holdingsPause gathers pods that come or go at about the same time, and lookAgain is the longest
// time between two looks: the kubelet gives slots away without a word where a proxy answers for us.
const (
	holdingsPause = 50 * time.Millisecond
	lookAgain     = 15 * time.Second
)

// Run looks whenever a pod comes or goes, until ctx ends.
func (w *HoldingsWatch) Run(ctx context.Context) error {
	changes, stop := w.agent.Changes()
	defer stop()
	ticker := time.NewTicker(lookAgain)
	defer ticker.Stop()
	for {
		moved := w.pods.Changed()
		w.Look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-moved:
			select {
			case <-ctx.Done():
			case <-time.After(holdingsPause):
			}
		case <-changes:
		case <-ticker.C:
		}
	}
}

// Look takes in what pods hold now.
func (w *HoldingsWatch) Look(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.m.podHoldings()
	record, err := w.m.cfg.Kubelet.ReadCheckpoint()
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		now.Slots, now.Doubtful = w.m.slotsOf(record)
	} else {
		now.Slots = w.slotsWithoutCheckpoint(ctx)
	}
	if !w.looked || !reflect.DeepEqual(now, w.last) {
		w.looked, w.last = true, now
		w.agent.Send(now)
	}
}

// slotsWithoutCheckpoint are the slots that pods hold as far as that is known where the kubelet's
// checkpoint cannot be read: those of the last look, or else of the podresources API, and those of
// our own records, which know each container that was ever prepared, init containers too. Only
// slots of containers that have not started yet can be missing.
//
// The kubelet is asked once, since listing can make it give a slot away twice (kubernetes#136021).
func (w *HoldingsWatch) slotsWithoutCheckpoint(ctx context.Context) []string {
	held := append(w.m.recordedSlots(), w.last.Slots...)
	if w.looked {
		return sortedOnce(held)
	}
	listed, err := w.resources.List(ctx)
	if err != nil {
		klog.ErrorS(err, "neither record of the kubelet can be read; slots are known of containers that have started before")
	}
	for _, pod := range listed {
		for _, slots := range pod.Slots {
			held = append(held, slots...)
		}
	}
	return sortedOnce(held)
}

// podHoldings is what each pod of the node asks for and was given, without slots.
func (m *Manager) podHoldings() node.Holdings {
	records, names := m.cfg.Store.ByOwner(), m.cfg.Terms.Terms().Names
	var all node.Holdings
	for owner := range m.cfg.Pods.Live() {
		pod, live := m.cfg.Pods.Pod(owner)
		if !live {
			continue
		}
		h := node.Holding{Owner: owner, Namespace: pod.Namespace, Pod: pod.Name, Asked: askedOf(pod, names)}
		if hasPlacement(pod) || len(records[owner]) > 0 {
			var err error
			if h.Placement, err = m.placementOf(pod, records[owner]); err != nil {
				klog.V(4).InfoS("what a pod was given cannot be read; it counts with what it asks", "pod", klog.KObj(pod), "why", err)
			}
		}
		if h.Asked != (node.Amounts{}) || len(h.Placement.Containers) > 0 {
			all.Pods = append(all.Pods, h)
		}
	}
	slices.SortFunc(all.Pods, func(a, b node.Holding) int { return cmp.Compare(a.Owner, b.Owner) })
	return all
}

// askedOf adds up what a pod asks for, by the function that the kubelet uses.
func askedOf(pod *corev1.Pod, names podspec.Names) node.Amounts {
	sum := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	amount := func(name string) int64 {
		q := sum[corev1.ResourceName(name)]
		return q.Value()
	}
	return node.Amounts{Number: amount(names.Number), Memory: amount(names.Memory), Cores: amount(names.Cores)}
}

// slotsOf are the slots that the kubelet recorded for live pods, and for owners that are not known.
func (m *Manager) slotsOf(record kubelet.Record) (held, doubtful []string) {
	for _, h := range record.Of(m.cfg.Resource.ResourceName()) {
		if _, live := m.cfg.Pods.Pod(h.Owner); live {
			held = append(held, h.Slots...)
		} else {
			doubtful = append(doubtful, h.Slots...)
		}
	}
	return sortedOnce(held), sortedOnce(doubtful)
}

// recordedSlots are those of our own records of live pods.
func (m *Manager) recordedSlots() []string {
	var slots []string
	for _, r := range m.cfg.Store.All() {
		if _, live := m.cfg.Pods.Pod(r.Owner); live {
			slots = append(slots, r.Slots...)
		}
	}
	return slots
}

func sortedOnce(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}
