// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"testing"
)

// BenchmarkDecide has 1,000 pods of 20 shapes wait in a cluster of 5,000 nodes that seem to have
// room and have none.
func BenchmarkDecide(b *testing.B) {
	kinds := []NodeType{typeOf(b, "eight", cards("a", 8)), typeOf(b, "one", cards("b", 1))}
	var waiting []Waiting
	for i := range 1000 {
		waiting = append(waiting, pod(b, fmt.Sprint("p", i), 1+int64(i%4), int64(20+i%5)*2*gib, 0))
	}
	var there []Seen
	for i := range 5000 {
		n := seen(b, "eight", cards(fmt.Sprint("n", i), 8))
		n.Idle = Amounts{}
		there = append(there, n)
	}
	q := question(waiting, kinds, there...)
	for b.Loop() {
		if a := Decide(q); len(a.Wishes) == 0 {
			b.Fatal("no node is asked for")
		}
	}
}
