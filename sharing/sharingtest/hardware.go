// SPDX-License-Identifier: Apache-2.0

package sharingtest

import (
	"fmt"

	"deviceshare/sharing"
)

// Model is a kind of GPU. Memory sizes of the A30 and the A100s are what their
// driver reports; those of later models are even parts of the whole, since only
// the shapes and their places matter here.
type Model struct {
	Name   string // as NVML reports it
	Memory sharing.Bytes
	MIG    *sharing.Partitioning // nil if it cannot be partitioned
}

// Models returns every model by the short name tests use. The places of MIG
// profiles are those of NVIDIA's MIG user guide, the same on every device of
// eight memory slices.
func Models() map[string]Model {
	return map[string]Model{
		"T4": {Name: "Tesla T4", Memory: sharing.MiBs(15360)},
		"A30": {Name: "NVIDIA A30", Memory: sharing.MiBs(24576), MIG: &sharing.Partitioning{
			Slices: 4,
			Profiles: []sharing.Profile{
				{Name: "1g.6gb", Memory: sharing.MiBs(5836), Compute: 1, Size: 1, Starts: []int{0, 1, 2, 3}, Max: 4},
				{Name: "1g.6gb+me", Memory: sharing.MiBs(5836), Compute: 1, Size: 1, Starts: []int{0, 1, 2, 3}, Max: 1},
				{Name: "2g.12gb", Memory: sharing.MiBs(11672), Compute: 2, Size: 2, Starts: []int{0, 2}, Max: 2},
				{Name: "4g.24gb", Memory: sharing.MiBs(23344), Compute: 4, Size: 4, Starts: []int{0}, Max: 1},
			},
			Geometries: []sharing.Geometry{
				group("group1", 4, "1g.6gb", 6144), group("group2", 2, "2g.12gb", 12288), group("group3", 1, "4g.24gb", 24576),
			},
		}},
		"A100-40": {Name: "NVIDIA A100-SXM4-40GB", Memory: sharing.MiBs(40960), MIG: eight(
			[5]int64{5, 10, 20, 20, 40}, [5]int64{4864, 9856, 19968, 19968, 40192},
			group("group1", 7, "1g.5gb", 5120), group("group2", 3, "2g.10gb", 10240, 1, "1g.5gb", 5120),
			group("group3", 2, "3g.20gb", 20480), group("group4", 1, "7g.40gb", 40960))},
		"A100-80": {Name: "NVIDIA A100-SXM4-80GB", Memory: sharing.MiBs(81920), MIG: eight(
			[5]int64{10, 20, 40, 40, 80}, [5]int64{9728, 19968, 40192, 40192, 80896},
			group("group1", 7, "1g.10gb", 9728), group("group2", 3, "2g.20gb", 19968, 1, "1g.10gb", 9728),
			group("group3", 2, "3g.40gb", 40192), group("group4", 1, "7g.80gb", 80896))},
		"H100": {Name: "NVIDIA H100 80GB HBM3", Memory: sharing.MiBs(81559), MIG: eight(
			[5]int64{10, 20, 40, 40, 80}, parts(81559))},
		"H200": {Name: "NVIDIA H200", Memory: sharing.MiBs(143771), MIG: eight(
			[5]int64{18, 35, 71, 71, 141}, [5]int64{16384, 33280, 71424, 71424, 143360})},
		"B200": {Name: "NVIDIA B200", Memory: sharing.MiBs(183359), MIG: eight(
			[5]int64{23, 45, 90, 90, 180}, parts(183359))},
	}
}

// eight is the partitioning of a device of eight memory slices: the gigabytes in
// the names and the MiB of 1g, 2g, 3g, 4g and 7g.
func eight(gb, mib [5]int64, geometries ...sharing.Geometry) *sharing.Partitioning {
	one, two := []int{0, 1, 2, 3, 4, 5, 6}, []int{0, 2, 4}
	profile := func(compute, size, i int, suffix string, maximum int, starts []int) sharing.Profile {
		return sharing.Profile{
			Name:   fmt.Sprintf("%dg.%dgb%s", compute, gb[i], suffix),
			Memory: sharing.MiBs(mib[i]), Compute: compute, Size: size, Starts: starts, Max: maximum,
		}
	}
	return &sharing.Partitioning{
		Slices: 8,
		Profiles: []sharing.Profile{
			profile(1, 1, 0, "", 7, one),
			profile(1, 1, 0, "+me", 1, one),
			profile(1, 2, 1, "", 4, []int{0, 2, 4, 6}),
			profile(2, 2, 1, "", 3, two),
			profile(3, 4, 2, "", 2, []int{0, 4}),
			profile(4, 4, 3, "", 1, []int{0}),
			profile(7, 8, 4, "", 1, []int{0}),
		},
		Geometries: geometries,
	}
}

// parts is even parts of a device's MiB for 1g, 2g, 3g, 4g and 7g.
func parts(total int64) [5]int64 {
	return [5]int64{total / 8, total / 4, total / 2, total / 2, total}
}

// group reads a geometry from triples of count, profile and MiB.
func group(name string, triples ...any) sharing.Geometry {
	g := sharing.Geometry{Name: name}
	for i := 0; i+2 < len(triples); i += 3 {
		g.Entries = append(g.Entries, sharing.GeometryEntry{
			Count: triples[i].(int), Profile: triples[i+1].(string), Memory: sharing.MiBs(int64(triples[i+2].(int))),
		})
	}
	return g
}
