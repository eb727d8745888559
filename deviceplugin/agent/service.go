// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"deviceshare/deviceplugin/modes/mps/keeper"
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

// keeperClient is the keeper that the flags name.
func (m *Modes) keeperClient() keeper.Client {
	return keeper.Client{Socket: m.MPSKeeper, Directories: filepath.Clean(m.MPSRoot)}
}

// WatchKeeper takes mode mps out of service while the keeper cannot start MPS daemons. When it
// returns it has asked once; it asks again as long as ctx lasts.
func (m *Modes) WatchKeeper(ctx context.Context, group *errgroup.Group, a *Agent) {
	if m.MPSKeeper == "" {
		return
	}
	w := &serviceWatch{agent: a, mode: sharing.MPS, service: m.keeperClient(), every: time.Second, failed: true}
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
