// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"embed"
	"io/fs"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"deviceshare/view/capture"
)

//go:embed assets
var assets embed.FS

// minPause is the shortest time between two readings of the cluster, and idle how many times as
// long as a reading the pause after it is: in a large cluster something always changes, and this
// program leaves the processor to others.
const (
	minPause    = 250 * time.Millisecond
	pauseFactor = 3
)

// Source is a cluster that changes.
type Source interface {
	// State is the cluster now. It is not changed afterwards.
	State() *capture.State
	// Changed receives when the state is another one than State has last returned. It is nil for a
	// state that never changes, which nobody has to follow.
	Changed() <-chan struct{}
	// Trouble is why what State returns may be old, "" if it is not.
	Trouble() string
}

// Server serves the page of one cluster. Safe for concurrent use.
type Server struct {
	clock   clock.WithTicker
	source  Source
	mux     *http.ServeMux
	viewers *viewers

	mu      sync.Mutex
	now     *snapshot
	history history
}

// New returns a server that has read the source once.
func New(source Source) *Server { return newServer(source, clock.RealClock{}) }

func newServer(source Source, c clock.WithTicker) *Server {
	s := &Server{clock: c, source: source, mux: http.NewServeMux(), viewers: newViewers()}
	s.readSource()
	s.recordSample()
	files, err := fs.Sub(assets, "assets")
	if err != nil {
		panic(err) // the directory is part of the program
	}
	s.mux.Handle("GET /", http.FileServerFS(files))
	s.mux.HandleFunc("GET /data/overview", s.serveOverview)
	s.mux.HandleFunc("GET /data/nodes", s.serveNodes)
	s.mux.HandleFunc("GET /data/waiting", s.serveWaiting)
	s.mux.HandleFunc("GET /data/history", s.serveHistory)
	return s
}

// Follow reads the source whenever it has changed, and keeps the time line, until ctx ends.
func (s *Server) Follow(ctx context.Context) {
	var parts sync.WaitGroup
	parts.Go(func() { s.keepTime(ctx) })
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-s.source.Changed():
			begun := s.clock.Now()
			s.readSource()
			pause := max(minPause, pauseFactor*s.clock.Since(begun))
			select {
			case <-ctx.Done():
			case <-s.clock.After(pause):
			}
		}
	}
	parts.Wait()
}

func (s *Server) readSource() {
	version := int64(1)
	if before := s.currentSnapshot(); before != nil {
		version = before.version + 1
	}
	now := newSnapshot(version, s.source.State())
	s.mu.Lock()
	s.now = now
	s.mu.Unlock()
	s.viewers.wakeAll()
}

func (s *Server) currentSnapshot() *snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *Server) keepTime(ctx context.Context) {
	tick := s.clock.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
			s.recordSample()
		}
	}
}

func (s *Server) recordSample() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.addSample(s.clock.Now(), &s.now.overview)
}

// Page serves the page and its data below "/". What Events serves belongs to EventsPath: it is
// apart because it lasts, so that whoever bounds requests can bound it by itself.
func (s *Server) Page() http.Handler { return withSecurityHeaders(s.mux) }

// EventsPath is where the page looks for the stream of changes.
const EventsPath = "/data/events"

// Captured is the source for one state that does not change.
type Captured struct{ Of *capture.State }

// State implements Source.
func (c Captured) State() *capture.State { return c.Of }

// Changed implements Source.
func (c Captured) Changed() <-chan struct{} { return nil }

// Trouble implements Source.
func (c Captured) Trouble() string { return "" }

// policy lets the page load its own files and nothing else, from nowhere else. Trusted types have
// the browser refuse to read text as markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// withSecurityHeaders sets what keeps a browser from doing more with an answer than show it.
func withSecurityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}
