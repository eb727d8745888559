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
	f.Add([]byte{8, 3, 1, 1, 7, 1, 3, 0, 1, 2, 2, 2, 3, 2, 2, 0, 4, 4, 3, 2, 3, 1, 4, 1, 1, 7, 1, 1, 0, 1})
	f.Add([]byte{4, 2, 1, 1, 4, 1, 4, 0, 1, 2, 3, 2, 2, 2, 2, 2, 0, 2, 0, 1, 1, 1})
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
		odd := sharing.Partition{Profile: fmt.Sprint(next() & 7), Start: next(), Size: next()}
		for i := range 4 {
			p.Geometries, p.Policy = [][]sharing.Geometry{nil, {g}}[i&1], sharing.PartitionPolicy(i>>1)
			d := sharing.Device{ID: "GPU-0", Memory: 80 * sharing.GiB, Cores: 100, MaxShares: 10, Healthy: true, Mode: sharing.MIG, MIG: p}
			empty := sharing.NewView(&d, nil, sharing.Backends{New()})
			first := fitted(t, &empty)
			beside := sharing.NewView(&d, []sharing.Held{{Owner: "a", Share: first}, {Owner: "b", Share: sharing.Share{Device: d.ID, Mode: sharing.MIG, Partition: odd}}}, sharing.Backends{New()})
			if second := fitted(t, &beside); !first.Partition.IsZero() && second.Partition.Overlaps(first.Partition) {
				t.Fatalf("%+v beside %+v", second, first)
			}
		}
	})
}

// fitted is what the first of some requests that fits gets, if one does.
func fitted(t *testing.T, v *sharing.View) (s sharing.Share) {
	p := v.Device.MIG
	for _, m := range []sharing.Memory{sharing.WholeMemory(), sharing.PercentMemory(50), sharing.AbsoluteMemory(sharing.GiB)} {
		req := sharing.Request{Container: "c", Count: 1, Memory: m}
		c, reason := New().Fit(v, &req)
		if reason != sharing.Fits {
			continue
		}
		s = New().Share(v, &req)
		if s.Partition.IsZero() || s.Partition.Start+s.Partition.Size > p.Slices || c.Loss < 0 {
			t.Fatalf("%+v, %+v", s, c)
		}
		if part, ok := At(p, s.Partition.Geometry, s.Partition.Position); !ok || part != s.Partition {
			t.Fatalf("%s-%d is %+v, the share is %+v", s.Partition.Geometry, s.Partition.Position, part, s.Partition)
		}
	}
	return s
}
