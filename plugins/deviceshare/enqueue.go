// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"

	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/events"
)

// reportTooLarge tells the users of pods that ask for more memory of one device than
// the largest device of the cluster has. Volcano may keep such a pod out of its
// queue by sums alone, and then no predicate ever says why. It decides nothing.
func (p *Plugin) reportTooLarge(job *api.JobInfo) {
	if p.store.largest == 0 {
		return // no device is known yet: nothing to compare with
	}
	for _, t := range job.TaskStatusIndex[api.Pending] {
		a := p.rememberAsk(t)
		if a == nil || a.mistakes != nil {
			continue
		}
		if err := requireFitting(&a.request, p.store.largest); err != nil && a.toldTooLarge != err.Error() {
			a.toldTooLarge = err.Error()
			ref := nodes.PodReference(t.Pod)
			p.store.report.Report(&ref, events.DeviceRequestTooLarge, a.toldTooLarge)
		}
	}
}

// requireFitting returns an error if a container asks for more memory of a device than
// the largest has.
func requireFitting(pod *sharing.PodRequest, largest sharing.Bytes) error {
	for i := range pod.Requests {
		r := &pod.Requests[i]
		if amount, ok := r.Memory.Absolute(); ok && amount > largest {
			return fmt.Errorf("container %q asks for %v of one device, the largest device of the cluster has %v", r.Container, amount, largest)
		}
	}
	return nil
}

// largestDevice is the most memory any device offers.
func largestDevice(known map[string]*nodes.Node) sharing.Bytes {
	var most sharing.Bytes
	for _, n := range known {
		if n.Inventory == nil {
			continue
		}
		for i := range n.Inventory.Devices {
			most = max(most, n.Inventory.Devices[i].Memory)
		}
	}
	return most
}
