// SPDX-License-Identifier: Apache-2.0

package main

import (
	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/metrics"
)

// survey finds out what containers use.
func (p *plugin) survey() *metrics.Survey {
	return metrics.NewSurvey(metrics.SurveyConfig{
		StateDir: p.o.stateDir, Records: p.store.All, Processes: p.driver.MemoryByProcess, Cgroup: metrics.Cgroup,
		Trouble: func(_ checkpoint.Record, err error) {
			klog.ErrorS(err, "a container's use of its devices cannot be read")
			p.metrics.Problem(metrics.ProblemUsage)
		},
	})
}
