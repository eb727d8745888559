// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/metrics/occupancy"
	"deviceshare/sharing"
)

// measureUntracked asks the driver about every device that a limited container has a part
// of.
func (s *Survey) measureUntracked(ctx context.Context, containers []ContainerUsage) map[sharing.DeviceID]sharing.Bytes {
	out := map[sharing.DeviceID]sharing.Bytes{}
	for id, pods := range trackedMemory(s.cfg.Records.All(), containers) {
		if ctx.Err() != nil {
			return out
		}
		processes, err := s.cfg.Devices.MemoryByProcess(id)
		if err != nil {
			continue
		}
		owners := make([]sharing.Owner, len(processes))
		for i, p := range processes {
			if groups, err := s.cfg.Host.Cgroups(p.PID); err == nil {
				owners[i], _ = occupancy.PodOf(groups)
			}
		}
		if bytes, ok := untrackedMemory(processes, owners, pods); ok {
			out[id] = bytes
		}
	}
	return out
}

// trackedMemory is what the regions say of each device and pod. A pod that has all of the
// device for one of its containers is left out: nothing limits that one, and the
// driver's processes are known by pods. A region that cannot be read says nothing.
func trackedMemory(records []checkpoint.Record, containers []ContainerUsage) map[sharing.DeviceID]map[sharing.Owner]sharing.Bytes {
	out := map[sharing.DeviceID]map[sharing.Owner]sharing.Bytes{}
	each := func(want bool, do func(pods map[sharing.Owner]sharing.Bytes, owner sharing.Owner)) {
		for i := range records {
			r := &records[i]
			for k := range r.Devices {
				if r.IsLimited(k) != want {
					continue
				}
				id := r.Devices[k].Device
				if out[id] == nil {
					out[id] = map[sharing.Owner]sharing.Bytes{}
				}
				do(out[id], r.Owner)
			}
		}
	}
	each(true, func(pods map[sharing.Owner]sharing.Bytes, owner sharing.Owner) { pods[owner] = 0 })
	for i := range containers {
		for _, d := range containers[i].Devices {
			if pods := out[d.ID]; pods != nil {
				owner := containers[i].Record.Owner
				pods[owner] = pods[owner].Plus(d.Used.Less(d.Overflow)).Plus(d.Uncounted)
			}
		}
	}
	each(false, func(pods map[sharing.Owner]sharing.Bytes, owner sharing.Owner) { delete(pods, owner) })
	for id, pods := range out {
		if len(pods) == 0 {
			delete(out, id)
		}
	}
	return out
}

// untrackedMemory is how much more than they say pods have of a device, pod by pod, so that
// one that says too much hides no other. owners are those of the processes, "" for
// unknown. It is false when the driver's list cannot be about these pods: they say
// that they have memory, or there are processes, and none of them was recognised.
func untrackedMemory(processes []driver.Process, owners []sharing.Owner, pods map[sharing.Owner]sharing.Bytes) (sharing.Bytes, bool) {
	told, recognised := map[sharing.Owner]sharing.Bytes{}, len(processes) == 0
	for i, p := range processes {
		recognised = recognised || owners[i] != ""
		told[owners[i]] = told[owners[i]].Plus(p.Memory)
	}
	var sum, said, seen sharing.Bytes
	for owner, bytes := range pods {
		said, seen = said.Plus(bytes), seen.Plus(told[owner])
		sum = sum.Plus(told[owner].Less(bytes))
	}
	if !recognised || (said > 0 && seen == 0) {
		return 0, false
	}
	return sum, true
}
