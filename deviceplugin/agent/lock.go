// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// errStuck says that a lock was not released for longer than a caller has patience.
var errStuck = errors.New("no holder has released it")

// KeyedLock is one lock per key that exists only while somebody holds or awaits
// it. The ids of devices are locked by whoever decides on the strength of what is on
// them: the start of a container from its checks to its record, and a mode change
// from looking for holders to the state that says that the device is changing. The
// zero value is ready. It is safe for concurrent use and must not be copied.
type KeyedLock struct {
	mu   sync.Mutex
	held map[string]*keyedLock
}

type keyedLock struct {
	turn  chan struct{} // holds a token while somebody has the lock
	users int
	given int // how many times it was released
}

// lockKeys takes the locks of all keys and returns how to release them. It waits for as
// long as it takes; whoever can be told to stop uses LockContext.
func (l *KeyedLock) lockKeys(keys ...string) (unlock func()) {
	// Without an end to the waiting there is no error.
	unlock, _ = l.LockContext(context.Background(), keys...)
	return unlock
}

// LockContext takes the locks of all keys and returns how to release them. It is an
// error when ctx ends before; then none is held, and unlock is nil. Keys are taken
// in one order whatever the order they are given in, so that two callers with
// several keys cannot wait for each other.
func (l *KeyedLock) LockContext(ctx context.Context, keys ...string) (unlock func(), err error) {
	return l.lockAll(ctx, 0, keys)
}

// LockWithPatience is like LockContext, but fails if no holder has
// released a lock for the given duration. Long queues are fine as long as they move.
func (l *KeyedLock) LockWithPatience(ctx context.Context, patience time.Duration, keys ...string) (unlock func(), err error) {
	return l.lockAll(ctx, patience, keys)
}

func (l *KeyedLock) lockAll(ctx context.Context, patience time.Duration, keys []string) (unlock func(), err error) {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	give := func(keys []string) {
		for _, key := range keys {
			l.unlockKey(key)
		}
	}
	for i, key := range keys {
		if err := l.lockKey(ctx, patience, key); err != nil {
			give(keys[:i])
			return nil, fmt.Errorf("lock %s: %w", key, err)
		}
	}
	return func() { give(keys) }, nil
}

func (l *KeyedLock) lockKey(ctx context.Context, patience time.Duration, key string) error {
	k, given := l.addUser(key)
	var stuck <-chan time.Time
	for {
		if patience > 0 {
			stuck = time.After(patience)
		}
		select {
		case k.turn <- struct{}{}:
			return nil
		case <-ctx.Done():
			l.removeUser(key)
			return ctx.Err()
		case <-stuck:
		}
		now := l.unlockCount(k)
		if now == given {
			l.removeUser(key)
			return fmt.Errorf("%w for %s", errStuck, patience)
		}
		given = now
	}
}

// addUser makes the caller a user of a lock, which it need not have got yet.
func (l *KeyedLock) addUser(key string) (k *keyedLock, given int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[string]*keyedLock{}
	}
	k, ok := l.held[key]
	if !ok {
		k = &keyedLock{turn: make(chan struct{}, 1)}
		l.held[key] = k
	}
	k.users++
	return k, k.given
}

func (l *KeyedLock) unlockCount(k *keyedLock) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return k.given
}

func (l *KeyedLock) unlockKey(key string) {
	l.mu.Lock()
	<-l.held[key].turn
	l.held[key].given++
	l.mu.Unlock()
	l.removeUser(key)
}

func (l *KeyedLock) removeUser(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.held[key]
	if k.users--; k.users == 0 {
		delete(l.held, key)
	}
}
