// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// arrivals are pods that come and go all the time while a suite does something to the cluster.
type arrivals struct {
	t     *testing.T
	ctx   context.Context
	stop  context.CancelFunc
	lanes sync.WaitGroup
	done  atomic.Int64
}

// arrive starts so many lanes, in each of which pod is called again and again until end. It lets
// one pod come and go and reports whether it did what it came for; one that did not ends its lane.
func arrive(ctx context.Context, t *testing.T, lanes int, pod func(ctx context.Context, lane, n int) bool) *arrivals {
	coming, stop := context.WithCancel(ctx)
	a := &arrivals{t: t, ctx: ctx, stop: stop}
	for lane := range lanes {
		a.lanes.Go(func() {
			for n := 0; coming.Err() == nil && pod(ctx, lane, n); n++ {
				a.done.Add(1)
			}
		})
	}
	return a
}

// until waits until so many pods have done what they came for.
func (a *arrivals) until(n int64) {
	for a.done.Load() < n && a.ctx.Err() == nil && !a.t.Failed() {
		sleep(a.ctx, 50*time.Millisecond)
	}
}

// end lets the pods that are there finish, and returns how many did what they came for.
func (a *arrivals) end() int64 {
	a.stop()
	a.lanes.Wait()
	return a.done.Load()
}
