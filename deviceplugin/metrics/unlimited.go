// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/metrics/occupancy"
	"deviceshare/sharing"
)

// measureUnlimited asks the driver what containers use that libvgpu.so does not count for:
// partitions, time-sliced devices and whole ones. A container whose devices the driver says nothing
// of is left out; so is memory that no single container can be told to have.
func (s *Survey) measureUnlimited(ctx context.Context) []ContainerUsage {
	records := s.cfg.Records.All()
	tenants := occupancy.ByDevice(records, s.cfg.Pods)
	amounts := map[sharing.DeviceID]map[containerKey]processUsage{}
	var out []ContainerUsage
	for i := range records {
		r := &records[i]
		if r.HasLimits() {
			continue
		}
		known := true
		for k := range r.Devices {
			id := r.Devices[k].Device
			if amounts[id] == nil && ctx.Err() == nil {
				amounts[id] = s.usageByContainer(id, tenants[id])
			}
			known = known && amounts[id] != nil
		}
		if known {
			out = append(out, ContainerUsage{Record: *r, Devices: amountsOf(r, amounts)})
		}
	}
	return out
}

// containerKey is a container of a pod.
type containerKey struct {
	owner     sharing.Owner
	container string
}

// processUsage is what the processes of one container have of one device.
type processUsage struct {
	memory    sharing.Bytes
	processes int
}

// usageByContainer adds up the processes on one device by container; nil if the driver does not
// tell.
func (s *Survey) usageByContainer(id sharing.DeviceID, pods occupancy.Pods) map[containerKey]processUsage {
	processes, err := s.cfg.Devices.MemoryByProcess(id)
	if err != nil {
		return nil
	}
	out := map[containerKey]processUsage{}
	for _, p := range processes {
		groups, err := s.cfg.Host.Cgroups(p.PID)
		if err != nil {
			continue // it has ended
		}
		who := pods.Of(groups)
		if who.Kind == occupancy.Stranger || who.Kind == occupancy.Host {
			continue
		}
		key := containerKey{who.Owner, who.Container}
		out[key] = processUsage{out[key].memory.Plus(p.Memory), out[key].processes + 1}
	}
	return out
}

// amountsOf is what one container has. The driver does not say on which of several partitions of a
// device a process is: the first has it all.
func amountsOf(r *checkpoint.Record, amounts map[sharing.DeviceID]map[containerKey]processUsage) []DeviceUsage {
	out := make([]DeviceUsage, 0, len(r.Devices))
	told := map[sharing.DeviceID]bool{}
	for i := range r.Devices {
		id := r.Devices[i].Device
		use := DeviceUsage{ID: id, Limit: enforcedLimit(r, i)}
		if a := amounts[id][containerKey{r.Owner, r.Container}]; !told[id] {
			use.Used, use.Processes = a.memory, a.processes
		}
		told[id] = true
		out = append(out, use)
	}
	return out
}

// enforcedLimit is how much memory of a device a container can have, 0 for all of it.
func enforcedLimit(r *checkpoint.Record, i int) sharing.Bytes {
	if r.IsLimited(i) || r.Mode == sharing.MIG {
		return r.Devices[i].Memory
	}
	return 0
}
