// SPDX-License-Identifier: Apache-2.0

package mignode

import (
	"context"
	"fmt"
	"sync"

	"deviceshare/sharing"
)

// seats gives everybody who works on a device a turn, one at a time: what is made
// on one part of a device depends on what is on the others. The zero value is
// ready.
type seats struct {
	mu  sync.Mutex
	all map[sharing.DeviceID]*seat
}

// seat is one device's turn.
type seat struct {
	turn chan struct{} // holds a token while somebody works
	// freed is closed, and replaced, when something is given up. It belongs to who
	// has the turn.
	freed chan struct{}
}

// take waits for the turn of a device, but not longer than ctx.
func (s *seats) take(ctx context.Context, id sharing.DeviceID) (*seat, error) {
	s.mu.Lock()
	if s.all == nil {
		s.all = map[sharing.DeviceID]*seat{}
	}
	x, ok := s.all[id]
	if !ok {
		x = &seat{turn: make(chan struct{}, 1), freed: make(chan struct{})}
		s.all[id] = x
	}
	s.mu.Unlock()
	select {
	case x.turn <- struct{}{}:
		return x, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for others that work on device %s: %w", id, ctx.Err())
	}
}

// give ends the turn.
func (x *seat) give() { <-x.turn }

// free tells who waits for a place that one may be free. The caller has the turn.
func (x *seat) free() {
	close(x.freed)
	x.freed = make(chan struct{})
}
