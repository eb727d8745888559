// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/sharing/wire"
)

// clockSkew is what the clocks of two machines may differ by.
const clockSkew = time.Minute

// releasedFor is for how much longer the driver of a node is to be let go, 0 if it is not. A time
// that lies further ahead than may be asked for is no time: a mark that was left behind before the
// clock of this machine was set back would be heeded for as long as that.
func releasedFor(node *corev1.Node, now time.Time) time.Duration {
	until, err := time.Parse(time.RFC3339, node.Annotations[wire.NodeReleaseDriver])
	left := until.Sub(now)
	if err != nil || left <= 0 || left > wire.LongestReleaseSeconds*time.Second+clockSkew {
		return 0
	}
	return left
}
