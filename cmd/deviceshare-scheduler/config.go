// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"deviceshare/config"
	"deviceshare/config/live"
	"deviceshare/plugins/deviceshare"
	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing/events"
	"deviceshare/sharing/wire"
)

// configFeed follows the ConfigMap that the plugin's arguments name and puts
// every good version of it in force.
type configFeed struct {
	client  kubernetes.Interface
	report  deviceshare.Reporter
	follows configReceiver

	mu              sync.Mutex
	namespace, name string
	stop            context.CancelFunc
	// hash identifies what is in force: every node is read anew after a change.
	hash string
	// shown are the hashes of what is in force, empty for what was never read.
	shown wire.ConfigVersions
}

// configReceiver is who goes by the configuration: the plugin's store.
type configReceiver interface {
	// Configure puts settings in force.
	Configure(nodes.Settings)
	// Withhold says why there are none to put in force.
	Withhold(why string)
	// Versions says which configuration is in force.
	Versions(wire.ConfigVersions)
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
		Client: f.client, DeviceName: name, Namespaces: configNamespaces(namespace),
		Changed: func(v live.Value) { f.applyConfig(ctx, v) },
		Problem: f.reportProblems,
	})
	go func() {
		if err := w.Run(ctx); err != nil {
			klog.ErrorS(err, "The device configuration is not followed")
		}
	}()
	go func() {
		if w.Wait(ctx) == nil {
			f.applyConfig(ctx, w.Current())
		}
	}()
}

// configNamespaces are the places to look in: the one that is named, and the one the
// device plugin looks in after kube-system.
func configNamespaces(first string) []string {
	return slices.Compact([]string{first, "volcano-system"})
}

// applyConfig brings a configuration in force, unless another ConfigMap was named since.
// What could not be read is not replaced by defaults: under other resource names
// and another memory factor, pods would get other devices than they ask for, or
// none.
func (f *configFeed) applyConfig(ctx context.Context, v live.Value) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if !v.DeviceUnread {
		f.shown.Device, f.shown.Geometry = v.Device.Hash(), v.Device.GeometryHash()
	}
	if !v.NodeUnread {
		f.shown.Node = v.Node.Hash()
	}
	f.follows.Versions(f.shown)
	if v.DeviceUnread || f.hash == v.Device.Hash() {
		return
	}
	f.hash = v.Device.Hash()
	klog.InfoS("Device configuration in force", "namespace", v.DeviceFrom.Namespace, "name", v.DeviceFrom.Name, "hash", f.hash)
	// Volcano reads a pod's resources when the pod arrives, so a name that was
	// changed is ignored for pods that come later.
	deviceshare.IgnoreSums(v.Device.PercentageName, v.Device.PriorityName)
	f.follows.Configure(settingsOf(v.Device))
}

func settingsOf(d config.Device) nodes.Settings {
	return nodes.Settings{
		Names: d.Names(), Factor: d.MemoryFactor, Defaults: d.Defaults(),
	}
}

// reportProblems tells what is wrong with the ConfigMap, on the ConfigMap and, while there
// is nothing to go by, to the pods that wait for it.
func (f *configFeed) reportProblems(r live.Report) {
	object := &corev1.ObjectReference{
		Kind: "ConfigMap", APIVersion: "v1", Namespace: r.Source.Namespace, Name: r.Source.Name, ResourceVersion: r.Source.Version,
	}
	then, texts := " (what was in force before stays so)", make([]string, 0, len(r.Problems))
	if f.isWaitingFor(r.Source.Name) {
		then = " (no pod gets devices before it can be read)"
	}
	for _, p := range r.Problems {
		texts = append(texts, p.String())
		f.report.Report(object, events.DeviceConfigurationInvalid, p.String()+then)
	}
	if f.isWaitingFor(r.Source.Name) {
		f.follows.Withhold("ConfigMap " + r.Source.Namespace + "/" + r.Source.Name + ": " + strings.Join(texts, "; "))
	}
}

// isWaitingFor reports whether the ConfigMap is the one that has to be read first.
func (f *configFeed) isWaitingFor(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hash == "" && name == f.name
}
