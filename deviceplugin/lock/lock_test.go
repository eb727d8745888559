// SPDX-License-Identifier: Apache-2.0

package lock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
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

func TestWhoGivesUpWaitingHoldsNothing(t *testing.T) {
	var l Keyed
	unlock := l.Lock("b")
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Within(ctx, "a", "b", "c"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "b") {
		t.Errorf("the error is %v", err)
	}
	l.Lock("a", "c")() // would hang
	unlock()
	got, err := l.Within(context.Background(), "a", "b", "c")
	if err != nil {
		t.Fatal(err)
	}
	got()
	if len(l.held) != 0 {
		t.Errorf("%d locks are left that nobody holds", len(l.held))
	}
}
