// SPDX-License-Identifier: Apache-2.0

package mignode

import (
	"context"
	"fmt"
	"sync"

	"deviceshare/sharing"
)

// seats serializes the work on each device: which instances can be made on one part of a
// device depends on the other parts. The zero value is ready.
type seats struct {
	mu  sync.Mutex
	all map[sharing.DeviceID]*seat
}

// seat is the lock of one device.
type seat struct {
	turn chan struct{} // holds a token while somebody works
	// freed is closed, and replaced, when something on the device is released. It is
	// guarded by turn.
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

// free wakes everybody who waits for a place on the device. The caller has the turn.
func (x *seat) free() {
	close(x.freed)
	x.freed = make(chan struct{})
}
