// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/waiting/news"
	"deviceshare/sharing"
)

// Counts is which pods wait for devices after a session: by queue, and by cause. It is not
// changed any more when it is published.
type Counts map[api.QueueID]*[news.Causes]waiters

// waiters are pods that wait, and the device memory that they ask for in all.
type waiters struct {
	pods   int
	memory sharing.Bytes
}

func (c Counts) countPod(queue api.QueueID, cause news.Cause, memory sharing.Bytes) {
	by := c[queue]
	if by == nil {
		by = &[news.Causes]waiters{}
		c[queue] = by
	}
	by[cause].pods++
	by[cause].memory = by[cause].memory.Plus(memory)
}

// explainLeaving counts the pods of a job that have a node and wait for others to leave it, and
// tells those for which room is made who has to leave.
func (e *explanation) explainLeaving(job *api.JobInfo) {
	for _, t := range job.TaskStatusIndex[api.Pipelined] {
		if a, asks := e.Scheduler.Ask(t); asks {
			e.waiting.countPod(job.Queue, news.Leaving, MemoryOf(a.Request, e.Largest))
		}
		if text := e.Scheduler.RoomFor(t); text != "" {
			tellPlace(job, t, asFitErrors(e.memory.told.Tell(news.Pod(t.Pod.UID), news.Leaving, text)))
		}
	}
}

// MemoryOf is the device memory that a pod asks for. A part of a device, or all of it, counts as
// that of the largest one.
func MemoryOf(r *sharing.PodRequest, largest sharing.Bytes) sharing.Bytes {
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

// Each calls a function for each queue that has waiting pods and each cause. A queue has all causes
// from its first waiting pod on, so that a graph shows that one has ended.
func (c Counts) Each(see func(queue string, cause news.Cause, pods int, memory sharing.Bytes)) {
	for queue, by := range c {
		for cause := range news.Causes {
			see(string(queue), cause, by[cause].pods, by[cause].memory)
		}
	}
}
