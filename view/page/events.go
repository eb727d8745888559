// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	// beat is how often a viewer hears that it is still connected, longestStream after how long it
	// has to ask again: a right that was taken away ends then.
	beat, longestStream = 15 * time.Second, 2 * time.Minute
	// patience is how long a viewer may take to read one event.
	patience = 10 * time.Second
)

// viewers are those who want to know that the cluster has changed. Safe for concurrent use.
type viewers struct {
	mu      sync.Mutex
	changed chan struct{}
}

func newViewers() *viewers { return &viewers{changed: make(chan struct{})} }

func (v *viewers) wakeAll() {
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.changed)
	v.changed = make(chan struct{})
}

// nextChange is closed by the next change.
func (v *viewers) nextChange() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.changed
}

// Events serves the stream of changes as server-sent events: "change" with the version of the
// state. What has changed the page asks for itself, as much of it as it shows. A viewer that is
// slow misses versions and never the last one.
func (s *Server) Events() http.Handler { return withSecurityHeaders(http.HandlerFunc(s.serveEvents)) }

func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	// The bounds of a usual request would end the stream; those of one event take their place. Not
	// every writer has them.
	_ = out.SetReadDeadline(time.Time{})
	send := func(format string, args ...any) bool {
		_ = out.SetWriteDeadline(s.clock.Now().Add(patience))
		_, err := fmt.Fprintf(w, format, args...)
		return err == nil && out.Flush() == nil
	}
	end, beats := s.clock.After(longestStream), s.clock.NewTicker(beat)
	defer beats.Stop()
	for last := int64(0); ; {
		next := s.viewers.nextChange()
		if now := s.currentSnapshot().version; now != last {
			if last = now; !send("retry: 1000\nevent: change\ndata: %d\n\n", now) {
				return
			}
			continue
		}
		select {
		case <-r.Context().Done():
			return
		case <-end:
			return
		case <-beats.C():
			if !send("event: beat\ndata: %q\n\n", s.source.Trouble()) {
				return
			}
		case <-next:
		}
	}
}
