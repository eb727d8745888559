// SPDX-License-Identifier: Apache-2.0

package main

import (
	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/monitor"
	"deviceshare/deviceplugin/usage"
)

// survey finds out what containers use.
func (p *plugin) survey() *usage.Survey {
	return usage.New(usage.Config{
		StateDir: p.o.stateDir, Records: p.store.All, Processes: p.driver.MemoryByProcess, Cgroup: usage.Cgroup,
		Trouble: func(_ checkpoint.Record, err error) {
			klog.ErrorS(err, "a container's use of its devices cannot be read")
			p.metrics.Problem(monitor.ProblemUsage)
		},
	})
}
