// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/procfs"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/metrics/occupancy"
	"deviceshare/sharing"
)

// SurveyConfig is what a Survey works with.
type SurveyConfig struct {
	// StateDir is where the backends keep their files, each below its mode's name.
	StateDir string
	Records  Records
	Pods     occupancy.PodSource
	Devices  Devices
	Host     Cgroups
	// States has the node's devices. Nil asks only about those that containers have.
	States States
	// Trouble is told, once for each record, that its region cannot be read. It may
	// be nil.
	Trouble func(r checkpoint.Record, err error)
}

// Records are the containers that were prepared. checkpoint.Store is one.
type Records interface {
	All() []checkpoint.Record
}

// Devices is what the driver says of devices in use. driver.Driver is one. What it does not tell is
// driver.ErrUnsupported.
type Devices interface {
	// MemoryByProcess lists the processes of one device.
	MemoryByProcess(id sharing.DeviceID) ([]driver.Process, error)
	// BusyByProcess says for which part of the last moments each process has kept a device busy.
	BusyByProcess(id sharing.DeviceID, within time.Duration) (map[int]float64, error)
	// Load says how much of a device, or of a MIG device, is in use.
	Load(id string) (driver.Load, error)
}

// Cgroups tells the control groups of a process. agent.HostProcesses is one.
type Cgroups interface {
	Cgroups(pid int) ([]procfs.Cgroup, error)
}

// Survey asks when it is asked. It is safe for concurrent use.
type Survey struct {
	cfg  SurveyConfig
	turn chan struct{} // holds a token while somebody looks

	mu       sync.Mutex
	failures map[string]int // in a row, by a record's id; told is for good
}

// failureReported is a number of failures that was told.
const failureReported = -1

// NewSurvey returns a survey.
func NewSurvey(cfg SurveyConfig) *Survey {
	return &Survey{cfg: cfg, turn: make(chan struct{}, 1), failures: map[string]int{}}
}

// Usage is what was found. What could not be found out, or not in time, is not in
// it.
type Usage struct {
	Containers []ContainerUsage
	// Untracked is memory of each device that processes of limited containers have,
	// and their regions do not know of. A device is absent where the driver does
	// not tell.
	Untracked map[sharing.DeviceID]sharing.Bytes
	// Devices and Partitions are what the driver says of each as a whole.
	Devices    []DeviceLoad
	Partitions []PartitionLoad
}

// ContainerUsage is one container that has devices.
type ContainerUsage struct {
	Record checkpoint.Record
	// Devices has one entry for each share, in the record's order. Limit is what is enforced, 0 for
	// a whole device and in mode time-slicing. What a container with limits uses is in its region:
	// without one it uses nothing. What others use is what the driver says.
	Devices []DeviceUsage
}

// Report looks at everything, for as long as ctx says at most.
func (s *Survey) Report(ctx context.Context) Usage {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return Usage{}
	}
	results := make(chan Usage, 3)
	go func() { // it ends when the disk and the driver answer; meanwhile nobody else asks them
		defer func() { <-s.turn }()
		containers := s.readRegions(ctx)
		results <- Usage{Containers: containers}
		untracked := s.measureUntracked(ctx, containers)
		containers = slices.Concat(containers, s.measureUnlimited(ctx))
		results <- Usage{Containers: containers, Untracked: untracked}
		measured := withOwnDevices(containers) // the others are being read already
		s.measureCompute(ctx, measured)
		results <- Usage{Containers: measured, Untracked: untracked, Devices: s.deviceLoads(ctx), Partitions: s.partitionLoads(ctx)}
	}()
	var latest Usage
	for range cap(results) {
		select {
		case latest = <-results:
		case <-ctx.Done():
			return newestOf(results, latest)
		}
	}
	return latest
}

// newestOf is what was found last, or latest if nothing more was found: where the time is over and
// something was found at once, either may be seen first.
func newestOf(results <-chan Usage, latest Usage) Usage {
	for {
		select {
		case latest = <-results:
		default:
			return latest
		}
	}
}

// withOwnDevices copies usages, so that what is noted of devices does not change the originals.
func withOwnDevices(containers []ContainerUsage) []ContainerUsage {
	out := slices.Clone(containers)
	for i := range out {
		out[i].Devices = slices.Clone(out[i].Devices)
	}
	return out
}

// readRegions reads the regions, as many as there is time for.
func (s *Survey) readRegions(ctx context.Context) []ContainerUsage {
	var out []ContainerUsage
	known := map[string]bool{}
	for _, r := range s.cfg.Records.All() {
		known[r.ID] = true
		if !r.HasLimits() {
			continue
		}
		region, err := ReadRegion(s.regionPath(&r), ctx.Err)
		if ctx.Err() != nil {
			return out
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		s.noteResult(r, err)
		if err == nil {
			out = append(out, ContainerUsage{Record: r, Devices: shareUsage(&r, region)})
		}
	}
	s.pruneFailures(known)
	return out
}

// regionPath is where a container's region is, as package limits has it.
func (s *Survey) regionPath(r *checkpoint.Record) string {
	return filepath.Join(s.cfg.StateDir, string(r.Mode), "containers", string(r.Owner)+"_"+r.Container, "vgpu", "vgpu.cache")
}

// shareUsage is what the region says of the devices of a record. A device that only the
// region knows is passed over: its name could be anything.
func shareUsage(r *checkpoint.Record, region Region) []DeviceUsage {
	out := make([]DeviceUsage, 0, len(r.Devices))
	for i := range r.Devices {
		use := DeviceUsage{ID: r.Devices[i].Device}
		for _, d := range region.Devices {
			if d.ID == use.ID {
				use = d
				break
			}
		}
		use.Limit = enforcedLimit(r, i)
		out = append(out, use)
	}
	return out
}

// noteResult counts a failure, and tells of the second in a row: one may be a file that
// was being made.
func (s *Survey) noteResult(r checkpoint.Record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch n := s.failures[r.ID]; {
	case n == failureReported:
	case err == nil:
		delete(s.failures, r.ID)
	case n == 0:
		s.failures[r.ID] = 1
	default:
		s.failures[r.ID] = failureReported
		if s.cfg.Trouble == nil {
			return
		}
		s.cfg.Trouble(r, fmt.Errorf("usage of container %s of pod %s/%s: %w", r.Container, r.Namespace, r.Pod, err))
	}
}

func (s *Survey) pruneFailures(known map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.failures {
		if !known[id] {
			delete(s.failures, id)
		}
	}
}

// scrapeTimeout is how long a scrape waits for a report: well below Prometheus'
// default of 10 s.
const scrapeTimeout = 3 * time.Second
