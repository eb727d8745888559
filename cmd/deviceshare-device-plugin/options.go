// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"deviceshare/deviceplugin/cdi"
	"deviceshare/deviceplugin/kubelet"
)

// options are the flags.
type options struct {
	nodeName, kubeconfig string
	runtime              cdi.Runtime
	places               kubelet.Places
	base                 cdi.Options
	modes                modeFlags
	metricsAddress       string
	failOnInitError      bool
	memoryResources      string
	health               healthFlags
	settle, healthProbe  time.Duration
	driverRetry          time.Duration
	// podResources has exporters answered at kubelet.Directory.TruePodResources.
	podResources bool
}

func defaultOptions() *options {
	o := &options{
		nodeName: os.Getenv("NODE_NAME"), places: kubelet.DefaultPlaces(), runtime: cdi.DefaultRuntime(),
		base: cdi.DefaultOptions(), modes: defaultModeFlags(), metricsAddress: ":9394", memoryResources: "auto",
		settle: 150 * time.Millisecond, health: defaultHealthFlags(), healthProbe: 5 * time.Second, driverRetry: 10 * time.Second,
	}
	if o.nodeName == "" {
		o.nodeName, _ = os.Hostname()
	}
	return o
}

func (o *options) addFlags(f *pflag.FlagSet) {
	o.base.AddFlags(f)
	o.modes.addFlags(f)
	o.health.addFlags(f)
	o.places.AddFlags(f)
	o.runtime.AddFlags(f)
	f.StringVar(&o.nodeName, "node-name", o.nodeName, "name of this node's object (default $NODE_NAME, else the host name)")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "path of a kubeconfig; empty uses the pod's service account")
	f.StringVar(&o.metricsAddress, "metrics-address", o.metricsAddress, "address of /metrics (for ClusterRole deviceshare-metrics-reader) and /healthz, over HTTPS; empty serves neither")
	f.BoolVar(&o.podResources, "pod-resources", false,
		"answer exporters which pod has which device, at pod-resources/deviceshare.sock in --kubelet-dir, as the kubelet does at its own socket")
	f.BoolVar(&o.failOnInitError, "fail-on-init-error", false, "exit when the driver cannot be opened at the start, instead of trying again")
	f.StringVar(&o.memoryResources, "memory-resources", o.memoryResources,
		"how memory and cores are offered: node-status (in the node's capacity), device-plugin (one kubelet device per unit, as before), or auto (node-status once no pod holds the latter)")
	f.DurationVar(&o.settle, "cdi-settle", o.settle, "how long to wait at least after writing a CDI specification, until the runtime has seen it")
	f.DurationVar(&o.healthProbe, "health-probe", o.healthProbe, "time between looks at every device")
	f.DurationVar(&o.driverRetry, "driver-retry", o.driverRetry, "wait before the driver is opened again while it, or a device, does not answer")
}

func (o *options) validateFlags() error {
	wrong := slices.Concat(o.base.Check(), o.modes.findMistakes(), o.health.findMistakes(), o.places.Check(), o.runtime.Check())
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	if o.nodeName == "" {
		add("--node-name is empty: give the name of this node's object")
	}
	for flag, d := range map[string]time.Duration{"health-probe": o.healthProbe, "driver-retry": o.driverRetry} {
		if d < 0 {
			add("--%s=%s: want 0 (the default) or more", flag, d)
		}
	}
	switch o.memoryResources {
	case "auto", "node-status", "device-plugin":
	default:
		add("--memory-resources=%q: want auto, node-status or device-plugin", o.memoryResources)
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%w\nsee --help", errors.Join(wrong...))
}
