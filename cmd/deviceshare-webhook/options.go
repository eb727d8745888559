// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"deviceshare/plugins/admission"
)

// options are the command line.
type options struct {
	kubeconfig     string
	certificateDir string
	bindAddress    string
	port           int
	schedulers     []string
	metricsAddress string
	healthAddress  string
	deviceConfig   string
	writers        []string
	unasked        string
	askedBy        []string
}

func (o *options) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; empty uses the service account of the pod")
	f.StringVar(&o.certificateDir, "certificate-dir", "", "directory with tls.crt and tls.key, which may be replaced at any time")
	f.StringVar(&o.bindAddress, "bind-address", "", "address to serve on; empty is every address")
	f.IntVar(&o.port, "port", 9443, "port to serve on")
	f.StringSliceVar(&o.schedulers, "scheduler-name", []string{"volcano"},
		"name of a scheduler that gives GPU shares, may be repeated; the first is written into pods that name none")
	f.StringVar(&o.metricsAddress, "metrics-address", "", "address of /metrics, such as :8080, over HTTPS and for ClusterRole deviceshare-metrics-reader; empty serves none")
	f.StringVar(&o.healthAddress, "health-address", "", "address of /healthz and /readyz, such as :8081; empty serves none")
	f.StringSliceVar(&o.writers, "placement-writer", defaultWriters(),
		"user who may change the annotations by which pods hold devices, may be repeated: the service accounts of the scheduler and the device plugin, and of Volcano's own scheduler where one runs beside it")
	f.StringVar(&o.deviceConfig, "device-config", "",
		"namespace/name of the device ConfigMap; empty looks for volcano-vgpu-device-config in kube-system, then volcano-system")
	f.StringVar(&o.unasked, "unasked-devices", string(admission.UnaskedAllow),
		"what becomes of devices that containers get without asking for any: allow; void sets NVIDIA_VISIBLE_DEVICES=void in them; deny does so where they say nothing. The chart registers it")
	f.StringSliceVar(&o.askedBy, "asked-by", nil,
		"resource of another device plugin by which containers ask for devices, may be repeated; a * at the end stands for any end of the name")
}

// defaultWriters are the accounts of the manifests, and that of Volcano's own scheduler.
func defaultWriters() []string {
	return []string{
		"system:serviceaccount:deviceshare-system:deviceshare-scheduler",
		"system:serviceaccount:volcano-system:volcano-scheduler",
	}
}

func (o *options) validateFlags() error {
	var mistakes []error
	wrong := func(format string, args ...any) { mistakes = append(mistakes, fmt.Errorf(format, args...)) }
	if o.certificateDir == "" {
		wrong("--certificate-dir must not be empty")
	}
	if o.port < 1 || o.port > 65535 {
		wrong("--port=%d is not a port: write 1 to 65535", o.port)
	}
	if len(o.schedulers) == 0 || o.schedulers[0] == "" {
		wrong("--scheduler-name must not be empty")
	}
	if slices.Contains(o.writers, "") {
		wrong("--placement-writer must not be empty")
	}
	if _, _, err := o.splitDeviceConfig(); err != nil {
		wrong("%w", err)
	}
	if err := admission.Unasked(o.unasked).Validate(); err != nil {
		wrong("--unasked-devices: %w", err)
	}
	return errors.Join(mistakes...)
}

// splitDeviceConfig splits --device-config; both parts are empty when it is.
func (o *options) splitDeviceConfig() (namespace, name string, err error) {
	if o.deviceConfig == "" {
		return "", "", nil
	}
	namespace, name, ok := strings.Cut(o.deviceConfig, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("--device-config=%q: write namespace/name", o.deviceConfig)
	}
	return namespace, name, nil
}
