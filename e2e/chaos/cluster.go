// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"strings"

	"deviceshare/e2e/sandbox"
)

// Cluster says what the cluster of a run is: an installation on a node with eight A100, with two
// schedulers of which one leads.
func Cluster(progress sandbox.Progress) sandbox.Options {
	var topology strings.Builder
	topology.WriteString("fakegpu 1\ndriver 580.95.05 cuda 13.0\n")
	for i := range 8 {
		fmt.Fprintf(&topology, "gpu model=\"NVIDIA A100-SXM4-80GB\" memory=81920MiB cc=8.0 numa=%d mig=capable pci=0000:%02x:00.0 sms=108\n", i/4, 7+8*i)
	}
	return sandbox.Options{
		Installed: true, Topology: topology.String(), Progress: progress,
		Args: map[string][]string{
			// A device is trusted again after five seconds without errors instead of a minute.
			sandbox.DevicePlugin: {"--health-quiet=5s", "--health-probe=1s", "--driver-retry=2s"},
			// A killed leader is replaced after three seconds instead of fifteen. Kills come that
			// much more often than in a year of a real cluster.
			sandbox.Scheduler: {"--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms"},
		},
	}
}
