// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/prometheus/procfs"
	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/metrics"
	"deviceshare/deviceplugin/node"
)

// Snapshot implements metrics.States.
func (p *plugin) Snapshot() metrics.Snapshot {
	state := p.agent.State()
	working := state.View(func(may node.Permissions) bool { return may.Resume })
	return metrics.Snapshot{Offered: state.Inventory(), Working: working, Config: p.versions(), Records: p.store.All()}
}

// survey finds out what containers use.
func (p *plugin) survey() (*metrics.Survey, error) {
	host, err := metrics.NewHostCgroups(procfs.DefaultMountPoint)
	if err != nil {
		return nil, err
	}
	return metrics.NewSurvey(metrics.SurveyConfig{
		StateDir: p.o.stateDir, Records: p.store, Devices: p.driver, Host: host,
		Trouble: func(_ checkpoint.Record, err error) {
			klog.ErrorS(err, "a container's use of its devices cannot be read")
			p.metrics.Problem(metrics.ProblemUsage)
		},
	}), nil
}
