// SPDX-License-Identifier: Apache-2.0

package sandbox

import "fmt"

// SchedulerURL is where the scheduler serves its metrics and its ledger.
func (c *Cluster) SchedulerURL() string {
	return fmt.Sprintf("http://127.0.0.1:%d", c.ports.SchedulerMetrics)
}

// DevicePluginURL is where the device plugin serves its metrics.
func (c *Cluster) DevicePluginURL() string {
	return fmt.Sprintf("http://127.0.0.1:%d", c.ports.DevicePluginMetrics)
}

// LibraryDir holds the libraries of the fake driver as the device plugin loads
// them.
func (c *Cluster) LibraryDir() string { return c.layout.libDir() }
