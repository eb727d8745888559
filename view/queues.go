// SPDX-License-Identifier: Apache-2.0

package view

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/quota"
)

// Queue is one resource of one queue.
type Queue struct {
	Queue    string `json:"queue"`
	State    string `json:"state,omitempty"`
	Resource string `json:"resource"`
	// Quota is the most that the queue may use, Deserved what it gets back from others; "" is none.
	Quota    string `json:"quota,omitempty"`
	Used     string `json:"used"`
	Deserved string `json:"deserved,omitempty"`
	// Shown are the same amounts for people: memory with its unit.
	Shown Amounts `json:"shown"`

	quota, used int64
}

// Amounts are the amounts of a queue for people, "" for none.
type Amounts struct {
	Quota    string `json:"quota,omitempty"`
	Used     string `json:"used"`
	Deserved string `json:"deserved,omitempty"`
}

// Queues lists what each queue may use of extended resources, and what Volcano says it uses.
func (c *Cluster) Queues() []Queue {
	out := []Queue{}
	for _, q := range c.state.Queues {
		rows := c.quotas(q)
		if len(rows) == 0 {
			rows = []Queue{{Queue: q.Name, State: string(q.Status.State), Resource: c.settings.Names.Number, Used: "0", Shown: Amounts{Used: "0"}}}
		}
		out = append(out, rows...)
	}
	return out
}

func (c *Cluster) quotas(q *schedulingv1beta1.Queue) []Queue {
	names := map[corev1.ResourceName]bool{}
	for _, list := range []corev1.ResourceList{q.Spec.Capability, q.Spec.Deserved, q.Status.Allocated} {
		for name := range list {
			names[name] = true
		}
	}
	var out []Queue
	for _, name := range slices.Sorted(maps.Keys(names)) {
		used := q.Status.Allocated[name]
		row := Queue{Queue: q.Name, State: string(q.Status.State), Resource: string(name), Used: used.String(), used: used.Value()}
		row.Shown.Used = c.shown(name, used)
		if most, ok := q.Spec.Capability[name]; ok {
			row.Quota, row.quota, row.Shown.Quota = most.String(), most.Value(), c.shown(name, most)
		}
		if deserved, ok := q.Spec.Deserved[name]; ok {
			row.Deserved, row.Shown.Deserved = deserved.String(), c.shown(name, deserved)
		}
		out = append(out, row)
	}
	return out
}

// shown writes an amount of a resource for people: device memory with its unit.
func (c *Cluster) shown(name corev1.ResourceName, amount resource.Quantity) string {
	l, known := quota.ReadLimit(string(name), amount.Value(), c.limitNames())
	if known && l.Resource == quota.Memory {
		return gib(l.Amount)
	}
	return amount.String()
}

// limitNames are the names of the resources that limits of queues are about.
func (c *Cluster) limitNames() quota.Names {
	n := &c.settings.Names
	return quota.Names{Memory: n.Memory, Cores: n.Cores, Number: n.Number, Factor: c.settings.Factor}
}

// limits names the limits of queues that cannot be meant.
func (e *examiner) limits() {
	c := e.cluster
	var inventories []*sharing.Inventory
	for _, n := range c.nodes {
		if n.Inventory != nil {
			inventories = append(inventories, n.Inventory)
		}
	}
	total := quota.Total(inventories...)
	for _, q := range c.state.Queues {
		for _, doubt := range quota.Doubts(nodes.QueueEntries(q.Spec.Capability, q.Spec.Deserved, q.Spec.Guarantee.Resource), c.limitNames(), total) {
			e.find("queue "+q.Name, doubt, "kubectl edit queue "+q.Name)
		}
	}
}
