// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestOneKeyIsHeldByOneAtATime(t *testing.T) {
	var l KeyedLock
	var wait sync.WaitGroup
	inside := map[string]int{} // the locks guard it; -race tells if they do not
	for i := range 200 {
		wait.Go(func() {
			keys := []string{"a", "b"}
			if i%2 == 0 {
				keys = []string{"b", "a", "a"} // the other way round, and one twice
			}
			unlock := l.lockKeys(keys...)
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
	var l KeyedLock
	unlock := l.lockKeys("a")
	l.lockKeys("b")() // would hang
	unlock()
	l.lockKeys()()
}

func TestWhoGivesUpWaitingHoldsNothing(t *testing.T) {
	var l KeyedLock
	unlock := l.lockKeys("b")
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.LockContext(ctx, "a", "b", "c"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "b") {
		t.Errorf("the error is %v", err)
	}
	l.lockKeys("a", "c")() // would hang
	unlock()
	got, err := l.LockContext(context.Background(), "a", "b", "c")
	if err != nil {
		t.Fatal(err)
	}
	got()
	if len(l.held) != 0 {
		t.Errorf("%d locks are left that nobody holds", len(l.held))
	}
}

func TestWhoIsPatientWaitsForManyInTurnButNotForOneThatStays(t *testing.T) {
	const patience = 5 * time.Second
	synctest.Test(t, func(t *testing.T) {
		var l KeyedLock
		begin, queue := time.Now(), l.lockKeys("a")
		for range 8 {
			go func() {
				give := l.lockKeys("a")
				time.Sleep(patience - time.Second)
				give()
			}()
		}
		synctest.Wait() // they are in the queue
		go queue()
		give, err := l.LockWithPatience(t.Context(), patience, "a")
		if err != nil {
			t.Fatalf("gave up after %s in a queue that moves: %v", time.Since(begin), err)
		}
		if time.Since(begin) <= patience {
			t.Errorf("it came first, after %s", time.Since(begin))
		}
		give()

		defer l.lockKeys("b")()
		begin = time.Now()
		_, err = l.LockWithPatience(t.Context(), patience, "a", "b")
		if !errors.Is(err, errStuck) || !strings.Contains(err.Error(), "lock b: no holder has released it for 5s") || time.Since(begin) != patience {
			t.Errorf("after %s the error is %v", time.Since(begin), err)
		}
		l.lockKeys("a")() // would hang
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.LockWithPatience(ctx, time.Minute, "b"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v", err)
		}
	})
}
