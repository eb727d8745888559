// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
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
	// Shown are the same amounts for people, with their units.
	Shown Shown `json:"shown"`
}

// Shown are amounts of a queue for people.
type Shown struct {
	Quota    string `json:"quota,omitempty"`
	Used     string `json:"used"`
	Deserved string `json:"deserved,omitempty"`
}

// Queues lists what each queue may use of extended resources, and what Volcano says it uses.
func (c *Cluster) Queues() []Queue {
	out := []Queue{}
	for _, q := range c.state.Queues {
		rows := c.quotaRows(q)
		if len(rows) == 0 {
			rows = []Queue{{Queue: q.Name, State: string(q.Status.State), Resource: c.settings.Names.Number, Used: "0", Shown: Shown{Used: "0"}}}
		}
		out = append(out, rows...)
	}
	return out
}

func (c *Cluster) quotaRows(q *schedulingv1beta1.Queue) []Queue {
	names := map[corev1.ResourceName]bool{}
	for _, list := range []corev1.ResourceList{q.Spec.Capability, q.Spec.Deserved, q.Status.Allocated} {
		for name := range list {
			names[name] = true
		}
	}
	var out []Queue
	for _, name := range slices.Sorted(maps.Keys(names)) {
		used := q.Status.Allocated[name]
		row := Queue{Queue: q.Name, State: string(q.Status.State), Resource: string(name), Used: used.String()}
		row.Shown.Used = c.amountText(name, used)
		if most, ok := q.Spec.Capability[name]; ok {
			row.Quota, row.Shown.Quota = most.String(), c.amountText(name, most)
		}
		if deserved, ok := q.Spec.Deserved[name]; ok {
			row.Deserved, row.Shown.Deserved = deserved.String(), c.amountText(name, deserved)
		}
		out = append(out, row)
	}
	return out
}

// amountText writes an amount of a resource with its unit: memory of devices in GiB, compute in
// percent of one device.
func (c *Cluster) amountText(name corev1.ResourceName, amount resource.Quantity) string {
	limits := c.settings.Limits(corev1.ResourceList{name: amount})
	if len(limits) == 0 {
		return amount.String()
	}
	return limitText(limits[0].Resource, limits[0].Amount)
}

// checkQueueLimits names the limits of queues and namespaces that cannot be meant.
func (e *examiner) checkQueueLimits() {
	c := e.cluster
	var inventories []*sharing.Inventory
	for _, n := range c.nodes {
		if n.Inventory != nil {
			inventories = append(inventories, n.Inventory)
		}
	}
	total := quota.Total(inventories...)
	for _, q := range c.state.Queues {
		for _, doubt := range quota.Doubts(nodes.QueueEntries(q.Spec.Capability, q.Spec.Deserved, q.Spec.Guarantee.Resource), c.settings.LimitNames(), total) {
			e.addProblem("queue "+q.Name, doubt, "kubectl edit queue "+q.Name)
		}
	}
	quotas := c.settings.NamespaceQuotas(c.state.Quotas)
	for i := range quotas {
		q := &quotas[i]
		for _, doubt := range c.settings.QuotaDoubts(q, total) {
			e.addProblem("resourcequota "+q.Key(), doubt, fmt.Sprintf("kubectl -n %s edit resourcequota %s", q.Namespace, q.Name))
		}
	}
}
