// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strconv"
	"strings"

	"deviceshare/sharing"
)

type partitioningText struct {
	Slices     *int           `json:"slices"`
	Profiles   []profileText  `json:"profiles"`
	Geometries []geometryText `json:"geometries,omitempty"`
	// Policy is left out where it is the one that holds without it, so that the
	// text of a node that never heard of policies stays as it was.
	Policy string `json:"policy,omitempty"`
}

type profileText struct {
	Name    string `json:"name"`
	Memory  *int64 `json:"memory"` // bytes
	Compute *int   `json:"compute"`
	Size    *int   `json:"size"`
	Starts  []int  `json:"starts"`
	Max     int    `json:"max,omitempty"`
}

type geometryText struct {
	Name    string      `json:"name"`
	Entries []entryText `json:"entries"`
}

type entryText struct {
	Profile string `json:"profile"`
	Memory  *int64 `json:"memory"` // bytes
	Count   *int   `json:"count"`
}

func partitioningOut(p *sharing.Partitioning) *partitioningText {
	out := &partitioningText{Slices: &p.Slices, Profiles: []profileText{}}
	for i := range p.Profiles {
		q := &p.Profiles[i]
		memory := int64(q.Memory)
		out.Profiles = append(out.Profiles, profileText{
			Name: q.Name, Memory: &memory, Compute: &q.Compute, Size: &q.Size,
			Starts: append([]int{}, q.Starts...), Max: q.Max,
		})
	}
	for _, g := range p.Geometries {
		text := geometryText{Name: g.Name, Entries: []entryText{}}
		for _, e := range g.Entries {
			memory, count := int64(e.Memory), e.Count
			text.Entries = append(text.Entries, entryText{Profile: e.Profile, Memory: &memory, Count: &count})
		}
		out.Geometries = append(out.Geometries, text)
	}
	if p.Policy != sharing.FirstMatch {
		out.Policy = p.Policy.String()
	}
	return out
}

func partitioningIn(f *firstError, path string, in *partitioningText) *sharing.Partitioning {
	p := &sharing.Partitioning{Slices: requireNumber(f, path+".slices", in.Slices, 1, maxSlices)}
	if len(in.Profiles) > maxProfiles {
		f.failf(path+".profiles", "there are %d, want at most %d", len(in.Profiles), maxProfiles)
	}
	if len(in.Geometries) > MaxGeometries {
		f.failf(path+".geometries", "there are %d, want at most %d", len(in.Geometries), MaxGeometries)
	}
	names := map[string]struct{}{}
	for i := range in.Profiles {
		below := path + ".profiles[" + strconv.Itoa(i) + "]"
		q := profileIn(f, below, &in.Profiles[i], p.Slices)
		if _, twice := names[q.Name]; twice {
			f.failf(below+".name", "%s is there twice", q.Name)
		}
		names[q.Name] = struct{}{}
		p.Profiles = append(p.Profiles, q)
	}
	groups := map[string]struct{}{}
	for i := range in.Geometries {
		below := path + ".geometries[" + strconv.Itoa(i) + "]"
		g := geometryIn(f, below, &in.Geometries[i])
		if _, twice := groups[g.Name]; twice {
			f.failf(below+".name", "%s is there twice", g.Name)
		}
		groups[g.Name] = struct{}{}
		p.Geometries = append(p.Geometries, g)
	}
	if in.Policy != "" {
		policy, err := sharing.ParsePartitionPolicy(in.Policy)
		if err != nil {
			f.failf(path+".policy", "%v", err)
		}
		p.Policy = policy
	}
	return p
}

func profileIn(f *firstError, path string, in *profileText, slices int) sharing.Profile {
	if !validProfile(in.Name) {
		f.failf(path+".name", "%s is not a profile name", quoteExcerpt(in.Name))
	}
	q := sharing.Profile{
		Name:    in.Name,
		Memory:  sharing.Bytes(requireNumber(f, path+".memory", in.Memory, 1, int64(sharing.MaxBytes))),
		Compute: requireNumber(f, path+".compute", in.Compute, 0, maxSlices),
		Size:    requireNumber(f, path+".size", in.Size, 1, max(slices, 1)),
		Max:     requireNumber(f, path+".max", &in.Max, 0, maxSlices),
	}
	for i, start := range in.Starts {
		below := path + ".starts[" + strconv.Itoa(i) + "]"
		q.Starts = append(q.Starts, requireNumber(f, below, &start, 0, slices-q.Size))
		if i > 0 && start <= in.Starts[i-1] {
			f.failf(below, "%d follows %d, want ascending and none twice", start, in.Starts[i-1])
		}
	}
	return q
}

func geometryIn(f *firstError, path string, in *geometryText) sharing.Geometry {
	if !ValidGroup(in.Name) {
		f.failf(path+".name", "%s is not a group name: letters, digits, '_', '.' and '/' only", quoteExcerpt(in.Name))
	}
	g := sharing.Geometry{Name: in.Name}
	total := 0
	for i := range in.Entries {
		e := &in.Entries[i]
		below := path + ".entries[" + strconv.Itoa(i) + "]"
		if !validProfile(e.Profile) {
			f.failf(below+".profile", "%s is not a profile name", quoteExcerpt(e.Profile))
		}
		count := requireNumber(f, below+".count", e.Count, 1, maxCount)
		if total += count; total > maxCount {
			f.failf(below+".count", "the geometry has more than %d partitions", maxCount)
		}
		g.Entries = append(g.Entries, sharing.GeometryEntry{
			Profile: e.Profile,
			Memory:  sharing.Bytes(requireNumber(f, below+".memory", e.Memory, 1, int64(sharing.MaxBytes))),
			Count:   count,
		})
	}
	return g
}

// validProfile reports whether s can name a profile, such as 1g.10gb+me.
func validProfile(s string) bool { return validID(strings.ReplaceAll(s, "+", "_")) }
