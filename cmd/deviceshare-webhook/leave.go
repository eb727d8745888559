// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// leaveFor is how long the webhook works on after it was told to stop. The API server calls it
// until it has heard of the end of its pod, and takes a call that fails for a webhook that is away.
const leaveFor = 10 * time.Second

// exit is the way out of a webhook that was told to stop.
//
// The API server keeps its connections, and a request that it sends over one while this end closes
// it is lost. So each answer of a webhook that leaves closes its connection: the next call comes
// over a new one, which leads to another webhook as soon as the API server knows of one.
type exit struct{ leaving atomic.Bool }

// extendContext returns a context that ends some time after ctx, during which the webhook leaves.
func (e *exit) extendContext(ctx context.Context, some time.Duration) (working context.Context, end context.CancelFunc) {
	working, end = context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		e.leaving.Store(true)
		time.AfterFunc(some, end)
	})
	return working, end
}

// leavingServer is a server of webhooks whose handlers know of the exit.
type leavingServer struct {
	webhook.Server
	exit *exit
}

func (s leavingServer) Register(path string, hook http.Handler) {
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.exit.leaving.Load() {
			w.Header().Set("Connection", "close")
		}
		hook.ServeHTTP(w, r)
	}))
}
