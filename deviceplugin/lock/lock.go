// SPDX-License-Identifier: Apache-2.0

// Package lock holds one lock per name. The names of devices are locked by
// whoever decides on the strength of what is on them: the start of a container
// between its checks and its record, and a change of mode between looking for
// records and telling that the device is changing.
package lock

import (
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
	mu    sync.Mutex
	users int
}

// Lock takes the locks of all keys and returns how to give them back. Keys are
// taken in one order whatever the order they are given in, so that two callers
// with several keys cannot wait for each other.
func (l *Keyed) Lock(keys ...string) (unlock func()) {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	for _, key := range keys {
		l.take(key)
	}
	return func() {
		for _, key := range keys {
			l.give(key)
		}
	}
}

func (l *Keyed) take(key string) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*keyedLock{}
	}
	k, ok := l.held[key]
	if !ok {
		k = &keyedLock{}
		l.held[key] = k
	}
	k.users++
	l.mu.Unlock()
	k.mu.Lock()
}

func (l *Keyed) give(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.held[key]
	k.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(l.held, key)
	}
}
