// SPDX-License-Identifier: Apache-2.0

// Package desk serves a page to the browser of one person, on the person's own machine. It listens
// on a loopback address only, and answers to who knows a key that is made anew each time: others
// with an account on the machine can reach the address too.
package desk

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path"
	"strings"
	"time"
)

// Desk is an address that is open.
type Desk struct {
	listener net.Listener
	key      string
	http     *http.Server
}

// Listen opens a port of the loopback address, any free one for 0.
func Listen(port int, page http.Handler) (*Desk, error) {
	listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, fmt.Errorf("open a port for the browser: %w", err)
	}
	d := &Desk{listener: listener, key: rand.Text()}
	d.http = &http.Server{Handler: d.requireKey(page), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	return d, nil
}

// URL is what the person opens. The key is in its path and not in a cookie, which a browser would
// send to every port of the machine.
func (d *Desk) URL() string { return fmt.Sprintf("http://%s/%s/", d.listener.Addr(), d.key) }

// Serve answers until ctx ends.
func (d *Desk) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = d.http.Close() })
	defer stop()
	if err := d.http.Serve(d.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the browser: %w", err)
	}
	return nil
}

// requireKey passes on what names this address and has the key. Another name of the address is one
// of a stranger's page that has its name lead here.
func (d *Desk) requireKey(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, rest, found := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		switch {
		case r.Host != d.listener.Addr().String():
			http.Error(w, "this address answers to its own name only", http.StatusMisdirectedRequest)
		case !found || subtle.ConstantTimeCompare([]byte(key), []byte(d.key)) != 1:
			http.Error(w, "open the address that kubectl deviceshare web has printed: it holds a key", http.StatusForbidden)
		case r.Method != http.MethodGet:
			http.Error(w, "only GET is served here", http.StatusMethodNotAllowed)
		case path.Clean("/"+rest) != "/"+rest:
			http.NotFound(w, r)
		default:
			inner := r.Clone(r.Context())
			inner.URL.Path, inner.URL.RawPath = "/"+rest, ""
			page.ServeHTTP(w, inner)
		}
	})
}
