// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/metrics/occupancy"
	"deviceshare/sharing"
)

// unlimited asks the driver what containers use that libvgpu.so does not count for: partitions,
// time-sliced devices and whole ones. A container whose devices the driver says nothing of is left
// out; so is memory that no single container can be told to have.
func (s *Survey) unlimited(ctx context.Context) []ContainerUsage {
	records := s.cfg.Records.All()
	tenants := occupancy.ByDevice(records, s.cfg.Pods)
	amounts := map[sharing.DeviceID]map[holding]occupied{}
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
				amounts[id] = s.occupied(id, tenants[id])
			}
			known = known && amounts[id] != nil
		}
		if known {
			out = append(out, ContainerUsage{Record: *r, Devices: amountsOf(r, amounts)})
		}
	}
	return out
}

// holding is a container of a pod.
type holding struct {
	owner     sharing.Owner
	container string
}

// occupied is what the processes of one container have of one device.
type occupied struct {
	memory    sharing.Bytes
	processes int
}

// occupied adds up the processes on one device by container; nil if the driver does not tell.
func (s *Survey) occupied(id sharing.DeviceID, pods occupancy.Pods) map[holding]occupied {
	processes, err := s.cfg.Devices.MemoryByProcess(id)
	if err != nil {
		return nil
	}
	out := map[holding]occupied{}
	for _, p := range processes {
		groups, err := s.cfg.Host.Cgroups(p.PID)
		if err != nil {
			continue // it has ended
		}
		who := pods.Of(groups)
		if who.Kind == occupancy.Stranger || who.Kind == occupancy.Host {
			continue
		}
		key := holding{who.Owner, who.Container}
		out[key] = occupied{out[key].memory.Plus(p.Memory), out[key].processes + 1}
	}
	return out
}

// amountsOf is what one container has. The driver does not say on which of several partitions of a
// device a process is: the first has it all.
func amountsOf(r *checkpoint.Record, amounts map[sharing.DeviceID]map[holding]occupied) []DeviceUsage {
	out := make([]DeviceUsage, 0, len(r.Devices))
	told := map[sharing.DeviceID]bool{}
	for i := range r.Devices {
		id := r.Devices[i].Device
		use := DeviceUsage{ID: id, Limit: enforced(r, i)}
		if a := amounts[id][holding{r.Owner, r.Container}]; !told[id] {
			use.Used, use.Processes = a.memory, a.processes
		}
		told[id] = true
		out = append(out, use)
	}
	return out
}

// enforced is how much memory of a device a container can have, 0 for all of it.
func enforced(r *checkpoint.Record, i int) sharing.Bytes {
	if r.IsLimited(i) || r.Mode == sharing.MIG {
		return r.Devices[i].Memory
	}
	return 0
}
