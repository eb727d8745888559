// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/sharing/wire"
)

// clockSkew is what the clocks of two machines may differ by.
const clockSkew = time.Minute

// releasedFor is for how much longer the driver of a node is to be let go, 0 if it is not.
func releasedFor(node *corev1.Node, now time.Time) time.Duration {
	return markedFor(node, wire.NodeReleaseDriver, wire.LongestReleaseSeconds*time.Second, now)
}

// markedFor is how far ahead the time of an annotation lies, 0 if it is over. One that lies further
// ahead than anybody writes is that of a mark which was left behind before the clock of this
// machine was set back: it would be heeded for as long as the clock went back.
func markedFor(node *corev1.Node, annotation string, most time.Duration, now time.Time) time.Duration {
	until, err := time.Parse(time.RFC3339, node.Annotations[annotation])
	left := until.Sub(now)
	if err != nil || left <= 0 || left > most+clockSkew {
		return 0
	}
	return left
}
