// SPDX-License-Identifier: Apache-2.0

package lock

import (
	"sync"
	"testing"
)

func TestOneKeyIsHeldByOneAtATime(t *testing.T) {
	var l Keyed
	var wait sync.WaitGroup
	inside := map[string]int{} // the locks guard it; -race tells if they do not
	for i := range 200 {
		wait.Go(func() {
			keys := []string{"a", "b"}
			if i%2 == 0 {
				keys = []string{"b", "a", "a"} // the other way round, and one twice
			}
			unlock := l.Lock(keys...)
			inside["a and b"]++
			unlock()
		})
	}
	wait.Wait()
	if inside["a and b"] != 200 {
		t.Errorf("%d were inside", inside["a and b"])
	}
	if len(l.held) != 0 {
		t.Errorf("%d locks are left that nobody holds", len(l.held))
	}
}

func TestDifferentKeysDoNotWaitForEachOther(t *testing.T) {
	var l Keyed
	unlock := l.Lock("a")
	l.Lock("b")() // would hang
	unlock()
	l.Lock()()
}
