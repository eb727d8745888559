// SPDX-License-Identifier: Apache-2.0

package wire_test

import "deviceshare/sharing"

const (
	idA = "GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448"
	idB = "GPU-1a2b3c4d-0000-4000-8000-000000000001"
	idC = "GPU-1a2b3c4d-0000-4000-8000-000000000002"
)

// a100 is the partitioning of an A100 80 GB with the shipped geometries.
func a100() *sharing.Partitioning {
	return &sharing.Partitioning{
		Slices: 8,
		Profiles: []sharing.Profile{
			{Name: "1g.10gb", Memory: 9728 * sharing.MiB, Compute: 1, Size: 1, Starts: []int{0, 1, 2, 3, 4, 5, 6}, Max: 7},
			{Name: "1g.10gb+me", Memory: 9728 * sharing.MiB, Compute: 1, Size: 1, Starts: []int{0, 1, 2, 3, 4, 5, 6}, Max: 1},
			{Name: "2g.20gb", Memory: 19968 * sharing.MiB, Compute: 2, Size: 2, Starts: []int{0, 2, 4}, Max: 3},
			{Name: "3g.40gb", Memory: 40192 * sharing.MiB, Compute: 3, Size: 4, Starts: []int{0, 4}, Max: 2},
			{Name: "7g.80gb", Memory: 80896 * sharing.MiB, Compute: 7, Size: 8, Starts: []int{0}, Max: 1},
		},
		Geometries: []sharing.Geometry{
			{Name: "group1", Entries: []sharing.GeometryEntry{{Profile: "1g.10gb", Memory: 9728 * sharing.MiB, Count: 7}}},
			{Name: "group2", Entries: []sharing.GeometryEntry{
				{Profile: "1g.10gb", Memory: 9728 * sharing.MiB, Count: 1},
				{Profile: "2g.20gb", Memory: 19968 * sharing.MiB, Count: 3},
			}},
			{Name: "group3", Entries: []sharing.GeometryEntry{{Profile: "3g.40gb", Memory: 40192 * sharing.MiB, Count: 2}}},
			{Name: "mixed", Entries: []sharing.GeometryEntry{
				{Profile: "2g.20gb", Memory: 19968 * sharing.MiB, Count: 2},
				{Profile: "3g.40gb", Memory: 40192 * sharing.MiB, Count: 1},
			}},
			{Name: "small", Entries: []sharing.GeometryEntry{
				{Profile: "3g.40gb", Memory: 40192 * sharing.MiB, Count: 1},
				{Profile: "1g.10gb", Memory: 9000 * sharing.MiB, Count: 2},
			}},
			{Name: "toomuch", Entries: []sharing.GeometryEntry{{Profile: "3g.40gb", Memory: 40192 * sharing.MiB, Count: 3}}},
		},
	}
}

// node1 has one device per interesting case: shared, partitioned, unhealthy.
func node1() sharing.Inventory {
	return sharing.Inventory{
		Node: "node1", GeometryHash: "abc123",
		Devices: []sharing.Device{
			{
				ID: idA, Index: 0, Model: "NVIDIA A100-SXM4-80GB", Memory: 81920 * sharing.MiB, Cores: 100,
				MaxShares: 10, Healthy: true, Mode: sharing.HAMiCore, NUMA: 0, PCI: "0000:07:00.0",
				Links: []sharing.Link{{Peer: idB, Kind: "nvlink"}},
			},
			{
				ID: idB, Index: 2, Model: "NVIDIA A100-SXM4-80GB", Memory: 81920 * sharing.MiB, Cores: 100,
				MaxShares: 7, Healthy: true, Mode: sharing.MIG, NUMA: 1, MIG: a100(),
			},
			{
				ID: idC, Index: 5, Model: "Tesla T4", Memory: 15360 * sharing.MiB, Cores: 150,
				MaxShares: 4, Mode: sharing.TimeSlicing, NUMA: -1,
			},
		},
	}
}

// pod1 holds a share in every mode but mps.
func pod1() sharing.Placement {
	return sharing.Placement{
		Node: "node1", Group: "default/train", GeometryHash: "abc123",
		Containers: []sharing.ContainerShares{
			{Container: "load", Kind: sharing.Init, Shares: []sharing.Share{
				{Device: idA, Mode: sharing.HAMiCore, Memory: 512 * sharing.MiB, Cores: 10},
			}},
			{Container: "proxy", Kind: sharing.Sidecar, Shares: []sharing.Share{
				{Device: idC, Mode: sharing.TimeSlicing, Memory: sharing.GiB},
			}},
			{Container: "main", Shares: []sharing.Share{
				{Device: idA, Mode: sharing.HAMiCore, Memory: 1000 * sharing.MiB, Cores: 30},
				{Device: idB, Mode: sharing.MIG, Memory: 19968 * sharing.MiB, Partition: sharing.Partition{
					Profile: "2g.20gb", Start: 2, Size: 2, Geometry: "group2", Position: 2,
				}},
			}},
			{Container: "all", Shares: []sharing.Share{
				{Device: idC, Mode: sharing.TimeSlicing, Memory: 15360 * sharing.MiB, Cores: 100, Whole: true},
			}},
		},
	}
}
