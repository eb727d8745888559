// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"fmt"
	"strings"
)

// Partitioning is what a device allows in mode mig.
type Partitioning struct {
	// Slices is the number of memory slices: 8 on an A100, 4 on an A30.
	Slices int
	// Profiles are the shapes the driver offers, with where they may start.
	Profiles []Profile
	// Geometries are the groups the administrator allows, in order. Empty means
	// any legal layout of Profiles.
	Geometries []Geometry
	// Policy is how a partition is chosen among those allowed.
	Policy PartitionPolicy
}

// hasSlicesOf reports whether a partition lies on the memory slices of the device.
func (p *Partitioning) hasSlicesOf(q Partition) bool {
	return q.Start >= 0 && q.Size > 0 && q.Size <= p.Slices && q.Start <= p.Slices-q.Size
}

// Profile is a partition shape and its legal places, as the driver reports them.
type Profile struct {
	Name    string // "1g.10gb"
	Memory  Bytes
	Compute int   // compute slices: the 1 of 1g
	Size    int   // memory slices it covers
	Starts  []int // memory slices at which it may begin, ascending
	Max     int   // how many fit at most; 0 means as many as there are places
}

// Given returns the memory that a partition of the profile has: what the driver says, and what is
// listed if it does not.
func (p *Profile) Given(listed Bytes) Bytes {
	if p.Memory > 0 {
		return p.Memory
	}
	return listed
}

// Nominal returns up to how much memory a partition of the profile may be asked for: what it has,
// or what people call it, if that is more. Hardware keeps some memory back, so a 1g.5gb has 4864
// MiB and is asked for with 5120. People call it by the GiB in its name, or by what the
// administrator listed; 0 is not listed. The name is rounded to whole GiB, so a listed amount of a
// GiB more is a mistake and does not count.
func (p *Profile) Nominal(listed Bytes) Bytes {
	name := namedMemory(p.Name)
	nominal := max(p.Given(listed), name)
	if name > 0 && listed < name+GiB {
		nominal = max(nominal, listed)
	}
	return nominal
}

// Nominal returns the most that a partition of a profile may be asked for in any geometry.
func (p *Partitioning) Nominal(f *Profile) Bytes {
	most := f.Nominal(0)
	for i := range p.Geometries {
		for _, e := range p.Geometries[i].Entries {
			if e.Profile == f.Name {
				most = max(most, f.Nominal(e.Memory))
			}
		}
	}
	return most
}

// namedMemory returns the memory in the name of a profile, 5 GiB of 1g.5gb+me; 0 if it has none.
func namedMemory(name string) Bytes {
	_, size, _ := strings.Cut(name, ".")
	digits := 0
	gib := Bytes(0)
	for digits < len(size) && digits < 6 && size[digits] >= '0' && size[digits] <= '9' {
		gib = 10*gib + Bytes(size[digits]-'0')
		digits++
	}
	if !strings.HasPrefix(size[digits:], "gb") {
		return 0
	}
	return gib * GiB
}

// Geometry is a named group of partitions that exist together on one device.
type Geometry struct {
	Name    string // must not contain '-', '[' or ']': it is part of a wire id
	Entries []GeometryEntry
}

// GeometryEntry is Count partitions of one profile.
type GeometryEntry struct {
	Profile string
	Memory  Bytes
	Count   int
}

// PartitionPolicy is how a partition is chosen among those a device allows. The
// zero value is FirstMatch, the legacy behaviour.
type PartitionPolicy uint8

const (
	// FirstMatch takes the first group, in the order of the administrator, that
	// can still hold the request.
	FirstMatch PartitionPolicy = iota
	// BestFit takes the device, the group, the profile and the place that leave
	// most room for later requests.
	BestFit
)

// PartitionPolicies returns every policy, the default first.
func PartitionPolicies() []PartitionPolicy { return []PartitionPolicy{FirstMatch, BestFit} }

// String is the text of the policy in files and annotations.
func (p PartitionPolicy) String() string {
	switch p {
	case FirstMatch:
		return "first-match"
	case BestFit:
		return "best-fit"
	}
	return fmt.Sprintf("policy %d", uint8(p))
}

// ParsePartitionPolicy reads one policy exactly.
func ParsePartitionPolicy(s string) (PartitionPolicy, error) {
	names := make([]string, 0, len(PartitionPolicies()))
	for _, p := range PartitionPolicies() {
		if s == p.String() {
			return p, nil
		}
		names = append(names, p.String())
	}
	return FirstMatch, fmt.Errorf("unknown policy %q: want one of %s", s, strings.Join(names, ", "))
}
