// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	volcano "volcano.sh/apis/pkg/client/clientset/versioned"

	"deviceshare/endpoint"
	"deviceshare/view/forward"
	"deviceshare/view/live"
	"deviceshare/view/page"
)

// How many requests are answered at once, and how many viewers follow the page, in all and from one
// address. All who come through the API server come from few addresses.
const (
	requests, requestsOfOne = 64, 48
	viewers, viewersOfOne   = 128, 96
)

// retryAfter is the pause after the API server has refused to show the cluster.
const retryAfter = 5 * time.Second

func run(ctx context.Context, o *options) error {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("find the cluster: %w: give --kubeconfig, or run in a pod", err)
	}
	config.UserAgent = "deviceshare-view"
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	batch, err := volcano.NewForConfig(rest.CopyConfig(config))
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	follower := live.New(core, batch, o.configNamespace)
	h := &handler{}
	served, err := endpoint.Listen(o.address, h.newMux(endpoint.NewAccess(core)))
	if err != nil {
		return fmt.Errorf("serve the page (--address): %w", err)
	}
	var parts sync.WaitGroup
	parts.Go(func() { follower.Run(ctx) })
	parts.Go(func() { h.followCluster(ctx, follower) })
	parts.Go(func() { cancel(served.Serve(ctx)) })
	parts.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// handler serves the page once the cluster was read, and until then says that it was not.
type handler struct {
	page atomic.Pointer[page.Server]
}

func (h *handler) followCluster(ctx context.Context, f *live.Follower) {
	for {
		err := f.Wait(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		klog.ErrorS(err, "Cannot read the cluster; trying again")
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryAfter):
		}
	}
	s := page.New(f)
	h.page.Store(s)
	klog.InfoS("The page is served")
	s.Follow(ctx)
}

// newMux has the page behind the API server's decision, and health for everybody.
func (h *handler) newMux(access *endpoint.Access) *http.ServeMux {
	mux := http.NewServeMux()
	guarded := func(access *endpoint.Access, part func(*page.Server) http.Handler) http.Handler {
		return access.Guard(forward.PagePath, http.StripPrefix(forward.PagePath, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s := h.page.Load()
			if s == nil {
				w.Header().Set("Retry-After", "1")
				http.Error(w, "the cluster is being read: try again in a moment", http.StatusServiceUnavailable)
				return
			}
			part(s).ServeHTTP(w, r)
		})))
	}
	mux.Handle(forward.PagePath+"/", guarded(access.WithRequestLimits(requests, requestsOfOne), (*page.Server).Page))
	mux.Handle(forward.PagePath+page.EventsPath, guarded(access.WithRequestLimits(viewers, viewersOfOne), (*page.Server).Events))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if h.page.Load() == nil {
			http.Error(w, "the cluster is being read", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	return mux
}
