// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/sharingtest"
)

// counted explores every legal state of a device, where partitions are cut one by
// one. It returns how many states there are, how many of them take no further
// partition, and how many multisets of profiles they are.
func counted(p *sharing.Partitioning, names ...string) (states, maximal, multisets int) {
	seen, sets := map[string]bool{}, map[string]bool{}
	var grow func(parts []string, taken uint64)
	grow = func(parts []string, taken uint64) {
		sorted := slices.Sorted(slices.Values(parts))
		key := strings.Join(sorted, " ")
		if seen[key] {
			return
		}
		seen[key] = true
		var profiles []string
		for _, part := range sorted {
			name, _, _ := strings.Cut(part, "@")
			profiles = append(profiles, name)
		}
		more := false
		for i := range p.Profiles {
			f := &p.Profiles[i]
			if !slices.Contains(names, f.Name) {
				continue
			}
			for _, start := range f.Starts {
				if span, ok := spanOf(p, f, start); ok && span&taken == 0 {
					more = true
					grow(append(slices.Clone(parts), fmt.Sprintf("%s@%d", f.Name, start)), taken|span)
				}
			}
		}
		if !more {
			maximal++
		}
		sets[strings.Join(profiles, " ")] = true
	}
	grow(nil, 0)
	return len(seen), maximal, len(sets)
}

// NVIDIA's MIG user guide lists 19 complete configurations of an A100 with the
// five basic profiles and 5 of an A30; the other numbers were counted from the
// same places by an independent program.
func TestTheLegalPlacesGiveTheKnownNumberOfLayouts(t *testing.T) {
	cases := []struct {
		model                      string
		profiles                   string
		states, maximal, multisets int
	}{
		{"A100-80", "1g.10gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb", 298, 19, 38},
		{"A100-80", "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb", 723, 78, 78},
		{"A100-40", "1g.5gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb", 298, 19, 38},
		{"H100", "1g.10gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb", 298, 19, 38},
		{"H200", "1g.18gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb", 298, 19, 38},
		{"B200", "1g.23gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb", 298, 19, 38},
		{"A30", "1g.6gb 2g.12gb 4g.24gb", 26, 5, 10},
	}
	for _, c := range cases {
		t.Run(c.model+" "+c.profiles, func(t *testing.T) {
			states, maximal, multisets := counted(sharingtest.Models()[c.model].MIG, strings.Fields(c.profiles)...)
			if states != c.states || maximal != c.maximal || multisets != c.multisets {
				t.Errorf("%d states, %d maximal, %d multisets; want %d, %d, %d",
					states, maximal, multisets, c.states, c.maximal, c.multisets)
			}
		})
	}
}

// multiset makes a geometry of how many of each profile.
func multiset(p *sharing.Partitioning, counts []int) *sharing.Geometry {
	g := &sharing.Geometry{Name: "g"}
	for i, n := range counts {
		g.Entries = append(g.Entries, sharing.GeometryEntry{Profile: p.Profiles[i].Name, Count: n})
	}
	return g
}

// fitsSomehow tries every way to place a multiset.
func fitsSomehow(p *sharing.Partitioning, counts []int, taken uint64) bool {
	for i, n := range counts {
		if n == 0 {
			continue
		}
		rest := slices.Clone(counts)
		rest[i]--
		for _, start := range p.Profiles[i].Starts {
			if span, ok := spanOf(p, &p.Profiles[i], start); ok && span&taken == 0 && fitsSomehow(p, rest, taken|span) {
				return true
			}
		}
		return false
	}
	return true
}

// A geometry is laid out exactly if its partitions can exist together: all
// multisets of the profiles are tried.
func TestLayoutFindsAPlaceForEveryPossibleGeometryAndNoOther(t *testing.T) {
	for _, model := range []string{"A30", "A100-80"} {
		p := *sharingtest.Models()[model].MIG
		p.Profiles = slices.DeleteFunc(slices.Clone(p.Profiles), func(f sharing.Profile) bool { return strings.Contains(f.Name, "+") })
		counts := make([]int, len(p.Profiles))
		tried, possible := 0, 0
		for {
			k := 0
			for k < len(counts) && counts[k] == min(p.Profiles[k].Max, 4) {
				counts[k] = 0
				k++
			}
			if k == len(counts) {
				break
			}
			counts[k]++
			tried++
			parts, err := Layout(&p, multiset(&p, counts))
			want := fitsSomehow(&p, counts, 0)
			if (err == nil) != want {
				t.Fatalf("%s %v: %v, but possible is %v", model, counts, err, want)
			}
			if err != nil {
				continue
			}
			possible++
			checkParts(t, &p, parts)
		}
		if possible < 9 || possible == tried {
			t.Errorf("%s: %d of %d geometries are possible", model, possible, tried)
		}
	}
}

// checkParts: partitions lie on legal starts, apart, and are numbered as written.
func checkParts(t *testing.T, p *sharing.Partitioning, parts []sharing.Partition) {
	t.Helper()
	last := 0
	for i, part := range parts {
		f := findProfile(p, part.Profile)
		if f < last || part.Position != i {
			t.Fatalf("position %d of %+v is not in the order of the geometry", i, parts)
		}
		last = f
		if !slices.Contains(p.Profiles[f].Starts, part.Start) || part.Size != p.Profiles[f].Size {
			t.Fatalf("%+v is not a legal place", part)
		}
		for _, other := range parts[:i] {
			if part.Overlaps(other) {
				t.Fatalf("%+v and %+v overlap", part, other)
			}
		}
	}
}

