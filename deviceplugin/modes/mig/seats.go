// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"context"
	"fmt"
	"sync"

	"deviceshare/sharing"
)

// deviceLocks serializes the work on each device: which instances can be made on one part of a
// device depends on the other parts. The zero value is ready.
type deviceLocks struct {
	mu  sync.Mutex
	all map[sharing.DeviceID]*deviceLock
}

// deviceLock is the lock of one device.
type deviceLock struct {
	turn chan struct{} // holds a token while somebody works
	// freed is closed, and replaced, when something on the device is released. It is
	// guarded by turn.
	freed chan struct{}
}

// lockDevice waits for the turn of a device, but not longer than ctx.
func (s *deviceLocks) lockDevice(ctx context.Context, id sharing.DeviceID) (*deviceLock, error) {
	s.mu.Lock()
	if s.all == nil {
		s.all = map[sharing.DeviceID]*deviceLock{}
	}
	x, ok := s.all[id]
	if !ok {
		x = &deviceLock{turn: make(chan struct{}, 1), freed: make(chan struct{})}
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

// unlockDevice ends the turn.
func (x *deviceLock) unlockDevice() { <-x.turn }

// wakeWaiters wakes everybody who waits for a place on the device. The caller has the turn.
func (x *deviceLock) wakeWaiters() {
	close(x.freed)
	x.freed = make(chan struct{})
}
