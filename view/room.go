// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"

	"deviceshare/sharing"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
)

// capacityCache finds out what of devices pods can still get, once for devices that are alike.
type capacityCache struct {
	cluster *Cluster
	known   map[string]freeCapacity
}

// freeCapacity is what of a device pods can still get.
type freeCapacity struct {
	memory sharing.Bytes
	cores  sharing.Percent
}

func (c *Cluster) newCapacityCache() *capacityCache {
	return &capacityCache{cluster: c, known: map[string]freeCapacity{}}
}

// freeOn returns what of a device pods can still get. Memory that no share can have any more is not
// free: that of a device which one container or one pod holds alone, which has as many shares as it
// may, or which is cut into partitions that leave no place for another one.
func (r *capacityCache) freeOn(v *sharing.View) freeCapacity {
	if !v.IsOpen() {
		return freeCapacity{}
	}
	if !v.Partitioned() {
		return freeCapacity{v.FreeMemory(), v.FreeCores()}
	}
	var key strings.Builder
	d := v.Device
	fmt.Fprintf(&key, "%s %s %d %d", d.Model, d.Mode, d.Memory, d.MaxShares)
	if d.MIG != nil {
		fmt.Fprintf(&key, " %+v", *d.MIG)
	}
	for _, h := range v.Held() {
		fmt.Fprintf(&key, " %+v", h.Share.Partition)
	}
	found, known := r.known[key.String()]
	if !known {
		found = r.packPartitions(v)
		r.known[key.String()] = found
	}
	return found
}

// packPartitions gives a device away, the largest partition first, until no more can be had.
func (r *capacityCache) packPartitions(v *sharing.View) freeCapacity {
	var sum freeCapacity
	held := slices.Clone(v.Held())
	for i := range held {
		held[i].Neighbours = nil // whoever comes is accepted
	}
	full := v.WithShares(held)
	for _, memory := range sizesToTry(v.Device) {
		for len(held) < v.Device.MaxShares {
			ask := sharing.PodRequest{Owner: sharing.Owner(fmt.Sprintf("room %d", len(held))), Requests: []sharing.Request{
				{Container: "room", Count: 1, Memory: sharing.AbsoluteMemory(memory)},
			}}
			placed, refused := place.Place([]sharing.View{full}, &ask, r.cluster.backends, policy.Fragmentation(nil))
			if refused.Refused() {
				break
			}
			share := placed.Containers[0].Shares[0]
			sum.memory, sum.cores = sum.memory.Plus(share.Memory), sum.cores+share.Cores
			held = append(held, sharing.Held{Owner: ask.Owner, Container: "room", Share: share})
			full = sharing.NewView(v.Device, held, r.cluster.backends)
		}
	}
	return freeCapacity{min(sum.memory, v.FreeMemory()), min(sum.cores, v.FreeCores())}
}

// sizesToTry are the amounts of memory that partitions of a device have, the largest first.
func sizesToTry(d *sharing.Device) []sharing.Bytes {
	sizes := []sharing.Bytes{sharing.MiB}
	if d.MIG != nil {
		for i := range d.MIG.Profiles {
			sizes = append(sizes, d.MIG.Profiles[i].Memory)
		}
		for i := range d.MIG.Geometries {
			for _, e := range d.MIG.Geometries[i].Entries {
				sizes = append(sizes, e.Memory)
			}
		}
	}
	sizes = slices.DeleteFunc(sizes, func(b sharing.Bytes) bool { return b <= 0 })
	slices.SortFunc(sizes, func(a, b sharing.Bytes) int { return int(min(max(b-a, -1), 1)) })
	return slices.Compact(sizes)
}
