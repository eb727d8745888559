// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec/corepod"
	"deviceshare/sharing/quota"
)

// readQuotas adds up what pods take of queues in real amounts, as the scheduler does. There is no
// book if no queue has a limit of devices.
func (c *Cluster) readQuotas() {
	queues, limited := make([]quota.Queue, 0, len(c.state.Queues)), false
	for _, q := range c.state.Queues {
		one := quota.Queue{
			Name: q.Name, Parent: q.Spec.Parent, Capability: c.settings.Capability(q.Spec.Capability),
			Guarantee: c.settings.Limits(q.Spec.Guarantee.Resource), Deserved: c.settings.Limits(q.Spec.Deserved),
		}
		queues, limited = append(queues, one), limited || len(one.Capability)+len(one.Guarantee) > 0
	}
	if !limited {
		return
	}
	var all, usable []*sharing.Inventory
	for _, n := range c.nodes {
		if n.Inventory == nil {
			continue
		}
		all = append(all, n.Inventory)
		if n.Unusable == nil {
			usable = append(usable, n.Inventory)
		}
	}
	c.kinds, c.book = quota.KindsOf(all...), quota.NewBook(quota.NewHierarchy(queues, quota.Total(usable...)))
	for _, n := range c.nodes {
		if n.Ledger == nil {
			continue
		}
		for _, owner := range n.Ledger.Owners() {
			held, ok := n.Ledger.Placement(owner)
			p := c.owners[owner]
			if !ok || p == nil {
				continue
			}
			tenure := quota.Stays
			if p.DeletionTimestamp != nil {
				tenure = quota.Leaves
			}
			c.book.Put(owner, c.queueOf(p), quota.Held(&held, n.Inventory), tenure)
		}
	}
}

// queueOf is the queue of a pod, by its group.
func (c *Cluster) queueOf(p *corev1.Pod) string {
	name, _ := groupOf(p)
	if g := c.groups[name]; g != nil {
		return cmp.Or(g.Spec.Queue, schedulingv1beta1.DefaultQueue)
	}
	return schedulingv1beta1.DefaultQueue
}

// fullQueue says which limit of the pod's queue, or of one above it, leaves no room for the pod.
func (c *Cluster) fullQueue(p *corev1.Pod, ask *sharing.PodRequest) (string, bool) {
	queue := c.queueOf(p)
	asked := c.askedNumber(p)
	for _, q := range c.queuesAbove(queue) {
		limit, limited := q.Spec.Capability[corev1.ResourceName(c.settings.Names.Number)]
		if used := c.usedNumber(q); limited && asked > 0 && used+asked > limit.Value() {
			return fmt.Sprintf("queue %s is at %d of %d %s and the pod asks for %d", q.Name, used, limit.Value(), c.settings.Names.Number, asked), true
		}
	}
	if c.book == nil {
		return "", false
	}
	short, full := c.book.Check(&quota.Ask{Owner: sharing.Owner(p.UID), Queue: queue, Amounts: quota.Asked(ask, c.kinds)})
	return short.String(), full
}

// queuesAbove returns a queue and those above it, as far as they exist.
func (c *Cluster) queuesAbove(name string) []*schedulingv1beta1.Queue {
	var chain []*schedulingv1beta1.Queue
	for {
		i := slices.IndexFunc(c.state.Queues, func(q *schedulingv1beta1.Queue) bool { return q.Name == name })
		parent := quota.Root
		if i >= 0 {
			q := c.state.Queues[i]
			if slices.Contains(chain, q) {
				return chain // a queue that is above itself
			}
			chain, parent = append(chain, q), cmp.Or(q.Spec.Parent, quota.Root)
		}
		if name == quota.Root {
			return chain
		}
		name = parent
	}
}

// usedNumber is what Volcano says that a queue uses, or the queues below it together if that is
// more.
func (c *Cluster) usedNumber(q *schedulingv1beta1.Queue) int64 {
	number := corev1.ResourceName(c.settings.Names.Number)
	own := q.Status.Allocated[number]
	var below int64
	for _, other := range c.state.Queues {
		if other != q && slices.Contains(c.queuesAbove(other.Name), q) {
			used := other.Status.Allocated[number]
			below += used.Value()
		}
	}
	return max(own.Value(), below)
}

// askedNumber is how many devices a pod asks for at any one time: init containers overlap with the
// containers that come after them, sidecars add.
func (c *Cluster) askedNumber(p *corev1.Pod) int64 {
	var steady, peak int64
	for container, kind := range corepod.Containers(p) {
		n, _ := corepod.Container{Container: container}.Amount(c.settings.Names.Number)
		if kind == sharing.Init {
			peak = max(peak, steady+n)
		} else {
			steady += n
		}
	}
	return max(peak, steady)
}
