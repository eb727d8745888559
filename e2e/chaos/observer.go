// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/prometheus/procfs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/sandbox"
)

// Observer looks at a cluster. It is safe for concurrent use.
type Observer struct {
	cluster *sandbox.Cluster
	proc    procfs.FS

	mu     sync.Mutex
	pods   map[string]Pod // by UID, also those that are gone
	offers map[string]Offer
}

// NewObserver begins to look at a cluster.
func NewObserver(c *sandbox.Cluster) (*Observer, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, fmt.Errorf("look at the machine's processes: %w", err)
	}
	return &Observer{cluster: c, proc: proc, pods: map[string]Pod{}}, nil
}

// Look reads everything and returns the promises that are broken. An error is one of looking: the
// API server may be away.
//
// The order matters: the driver is asked before the API server, so that whoever uses a device is
// known there; and a pod that has ended since is known from before.
func (o *Observer) Look(ctx context.Context) ([]Violation, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all, err := members(o.proc, o.cluster.Cgroup())
	if err != nil {
		return nil, err
	}
	show, err := o.cluster.FakeGPU(ctx, "show")
	if err != nil {
		return nil, fmt.Errorf("ask the driver: %w", err)
	}
	owners := map[int]owner{}
	for _, m := range all {
		owners[m.cluster] = m.owner
	}
	processes, err := readMachine(show, owners)
	if err != nil {
		return nil, err
	}
	if err := o.ask(ctx); err != nil {
		return nil, err
	}
	return Violations(Scene{Pods: o.pods, Offers: o.offers, Processes: processes}), nil
}

// ask reads pods and node from the API server.
func (o *Observer) ask(ctx context.Context) error {
	list, err := o.cluster.Client().CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for uid, p := range o.pods {
		p.Holds = false // unless it is still there
		o.pods[uid] = p
	}
	for i := range list.Items {
		p, placed, err := readPod(&list.Items[i])
		if err != nil {
			return err
		}
		if !placed {
			continue
		}
		o.pods[p.UID] = p.knowing(o.pods[p.UID])
	}
	node, err := o.cluster.Client().CoreV1().Nodes().Get(ctx, sandbox.NodeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read node %s: %w", sandbox.NodeName, err)
	}
	offers, err := readOffers(node)
	if offers != nil {
		o.offers = offers
	}
	return err
}

// knowing is the pod with the IDs that it had when it was seen before: a container may have had
// more lives than the API server tells of.
func (p Pod) knowing(before Pod) Pod {
	for k := range min(len(p.Containers), len(before.Containers)) {
		ids := append(p.Containers[k].IDs, before.Containers[k].IDs...)
		slices.Sort(ids)
		p.Containers[k].IDs = slices.Compact(ids)
	}
	return p
}
