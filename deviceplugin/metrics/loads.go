// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"time"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/metrics/occupancy"
	"deviceshare/sharing"
)

// recent is how far back the driver is asked who has kept a device busy. Its samples are some
// seconds apart.
const recent = 5 * time.Second

// DeviceLoad is how much of a device is in use, by whomever.
type DeviceLoad struct {
	Device sharing.Device
	driver.Load
}

// PartitionLoad is how much of a container's partition is in use.
type PartitionLoad struct {
	Record checkpoint.Record
	// Share is the index of the partition among the record's devices.
	Share int
	driver.Load
}

// deviceLoads asks about every device that works. One that does not answer is left out.
func (s *Survey) deviceLoads(ctx context.Context) []DeviceLoad {
	if s.cfg.States == nil {
		return nil
	}
	devices := s.cfg.States.Snapshot().Working.Devices
	out := make([]DeviceLoad, 0, len(devices))
	for i := range devices {
		d := &devices[i]
		if !d.Healthy || ctx.Err() != nil {
			continue
		}
		if load, err := s.cfg.Devices.Load(string(d.ID)); err == nil {
			out = append(out, DeviceLoad{*d, load})
		}
	}
	return out
}

func (s *Survey) partitionLoads(ctx context.Context) []PartitionLoad {
	var out []PartitionLoad
	for _, r := range s.cfg.Records.All() {
		for i := range r.Devices {
			uuid := r.Devices[i].Partition.UUID
			if uuid == "" || ctx.Err() != nil {
				continue // it is not prepared yet
			}
			if load, err := s.cfg.Devices.Load(uuid); err == nil {
				out = append(out, PartitionLoad{r, i, load})
			}
		}
	}
	return out
}

// measureCompute notes which part of its devices' time each container had in the last moments. A
// device of which the driver does not tell is passed over, and so is who is in a container that is
// not known yet.
func (s *Survey) measureCompute(ctx context.Context, containers []ContainerUsage) {
	tenants := occupancy.ByDevice(s.cfg.Records.All(), s.cfg.Pods)
	busy := map[sharing.DeviceID]map[containerKey]float64{}
	for i := range containers {
		r := &containers[i].Record
		for k := range containers[i].Devices {
			d := &containers[i].Devices[k]
			if r.Devices[k].Partition.Profile != "" {
				continue
			}
			if _, asked := busy[d.ID]; !asked && ctx.Err() == nil {
				busy[d.ID] = s.busyOn(d.ID, tenants[d.ID])
			}
			if by := busy[d.ID]; by != nil {
				d.Compute, d.IsComputeKnown = min(by[containerKey{r.Owner, r.Container}], 1), true
			}
		}
	}
}

// busyOn adds up the processes that keep a device busy by container; nil if the driver does not
// tell, or none of the processes that it names is known here.
func (s *Survey) busyOn(id sharing.DeviceID, pods occupancy.Pods) map[containerKey]float64 {
	processes, err := s.cfg.Devices.BusyByProcess(id, recent)
	if err != nil {
		return nil
	}
	out, recognised := map[containerKey]float64{}, len(processes) == 0
	for pid, part := range processes {
		groups, err := s.cfg.Host.Cgroups(pid)
		if err != nil {
			continue // it has ended, or the driver names it by a number of another namespace
		}
		recognised = true
		if who := pods.Of(groups); who.Kind == occupancy.Holder || who.Kind == occupancy.Undecided {
			out[containerKey{who.Owner, who.Container}] += part
		}
	}
	if !recognised {
		return nil
	}
	return out
}
