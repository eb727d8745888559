// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/sharing/wire"
)

// openNode is a node of which an earlier device plugin said that its devices take pods.
func openNode(t *testing.T) *corev1.Node {
	t.Helper()
	want, err := Desired(state(inventory(true, true)))
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: want.Annotations}}
}

// reads reports that every device of the node is, or is not, offered, for a reason.
func reads(healthy bool, why string) func(*corev1.Node) bool {
	return func(n *corev1.Node) bool {
		inv, found, err := wire.ReadNode(n.Annotations, "n", 1)
		if err != nil || !found || len(inv.Devices) != 2 {
			return false
		}
		for _, d := range inv.Devices {
			if d.Healthy != healthy || d.Reason != why {
				return false
			}
		}
		return true
	}
}

func TestANodeWhoseDevicesCannotBeReadIsOfferedNoLonger(t *testing.T) {
	p := startUnready(t, openNode(t), time.Hour)
	p.tell(func() { p.unread = "the driver cannot be used: not loaded" })
	p.await("the devices to be withheld", reads(false, "the driver cannot be used: not loaded"))
	if capacity(p.node(), wire.ResourceMemory) != -1 {
		t.Error("the capacity, which was that of an earlier start, was written")
	}
	p.tell(func() { p.unread = "the driver cannot be used: version mismatch" })
	p.await("the new reason", reads(false, "the driver cannot be used: version mismatch"))
	p.begin()
	p.await("the devices again", reads(true, ""))
	p.await("their amounts", func(n *corev1.Node) bool { return capacity(n, wire.ResourceMemory) == 49150 })
}

func TestANodeWhoseDriverDoesNotAnswerIsOfferedNoLonger(t *testing.T) {
	p := startUnready(t, openNode(t), time.Millisecond)
	p.await("the devices to be withheld", reads(false, ""))
	if _, written := p.node().Annotations[wire.NodeHandshake]; !written {
		t.Error("legacy schedulers are not told")
	}
}

func TestAStartThatTakesAMomentWithholdsNothing(t *testing.T) {
	p := startUnready(t, openNode(t), time.Hour)
	p.tell(func() {}) // it has looked once more when this returns, and the next token is taken after that
	p.tell(func() {})
	if !reads(true, "")(p.node()) {
		t.Error("devices are withheld")
	}
	if actions := writes(p); actions != 0 {
		t.Errorf("the node was written %d times", actions)
	}
}

// writes is how often the node was patched.
func writes(p *published) int {
	n := 0
	for _, a := range p.api.Actions() {
		if a.GetVerb() == "patch" {
			n++
		}
	}
	return n
}
