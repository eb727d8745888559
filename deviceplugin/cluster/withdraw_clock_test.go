// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/sharing/wire"
)

// A mark that an uninstallation left behind must not keep pods off a node whose clock goes wrong.
func TestAMarkToWithdrawIsHeededForItsTimeOnly(t *testing.T) {
	written := time.Unix(1_000_000, 0)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		wire.NodeWithdraw: written.Add(withdrawFor).UTC().Format(time.RFC3339),
	}}}
	for name, c := range map[string]struct {
		now  time.Duration // since it was written, by the clock of the node
		want bool
	}{
		"at once":                          {0, true},
		"a little before it is over":       {withdrawFor - time.Second, true},
		"when it is over":                  {withdrawFor, false},
		"a clock that is a little late":    {-30 * time.Second, true},
		"a clock that was set back by far": {-24 * time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isToWithdraw(node, written.Add(c.now)); got != c.want {
				t.Errorf("heeded: %v, want %v", got, c.want)
			}
		})
	}
}
