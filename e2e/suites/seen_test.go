// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/e2e/report"
	"deviceshare/e2e/user"
	"deviceshare/sharing"
)

// seen is what a container found inside: what the driver told it, and the limits
// that were injected.
type seen struct {
	devices []seenDevice
	limits  map[string]limit // by device UUID; nil without a limits file
	mapped  bool             // libvgpu is in the process
}

type seenDevice struct {
	uuid, profile             string // profile: of a partition
	total, infoTotal, nvmlAll int64  // bytes, by the three ways to ask
}

type limit struct {
	memory sharing.Bytes
	cores  sharing.Percent
}

// compare checks every container of a pod against the pod's own annotation, and
// returns how many there were.
func compare(ctx context.Context, u *user.User, p *corev1.Pod) (int, error) {
	placement, err := user.Placement(p)
	if err != nil {
		return 0, err
	}
	if placement.Node != p.Spec.NodeName {
		return 0, fmt.Errorf("pod %s is on node %s, its annotation says %s", p.Name, p.Spec.NodeName, placement.Node)
	}
	var errs []error
	for _, c := range placement.Containers {
		log, err := u.Log(ctx, p.Name, c.Container)
		if err == nil {
			err = matches(parse(log), c.Shares)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("container %s/%s: %w\nannotated: %+v\nlog:\n%s", p.Name, c.Container, err, c.Shares, log))
		}
	}
	return len(placement.Containers), errors.Join(errs...)
}

// matches compares what a container saw with the shares it was given.
func matches(s seen, shares []sharing.Share) error {
	if len(s.devices) != len(shares) {
		return fmt.Errorf("saw %d devices, was given %d", len(s.devices), len(shares))
	}
	free := 0 // shares that need no interception
	for _, d := range s.devices {
		if d.profile != "" {
			if err := matchesPartition(d, shares); err != nil {
				return err
			}
			free++
			continue
		}
		i := slices.IndexFunc(shares, func(x sharing.Share) bool { return string(x.Device) == d.uuid })
		if i < 0 {
			return fmt.Errorf("saw device %s, which is not its own", d.uuid)
		}
		share := shares[i]
		if share.Whole {
			free++
			continue
		}
		want := int64(share.Memory)
		if d.total != want || d.infoTotal != want || d.nvmlAll != want {
			return fmt.Errorf("device %s: total is %d by cuDeviceTotalMem, %d by cuMemGetInfo, %d by NVML; want %d",
				d.uuid, d.total, d.infoTotal, d.nvmlAll, want)
		}
		if got := s.limits[d.uuid]; got.memory != share.Memory || got.cores != share.Cores {
			return fmt.Errorf("device %s: injected limits are %v and %d%%, want %v and %d%%",
				d.uuid, got.memory, got.cores, share.Memory, share.Cores)
		}
	}
	if all := free == len(shares); all == s.mapped {
		return fmt.Errorf("%d of %d devices are whole or partitions, interception in the process: %v", free, len(shares), s.mapped)
	}
	return nil
}

// matchesPartition compares a partition with the only share there may be then. Where
// it lies is not to be seen from inside: see located.
func matchesPartition(d seenDevice, shares []sharing.Share) error {
	share := shares[0]
	if len(shares) != 1 || share.Partition.Profile != d.profile {
		return fmt.Errorf("saw partition %s of %s, was given %+v", d.uuid, d.profile, shares)
	}
	if d.total < int64(share.Memory) || d.infoTotal != d.total || d.nvmlAll != d.total {
		return fmt.Errorf("partition %s: total is %d by cuDeviceTotalMem, %d by cuMemGetInfo, %d by NVML; want one figure, at least %d",
			d.uuid, d.total, d.infoTotal, d.nvmlAll, share.Memory)
	}
	return nil
}

// parse reads the output of the CUDA client's steps info and env.
func parse(log string) seen {
	var s seen
	for _, line := range strings.Split(log, "\n") {
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "info index="):
			s.devices = append(s.devices, seenDevice{
				uuid: report.Value(line, "uuid"), profile: report.Value(line, "profile"), total: number(line, "total"),
				infoTotal: number(line, "meminfo_total"), nvmlAll: number(line, "nvml_total"),
			})
		case strings.HasPrefix(line, "env limits: device ") && len(words) >= 5:
			if s.limits == nil {
				s.limits = map[string]limit{}
			}
			s.limits[words[4]] = limit{sharing.Bytes(number(line, "memory")), sharing.Percent(number(line, "cores"))}
		case line == "env libvgpu=mapped":
			s.mapped = true
		}
	}
	return s
}

// number is -1 where the text has none, which equals no amount.
func number(line, key string) int64 {
	n, err := strconv.ParseInt(report.Value(line, key), 10, 64)
	if err != nil {
		return -1
	}
	return n
}
