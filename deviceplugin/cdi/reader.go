// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
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
	dir     string
	reading sync.Mutex         // one look at a time
	next    singleflight.Group // the look that has not begun
}

// readings is for how many looks at all specifications a start waits: the runtime may have one
// under way that misses the new specification, then comes the one that finds it. It is to have as
// much time again, since it shares the processors with others.
const readings = 3

// NewReader returns a reader of a directory.
func NewReader(dir string) *Reader { return &Reader{dir: dir} }

// Await waits until a container runtime has surely seen what was written before: for the given
// time, and longer where a look at all specifications takes long.
func (r *Reader) Await(ctx context.Context, least time.Duration) error {
	begin := time.Now()
	var wait time.Duration
	select {
	case <-ctx.Done():
		return fmt.Errorf("read all CDI specifications: %w", ctx.Err())
	case look := <-r.measureRead():
		if look.Err != nil {
			return fmt.Errorf("read all CDI specifications: %w", look.Err)
		}
		wait = max(least, readings*look.Val.(time.Duration))
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("wait for the container runtime: %w", ctx.Err())
	case <-time.After(wait - time.Since(begin)):
		return nil
	}
}

// measureRead looks at all specifications, and tells how long it took. The look begins after the
// call. Calls that come while it has not begun share it.
func (r *Reader) measureRead() <-chan singleflight.Result {
	return r.next.DoChan("", func() (any, error) {
		r.reading.Lock()
		defer r.reading.Unlock()
		r.next.Forget("") // who writes from here on may be missed by this look
		begin := time.Now()
		// What is wrong with a specification is told to the container that it is for.
		_, err := cdi.NewCache(cdi.WithSpecDirs(r.dir), cdi.WithAutoRefresh(false))
		return time.Since(begin), err
	})
}
