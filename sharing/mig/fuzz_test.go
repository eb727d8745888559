// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"fmt"
	"testing"

	"deviceshare/sharing"
)

// FuzzLayout lays out whatever an administrator could write on whatever a driver
// could report: no panic, no endless search, and only legal places.
func FuzzLayout(f *testing.F) {
	f.Add([]byte{8, 3, 1, 1, 7, 2, 2, 3, 4, 3, 2, 0, 2, 1, 1})
	f.Add([]byte{64, 1, 64, 1, 0, 0, 1})
	f.Add([]byte{255, 2, 0, 0, 0, 200, 200, 200})
	f.Fuzz(func(t *testing.T, data []byte) {
		next := func() int {
			if len(data) == 0 {
				return 0
			}
			b := data[0]
			data = data[1:]
			return int(int8(b))
		}
		p := &sharing.Partitioning{Slices: next()}
		for i := range next() & 7 {
			profile := sharing.Profile{
				Name: fmt.Sprint(i % 6), Size: next(), Compute: next(), Max: next(), Memory: sharing.Bytes(next()) * sharing.GiB,
			}
			for range next() & 7 {
				profile.Starts = append(profile.Starts, next())
			}
			p.Profiles = append(p.Profiles, profile)
		}
		g := sharing.Geometry{Name: "g"}
		for range next() & 7 {
			g.Entries = append(g.Entries, sharing.GeometryEntry{
				Profile: fmt.Sprint(next() & 7), Count: next(), Memory: sharing.Bytes(next()) * sharing.GiB,
			})
		}
		parts, err := Layout(p, &g)
		var taken uint64
		for i, part := range parts {
			if part.Position != i || part.Start < 0 || part.Start+part.Size > p.Slices || taken&part.Slices() != 0 {
				t.Fatalf("%+v in %+v", part, parts)
			}
			taken |= part.Slices()
		}
		if (err == nil) != (len(parts) > 0) {
			t.Fatalf("%d partitions, %v", len(parts), err)
		}
		for _, geometries := range [][]sharing.Geometry{nil, {g}} {
			p.Geometries = geometries
			d := sharing.Device{ID: "GPU-0", Memory: 80 * sharing.GiB, Cores: 100, MaxShares: 10, Healthy: true, Mode: sharing.MIG, MIG: p}
			v := sharing.NewView(&d, nil)
			for _, m := range []sharing.Memory{sharing.WholeMemory(), sharing.PercentMemory(50), sharing.AbsoluteMemory(sharing.GiB)} {
				req := sharing.Request{Container: "c", Count: 1, Memory: m}
				if _, reason := New().Fit(&v, &req); reason != sharing.Fits {
					continue
				}
				s := New().Share(&v, &req)
				if s.Partition.IsZero() || s.Partition.Start+s.Partition.Size > p.Slices {
					t.Fatalf("%+v", s)
				}
				if part, ok := At(p, s.Partition.Geometry, s.Partition.Position); !ok || part != s.Partition {
					t.Fatalf("%s-%d is %+v, the share is %+v", s.Partition.Geometry, s.Partition.Position, part, s.Partition)
				}
			}
		}
	})
}
