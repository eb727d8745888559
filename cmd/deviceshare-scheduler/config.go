// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"deviceshare/config"
	"deviceshare/config/live"
	"deviceshare/plugins/deviceshare"
	"deviceshare/sharing/wire"
)

// configFeed follows the ConfigMap that the plugin's arguments name and puts
// every good version of it in force.
type configFeed struct {
	client kubernetes.Interface
	report deviceshare.Reporter
	apply  func(deviceshare.Settings)
	// versions is told which configuration is in force; nil tells nobody.
	versions func(wire.ConfigVersions)

	mu              sync.Mutex
	namespace, name string
	stop            context.CancelFunc
	// hash identifies what is in force: every node is read anew after a change.
	hash string
}

// Use implements deviceshare.ConfigSource. A ConfigMap followed before is left.
func (f *configFeed) Use(namespace, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stop != nil && f.namespace == namespace && f.name == name {
		return
	}
	if f.stop != nil {
		f.stop()
	}
	f.namespace, f.name = namespace, name
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	w := live.New(live.Options{
		Client: f.client, DeviceName: name, Namespaces: namespaces(namespace),
		Changed: func(v live.Value) { f.put(ctx, v) },
		Problem: f.problem,
	})
	go func() {
		if err := w.Run(ctx); err != nil {
			klog.ErrorS(err, "The device configuration is not followed")
		}
	}()
	go func() {
		if w.Wait(ctx) == nil {
			f.put(ctx, w.Current())
		}
	}()
}

// namespaces are the places to look in: the one that is named, and the one the
// device plugin looks in after kube-system.
func namespaces(first string) []string {
	return slices.Compact([]string{first, "volcano-system"})
}

// put brings a configuration in force, unless another ConfigMap was named since.
func (f *configFeed) put(ctx context.Context, v live.Value) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if f.versions != nil {
		f.versions(wire.ConfigVersions{Device: v.Device.Hash(), Node: v.Node.Hash(), Geometry: v.Device.GeometryHash()})
	}
	if f.hash == v.Device.Hash() {
		return
	}
	f.hash = v.Device.Hash()
	klog.InfoS("Device configuration in force", "namespace", v.DeviceFrom.Namespace, "name", v.DeviceFrom.Name, "hash", f.hash)
	// Volcano reads a pod's resources when the pod arrives, so a name that was
	// changed is ignored for pods that come later.
	deviceshare.IgnoreSums(v.Device.PercentageName, v.Device.PriorityName)
	f.apply(settingsOf(v.Device))
}

func settingsOf(d config.Device) deviceshare.Settings {
	return deviceshare.Settings{
		Names: d.Names(), Factor: d.MemoryFactor, Defaults: d.Defaults(), Geometries: d.Geometries,
	}
}

// problem tells what is wrong with the ConfigMap, on the ConfigMap.
func (f *configFeed) problem(r live.Report) {
	object := &corev1.ObjectReference{
		Kind: "ConfigMap", APIVersion: "v1", Namespace: r.Source.Namespace, Name: r.Source.Name, ResourceVersion: r.Source.Version,
	}
	for _, p := range r.Problems {
		f.report.Report(object, "DeviceConfigurationInvalid", p.String()+" (what was in force before stays so)")
	}
}
