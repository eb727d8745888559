// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"github.com/prometheus/client_golang/prometheus"

	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/waiting"
	"deviceshare/sharing"
)

// waitCounts is which pods wait for devices after a session: by queue, and by cause. It is not
// changed any more when it is published.
type waitCounts map[api.QueueID]*[waiting.Causes]waiters

// waiters are pods that wait, and the device memory that they ask for in all.
type waiters struct {
	pods   int
	memory sharing.Bytes
}

// countPod counts a pod of a queue.
func (t waitCounts) countPod(queue api.QueueID, cause waiting.Cause, memory sharing.Bytes) {
	by := t[queue]
	if by == nil {
		by = &[waiting.Causes]waiters{}
		t[queue] = by
	}
	by[cause].pods++
	by[cause].memory = by[cause].memory.Plus(memory)
}

// countLeaving counts the pods of a job that have a node and wait for others to leave it.
func (e *explanation) countLeaving(job *api.JobInfo) {
	for _, t := range job.TaskStatusIndex[api.Pipelined] {
		if a := e.askOf(t); a != nil {
			e.waiting.countPod(job.Queue, waiting.Leaving, memoryOf(&a.request, e.store.largest))
		}
	}
}

// memoryOf is the device memory that a pod asks for. A part of a device, or all of it, counts as
// that of the largest one.
func memoryOf(r *sharing.PodRequest, largest sharing.Bytes) sharing.Bytes {
	var together, early sharing.Bytes
	for i := range r.Requests {
		one, n := r.Requests[i].Memory.On(largest), sharing.Bytes(r.Requests[i].Count)
		all := sharing.MaxBytes
		if one == 0 || n < sharing.MaxBytes/one {
			all = one * n
		}
		if r.Requests[i].Kind == sharing.Init {
			early = max(early, all)
		} else {
			together = together.Plus(all)
		}
	}
	return max(together, early)
}

// collectWaiters sends the tally. A queue has all causes from its first waiting pod on, so that a
// graph shows that one has ended.
func (t waitCounts) collectWaiters(out chan<- prometheus.Metric, pods, memory gauge) {
	for queue, by := range t {
		for cause := range waiting.Causes {
			pods.sendValue(out, float64(by[cause].pods), string(queue), cause.String())
			memory.sendValue(out, float64(by[cause].memory), string(queue), cause.String())
		}
	}
}

// setEvicted notes that Volcano evicts a pod with devices in this session, or that it does not
// after all.
func (p *Plugin) setEvicted(t *api.TaskInfo, is bool) {
	if !is {
		delete(p.victimsNow, t.UID)
		return
	}
	if p.victimsNow == nil {
		p.victimsNow = map[api.TaskID]struct{}{}
	}
	p.victimsNow[t.UID] = struct{}{}
}

// countEvictions counts the pods that an action, which has just ended, has evicted.
func (p *Plugin) countEvictions(action string) {
	if n := len(p.victimsNow); n > 0 {
		p.store.metrics.evictions.WithLabelValues(action).Add(float64(n))
		clear(p.victimsNow)
	}
}
