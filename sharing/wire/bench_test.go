// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"testing"

	"deviceshare/sharing/wire"
)

// The scheduler reads every pod's placement once after its start.
func BenchmarkReadPlacement(b *testing.B) {
	inv := node1()
	a, err := wire.PlacementAnnotations(pod1(), 1, 1)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, found, err := wire.ReadPlacement(a, nil, &inv, 1); err != nil || !found {
			b.Fatal(found, err)
		}
	}
}

// The scheduler writes this for every pod it places.
func BenchmarkPlacementAnnotations(b *testing.B) {
	p := pod1()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.PlacementAnnotations(p, 1, 1); err != nil {
			b.Fatal(err)
		}
	}
}
