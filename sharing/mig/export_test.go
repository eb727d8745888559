// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"fmt"

	"deviceshare/sharing"
)

// Layout says where each partition of a geometry lies; the index is the
// position. Every side that lays out the same geometry on the same device gets
// the same result. It is an error if the geometry names a profile the device
// does not have, or if its partitions cannot exist together.
func Layout(p *sharing.Partitioning, g *sharing.Geometry) ([]sharing.Partition, error) {
	var s sketch
	if problem := s.buildLayout(p, g); problem != "" {
		return nil, fmt.Errorf("lay out geometry %q: %s", g.Name, problem)
	}
	parts := make([]sharing.Partition, s.n)
	for i := range parts {
		parts[i] = s.at[i].asPartition(p, g, i)
	}
	return parts, nil
}
