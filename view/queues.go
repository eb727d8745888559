// SPDX-License-Identifier: Apache-2.0

package view

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
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

	quota, used int64
}

// Queues lists what each queue may use of extended resources, and what Volcano says it uses.
func (c *Cluster) Queues() []Queue {
	out := []Queue{}
	for _, q := range c.state.Queues {
		rows := quotas(q)
		if len(rows) == 0 {
			rows = []Queue{{Queue: q.Name, State: string(q.Status.State), Resource: c.settings.Names.Number, Used: "0"}}
		}
		out = append(out, rows...)
	}
	return out
}

func quotas(q *schedulingv1beta1.Queue) []Queue {
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
		if quota, ok := q.Spec.Capability[name]; ok {
			row.Quota, row.quota = quota.String(), quota.Value()
		}
		if deserved, ok := q.Spec.Deserved[name]; ok {
			row.Deserved = deserved.String()
		}
		out = append(out, row)
	}
	return out
}
