// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"context"
	"fmt"
	"sync"
	"time"

	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// Reader reads a directory of specifications as container runtimes do, to find out how long that
// takes here and now.
//
// A runtime reads all specifications anew after each change, one reading after the other, with the
// library that this package uses. So it knows a new one at the latest when the reading that was
// under way and the one after it are over, however many others change at that moment.
//
// It is safe for concurrent use.
type Reader struct {
	dir string

	reading sync.Mutex // one reading at a time
	mu      sync.Mutex
	next    *reading // the one that has not begun
}

// reading is one look at all specifications. The fields are set before done is closed.
type reading struct {
	took time.Duration
	err  error
	done chan struct{}
}

// NewReader returns a reader of a directory.
func NewReader(dir string) *Reader { return &Reader{dir: dir} }

// Read looks at all specifications, and returns how long it took. The look begins after the call;
// calls that come while it has not begun share it.
func (r *Reader) Read(ctx context.Context) (time.Duration, error) {
	r.mu.Lock()
	if r.next == nil {
		r.next = &reading{done: make(chan struct{})}
		go r.look(r.next)
	}
	now := r.next
	r.mu.Unlock()
	select {
	case <-now.done:
		return now.took, now.err
	case <-ctx.Done():
		return 0, fmt.Errorf("read all CDI specifications: %w", ctx.Err())
	}
}

func (r *Reader) look(now *reading) {
	defer close(now.done)
	r.reading.Lock()
	defer r.reading.Unlock()
	r.mu.Lock()
	r.next = nil // who writes from here on may be missed by this look
	r.mu.Unlock()
	begin := time.Now()
	// What is wrong with a specification is told to the container that it is for.
	_, now.err = cdi.NewCache(cdi.WithSpecDirs(r.dir), cdi.WithAutoRefresh(false))
	now.took = time.Since(begin)
}
