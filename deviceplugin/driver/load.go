// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"deviceshare/sharing"
)

// Load is how much of a device, or of a partition, is in use.
type Load struct {
	// Memory is what programs can have in all, Used what they have. What the driver keeps for
	// itself is in neither, where the driver tells it apart.
	Memory, Used sharing.Bytes
	// Busy is the part of the last moments, 0 to 1, in which a kernel ran. It is known where
	// IsBusyKnown says so: the driver does not tell it of partitions, nor of a partitioned device.
	Busy        float64
	IsBusyKnown bool
}

// Load implements Driver.
func (r *NVML) Load(id string) (Load, error) {
	handle, done, err := r.acquireForMIG(sharing.DeviceID(id))
	if err != nil {
		return Load{}, err
	}
	defer done()
	l, err := memoryOf(handle, r.hasSymbol("nvmlDeviceGetMemoryInfo_v2"))
	if err != nil {
		return Load{}, fmt.Errorf("read the memory in use of device %s: %w", id, err)
	}
	if !r.hasSymbol("nvmlDeviceGetUtilizationRates") {
		return l, nil
	}
	if rates, ret := handle.GetUtilizationRates(); ret == nvml.SUCCESS {
		l.Busy, l.IsBusyKnown = percentToRatio(rates.Gpu), true
	}
	return l, nil
}

// memoryOf reads both amounts in one call, so that they fit together.
func memoryOf(handle nvml.Device, tellsReserved bool) (Load, error) {
	bytes := func(n uint64) sharing.Bytes { return sharing.Bytes(min(n, uint64(sharing.MaxBytes))) }
	if tellsReserved {
		if v2, ret := handle.GetMemoryInfo_v2(); ret == nvml.SUCCESS && v2.Reserved < v2.Total {
			return Load{Memory: bytes(v2.Total - v2.Reserved), Used: bytes(v2.Used)}, nil
		}
	}
	v1, ret := handle.GetMemoryInfo()
	return Load{Memory: bytes(v1.Total), Used: bytes(v1.Used)}, migFailure("nvmlDeviceGetMemoryInfo", ret)
}

// BusyByProcess implements Driver. A process that is in several samples counts with the latest.
func (r *NVML) BusyByProcess(id sharing.DeviceID, within time.Duration) (map[int]float64, error) {
	handle, done, err := r.acquireForMIG(id, "nvmlDeviceGetProcessUtilization")
	if err != nil {
		return nil, err
	}
	defer done()
	since := time.Now().Add(-within).UnixMicro()
	samples, ret := handle.GetProcessUtilization(uint64(max(0, since)))
	if err := migFailure("nvmlDeviceGetProcessUtilization", ret); err != nil {
		if errors.Is(err, ErrNotFound) { // nobody has worked since
			return map[int]float64{}, nil
		}
		return nil, fmt.Errorf("read who keeps device %s busy: %w", id, err)
	}
	return latestLoads(samples, uint64(max(0, since)), uint64(time.Now().Add(time.Second).UnixMicro())), nil
}

// latestLoads are the latest samples of processes between two times, in microseconds. The driver's
// are on the clock of the machine: samples from before it was set back are of the future now.
func latestLoads(samples []nvml.ProcessUtilizationSample, since, until uint64) map[int]float64 {
	latest, busy := map[int]uint64{}, make(map[int]float64, len(samples))
	for _, s := range samples {
		if pid := int(s.Pid); pid > 0 && s.TimeStamp >= max(since, latest[pid]) && s.TimeStamp <= until {
			latest[pid], busy[pid] = s.TimeStamp, percentToRatio(s.SmUtil)
		}
	}
	return busy
}

// percentToRatio is a percentage as a part of 1.
func percentToRatio(percent uint32) float64 { return float64(min(percent, 100)) / 100 }
