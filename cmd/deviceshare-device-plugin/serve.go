// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"deviceshare/deviceplugin/identity"
	"deviceshare/deviceplugin/lifecycle"
	"deviceshare/deviceplugin/monitor"
	"deviceshare/deviceplugin/render"
	"deviceshare/deviceplugin/server"
)

// kubelet is where the kubelet keeps what we read.
type kubelet struct {
	directory string
	resource  func() string
}

func (k kubelet) plugins() string { return filepath.Join(k.directory, "device-plugins") }
func (k kubelet) podResources() string {
	return filepath.Join(k.directory, "pod-resources", "kubelet.sock")
}

func (k kubelet) checkpoint() ([]byte, error) {
	return os.ReadFile(filepath.Join(k.plugins(), "kubelet_internal_checkpoint"))
}

// held is the kubelet's record of the count resource.
func (k kubelet) held() ([]identity.Held, error) {
	text, err := k.checkpoint()
	if err != nil {
		return nil, fmt.Errorf("read the kubelet's device checkpoint: %w", err)
	}
	record, err := identity.ReadKubelet(text)
	return record.Of(k.resource()), err
}

// serveWhenReady starts what needs to know the devices.
func (p *plugin) serveWhenReady(ctx context.Context, group *errgroup.Group) error {
	klog.InfoS("waiting for the driver")
	changes, stop := p.board.Changes()
	defer stop()
	select {
	case <-ctx.Done():
		return nil
	case <-changes:
	}
	inv, _ := p.board.Inventory()
	klog.InfoS("devices found", "count", len(inv.Devices))
	p.moveDevices(ctx, group)
	amounts := &amounts{plugin: p}
	count := p.countServer()
	publisher, err := p.publisher(amounts.inCapacity, func() string { return withheld(p.leaving.Load(), count.Taken()) })
	if err != nil {
		return err
	}
	group.Go(func() error { return publisher.Run(ctx) })
	group.Go(func() error { return amounts.run(ctx) })
	group.Go(func() error { return p.reconcile(ctx) })
	group.Go(func() error { return p.releases.run(ctx, p.keeper.Release) })
	return count.Run(ctx)
}

// countServer is the server of the resource that pods ask for devices with.
func (p *plugin) countServer() *server.Server {
	return server.New(server.Config{
		Directory: p.kubelet.plugins(), Socket: "deviceshare-count.sock", Resource: p.countName,
		Devices: func() []*pluginapi.Device {
			// A device on the way into another mode keeps its slots: a pod that comes
			// for the old one is told so when it starts, and placed anew.
			inv, _ := p.board.Usable()
			return server.Slots(&inv)
		},
		Changes: p.board.Changes,
		Handler: handler{p.keeper},
		Taken:   p.changed,
	})
}

// reconcile repairs at the start and now and then.
func (p *plugin) reconcile(ctx context.Context) error {
	for {
		if err := p.keeper.Reconcile(ctx); err != nil && ctx.Err() == nil {
			p.report.trouble(monitor.ProblemReconcile, "DeviceReconcileFailed", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(5 * time.Minute):
		}
	}
}

// handler names allocations for the kubelet.
type handler struct{ keeper *lifecycle.Keeper }

// Allocate implements server.Handler.
func (h handler) Allocate(slots []string) (string, error) {
	id, err := h.keeper.Allocate(slots)
	if err != nil {
		return "", err
	}
	return render.Name(id), nil
}

// Start implements server.Handler.
func (h handler) Start(ctx context.Context, slots []string) error { return h.keeper.Start(ctx, slots) }
