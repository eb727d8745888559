// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// service is something beside the devices that a mode needs.
type service interface {
	// Check returns why it does not work, if it does not.
	Check(ctx context.Context) error
}

// serviceWatch takes a mode out of service while what it needs does not work.
type serviceWatch struct {
	agent   *Agent
	mode    sharing.Mode
	service service
	every   time.Duration

	lost   string // why, as the agent knows it; empty if it works
	failed bool   // the last look found a failure
}

// WatchService takes a mode out of service while a service that it needs does not work. When it
// returns it has asked once; it asks again as long as ctx lasts.
func (a *Agent) WatchService(ctx context.Context, group *errgroup.Group, mode sharing.Mode, s service) {
	w := &serviceWatch{agent: a, mode: mode, service: s, every: time.Second, failed: true}
	w.checkService(ctx)
	group.Go(func() error { return w.run(ctx) })
}

func (w *serviceWatch) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(w.every):
		}
		w.checkService(ctx)
	}
}

// checkService asks once. A failure counts when the next look finds one too, since one may be
// passing.
func (w *serviceWatch) checkService(ctx context.Context) {
	err := w.service.Check(ctx)
	if ctx.Err() != nil {
		return
	}
	counts := err != nil && w.failed
	w.failed = err != nil
	switch {
	case err == nil && w.lost != "":
		w.lost = ""
		w.agent.Send(node.ServiceBack{Mode: w.mode})
	case counts && err.Error() != w.lost:
		w.lost = err.Error()
		w.agent.Send(node.ServiceLost{Mode: w.mode, Why: w.lost})
	}
}

// WatchUnserved checks modes that are not served until all of them are, or ctx ends: a disk that
// was full, or a file system that was mounted noexec, may be mended at any time.
func (a *Agent) WatchUnserved(ctx context.Context, unserved map[sharing.Mode]string, check func(sharing.Mode) error, every time.Duration) error {
	waiting := slices.Sorted(maps.Keys(unserved))
	for len(waiting) > 0 {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
		waiting = slices.DeleteFunc(waiting, func(mode sharing.Mode) bool {
			if check(mode) != nil {
				return false
			}
			klog.InfoS("containers can load the library again; the mode is served", "mode", mode)
			a.Send(node.ModeServed{Mode: mode})
			return true
		})
	}
	return nil
}
