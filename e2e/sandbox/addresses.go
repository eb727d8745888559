// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"path/filepath"
)

// SchedulerURL is where the scheduler serves its metrics and its ledger, if it is a process.
func (c *Cluster) SchedulerURL() string {
	return fmt.Sprintf("http://127.0.0.1:%d", c.ports.SchedulerMetrics)
}

// DevicePluginURL is where the device plugin serves its metrics, if it is a process.
func (c *Cluster) DevicePluginURL() string {
	return fmt.Sprintf("http://127.0.0.1:%d", c.ports.DevicePluginMetrics)
}

// LibraryDir holds the libraries of the fake driver as the device plugin loads them.
func (c *Cluster) LibraryDir() string {
	if c.opts.Installed {
		return filepath.Join(c.layout.driverRoot(), driverLibraries)
	}
	return c.layout.libDir()
}
