// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"volcano.sh/volcano/cmd/scheduler/app/options"

	"deviceshare/plugins/deviceshare"
	"deviceshare/plugins/schedulerconf"
	"deviceshare/sharing/events"
	"deviceshare/sharing/rivals"
)

// errNoConfiguration: without a file, Volcano goes by tiers in which our plugin is not.
var errNoConfiguration = errors.New("--scheduler-conf names no file: give it one in which plugin deviceshare is")

// guardConfiguration has Volcano go by nothing but a configuration in which our plugin takes part.
// The actions must be registered. What it returns is to be closed when Volcano has ended.
func guardConfiguration(volcano *options.ServerOption, configMap string, said deviceshare.Reporter) (io.Closer, error) {
	if volcano.SchedulerConf == "" {
		return nil, errNoConfiguration
	}
	object, err := configMapOf(configMap)
	if err != nil {
		return nil, err
	}
	guard, err := schedulerconf.New(schedulerconf.Options{Path: volcano.SchedulerConf, Known: knownTo(volcano), Tell: func(mistake string) {
		if object != nil {
			said.Report(object, events.SchedulerConfigurationInvalid, mistake+" (what was in force before stays so)")
		}
	}})
	if err != nil {
		return nil, err
	}
	volcano.SchedulerConf, volcano.DisableDefaultSchedulerConfig = guard.Path(), true
	prometheus.MustRegister(guard)
	go func() {
		if err := guard.Run(context.Background()); err != nil {
			klog.ErrorS(err, "Edits of the scheduler's configuration are not followed")
		}
	}()
	return guard, nil
}

// configMapOf reads a namespace and a name; nil for an empty text.
func configMapOf(text string) (*corev1.ObjectReference, error) {
	if text == "" {
		return nil, nil
	}
	o, err := parseObject("--deviceshare-scheduler-config-map", text)
	return &corev1.ObjectReference{Kind: "ConfigMap", APIVersion: "v1", Namespace: o.Namespace, Name: o.Name}, err
}

// parseObject reads the namespace and the name that a flag gives.
func parseObject(flag, text string) (rivals.Object, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return rivals.Object{}, fmt.Errorf("%s: want namespace/name, got %q", flag, text)
	}
	return rivals.Object{Namespace: namespace, Name: name}, nil
}

// knownTo is what this program has. Which plugins a folder adds is known later.
func knownTo(volcano *options.ServerOption) schedulerconf.Known {
	known := schedulerconf.Registered()
	if volcano.PluginsDir != "" {
		known.Plugin = func(string) bool { return true }
	}
	return known
}
