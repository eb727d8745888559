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

// contains reports whether a partition lies on the memory slices of the device.
func (p *Partitioning) contains(q Partition) bool {
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
