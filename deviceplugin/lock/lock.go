// SPDX-License-Identifier: Apache-2.0

// Package lock holds one lock per name. The names of devices are locked by
// whoever decides on the strength of what is on them: the start of a container
// between its checks and its record, and a change of mode between looking for
// records and telling that the device is changing.
package lock

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Keyed is one lock per key that exists only while somebody holds or awaits it.
// The zero value is ready. It is safe for concurrent use and must not be copied.
type Keyed struct {
	mu   sync.Mutex
	held map[string]*keyedLock
}

type keyedLock struct {
	turn  chan struct{} // holds a token while somebody has the lock
	users int
}

// Lock takes the locks of all keys and returns how to give them back. It waits for
// as long as it takes; whoever can be told to stop uses Within.
func (l *Keyed) Lock(keys ...string) (unlock func()) {
	// Without an end to the waiting there is no error.
	unlock, _ = l.Within(context.Background(), keys...)
	return unlock
}

// Within takes the locks of all keys and returns how to give them back. It is an
// error when ctx ends before; then none is held, and unlock is nil. Keys are taken
// in one order whatever the order they are given in, so that two callers with
// several keys cannot wait for each other.
func (l *Keyed) Within(ctx context.Context, keys ...string) (unlock func(), err error) {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	give := func(keys []string) {
		for _, key := range keys {
			l.give(key)
		}
	}
	for i, key := range keys {
		if err := l.take(ctx, key); err != nil {
			give(keys[:i])
			return nil, fmt.Errorf("wait for whoever works on %s: %w", key, err)
		}
	}
	return func() { give(keys) }, nil
}

func (l *Keyed) take(ctx context.Context, key string) error {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*keyedLock{}
	}
	k, ok := l.held[key]
	if !ok {
		k = &keyedLock{turn: make(chan struct{}, 1)}
		l.held[key] = k
	}
	k.users++
	l.mu.Unlock()
	select {
	case k.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		l.leave(key)
		return ctx.Err()
	}
}

func (l *Keyed) give(key string) {
	l.mu.Lock()
	<-l.held[key].turn
	l.mu.Unlock()
	l.leave(key)
}

// leave takes one user off a lock.
func (l *Keyed) leave(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.held[key]
	if k.users--; k.users == 0 {
		delete(l.held, key)
	}
}
