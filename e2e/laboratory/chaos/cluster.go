// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"slices"

	"deviceshare/e2e/sandbox"
)

// Topology is the devices of a run: seven A100, of which the first is in mode mig, and one H100. It
// is the one whose mode is edited, because an A100 enters and leaves mode mig by a reset, which
// only an administrator does.
func Topology() string {
	cards := slices.Repeat([]sandbox.Card{sandbox.A100()}, 8)
	cards[0], cards[Moved] = sandbox.A100().Partitioned(), sandbox.H100()
	return sandbox.Topology(cards...)
}

// Cluster says what the cluster of a run is: an installation on a node with these devices.
func Cluster(progress sandbox.Progress) sandbox.Options {
	return sandbox.Options{
		Installed: true, Topology: Topology(), Progress: progress,
		Args: map[string][]string{
			// A device is trusted again after five seconds without errors instead of a minute.
			sandbox.DevicePlugin: {"--health-quiet=5s", "--health-probe=1s", "--driver-retry=2s"},
			// A killed leader is replaced after three seconds instead of fifteen. Kills come that
			// much more often than in a year of a real cluster.
			sandbox.Scheduler: {"--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms"},
		},
	}
}