func TestPositionsAreInTheOrderWrittenAndStartsLargestFirst(t *testing.T) {
	p := sharingtest.Models()["A100-80"].MIG
	g := &sharing.Geometry{Name: "mixed", Entries: []sharing.GeometryEntry{
		{Profile: "1g.10gb", Count: 2}, {Profile: "3g.40gb", Count: 1}, {Profile: "1g.20gb", Count: 1},
	}}
	parts, err := Layout(p, g)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, part := range parts {
		got = append(got, fmt.Sprintf("%d:%s@%d", part.Position, part.Profile, part.Start))
	}
	// The 3g takes the first half. The double slice would go to 4, but then the
	// second 1g had only slice 7, where none may start.
	if want := "0:1g.10gb@4 1:1g.10gb@5 2:3g.40gb@0 3:1g.20gb@6"; strings.Join(got, " ") != want {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// Of one size the profile with more compute has fewer starts.
func TestTheLargestPartitionIsLaidOutFirst(t *testing.T) {
	p := sharingtest.Models()["A100-80"].MIG
	for want, names := range map[string][2]string{
		"1g.20gb@2 2g.20gb@0": {"1g.20gb", "2g.20gb"},
		"2g.20gb@0 1g.20gb@2": {"2g.20gb", "1g.20gb"},
		"1g.10gb@2 1g.20gb@0": {"1g.10gb", "1g.20gb"},
		"3g.40gb@4 4g.40gb@0": {"3g.40gb", "4g.40gb"},
	} {
		parts, err := Layout(p, &sharing.Geometry{Name: "g", Entries: []sharing.GeometryEntry{{Profile: names[0], Count: 1}, {Profile: names[1], Count: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%s@%d %s@%d", parts[0].Profile, parts[0].Start, parts[1].Profile, parts[1].Start); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestAGeometryHasAsManyPartitionsAsAreKept(t *testing.T) {
	one := sharing.Profile{Name: "one", Compute: 1, Size: 1}
	for start := range 64 {
		one.Starts = append(one.Starts, start)
	}
	p := &sharing.Partitioning{Slices: 64, Profiles: []sharing.Profile{one, {Name: "none", Starts: []int{0}}}}
	for counts, want := range map[[2]int]string{{64, 0}: "", {60, 4}: "", {65, 0}: "count", {60, 5}: "count"} {
		g := &sharing.Geometry{Name: "g", Entries: []sharing.GeometryEntry{{Profile: "one", Count: counts[0]}, {Profile: "one", Count: counts[1]}}}
		if parts, err := Layout(p, g); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %d partitions, %v", counts, len(parts), err)
		}
	}
	g := &sharing.Geometry{Name: "g", Entries: []sharing.GeometryEntry{{Profile: "none", Count: 1}}}
	if _, err := Layout(p, g); err == nil || !strings.Contains(err.Error(), "without memory slices") {
		t.Errorf("%v", err)
	}
}

func TestAnImpossibleGeometrySaysWhy(t *testing.T) {
	p := sharingtest.Models()["A100-80"].MIG
	many := &sharing.Geometry{Name: "g"}
	for range 40 {
		many.Entries = append(many.Entries, sharing.GeometryEntry{Profile: "1g.10gb", Count: 2})
	}
	cases := map[string]struct {
		g    *sharing.Geometry
		says string
	}{
		"unknown profile":      {&sharing.Geometry{Name: "g", Entries: []sharing.GeometryEntry{{Profile: "1g.5gb", Count: 1}}}, "does not have"},
		"nothing":              {&sharing.Geometry{Name: "g"}, "no partitions"},
		"only zero":            {&sharing.Geometry{Name: "g", Entries: []sharing.GeometryEntry{{Profile: "1g.10gb"}}}, "no partitions"},
		"too many of one":      {&sharing.Geometry{Name: "g", Entries: []sharing.GeometryEntry{{Profile: "1g.10gb", Count: 8}}}, "allows"},
		"too many in pieces":   {many, "allows"},
		"absurd count":         {&sharing.Geometry{Name: "g", Entries: []sharing.GeometryEntry{{Profile: "1g.10gb", Count: 1 << 40}}}, "count"},
		"negative count":       {&sharing.Geometry{Name: "g", Entries: []sharing.GeometryEntry{{Profile: "1g.10gb", Count: -1}}}, "count"},
		"not at the same time": {&sharing.Geometry{Name: "g", Entries: []sharing.GeometryEntry{{Profile: "4g.40gb", Count: 1}, {Profile: "3g.40gb", Count: 2}}}, "together"},
		"two with media":       {&sharing.Geometry{Name: "g", Entries: []sharing.GeometryEntry{{Profile: "1g.10gb+me", Count: 2}}}, "allows"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Layout(p, c.g)
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), `"g"`) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A made-up device on which nothing fits must be given up soon.
func TestAHopelessLayoutIsGivenUp(t *testing.T) {
	p := &sharing.Partitioning{Slices: 64}
	g := &sharing.Geometry{Name: "g"}
	for i := range 16 {
		f := sharing.Profile{Name: fmt.Sprint(i), Compute: 1, Size: 4}
		for start := range 59 {
			f.Starts = append(f.Starts, start+1)
		}
		p.Profiles = append(p.Profiles, f)
		g.Entries = append(g.Entries, sharing.GeometryEntry{Profile: f.Name, Count: 1})
	}
	var s sketch
	if problem := s.buildLayout(p, g); problem == "" || s.tries > maxTries+maxInstances {
		t.Errorf("%q after %d tries", problem, s.tries)
	}
}
